"""Guards that judge an answer by its own call: over real calls, whole and streamed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.doubles import ScriptedUpstream, answer, chat, chat_events, stream
from tests.guards.matching.test_passages import PROMPT
from tests.guards.test_reported import ENKRYPT, OPENAI, ask, found
from tests.guards.test_run import guarded

REQUEST = {"role": "user", "content": "How long may members of the library borrow books for?"}
PROMPTED: dict[str, Any] = {"messages": [{"role": "system", "content": PROMPT}, REQUEST]}
CONTEXT = "Members of the library may borrow up to 12 books for 4 weeks."
TRUE = "Members may borrow books for 4 weeks."
FALSE = "Members may borrow books for 9 weeks."
RICE = "Simmer the rice with the lid on, then fluff it with a fork."
LEAK = f"Sure: {PROMPT}"


@pytest.mark.parametrize("pieces", [0, 1, 7])
async def test_a_system_prompt_does_not_leave_with_the_answer(
    pieces: int, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    cut = [LEAK[i : i + pieces] for i in range(0, len(LEAK), pieces)] if pieces else []
    upstream.answer_with(stream(chat_events(*cut)) if pieces else answer(chat(LEAK)))
    async with guarded(tmp_path, upstream, "output: [{guard: system_prompt}]") as (_, client):
        leaks = await ask(client, OPENAI, PROMPTED, streamed=bool(pieces))
        other_item = await ask(client, OPENAI, {"messages": [REQUEST]}, streamed=bool(pieces))

    assert b"guardrail_blocked" in leaks[1]
    assert b"refund" not in leaks[1]
    assert (other_item[0], b"guardrail_blocked" in other_item[1]) == (200, False)


async def test_an_answer_is_judged_by_its_context_and_question(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.then(*(answer(chat(text)) for text in (TRUE, FALSE, RICE)))
    guards = "output: [{guard: grounded}, {guard: relevant}]"
    request = {"messages": [REQUEST], "enkrypt_context": CONTEXT}
    async with guarded(tmp_path, upstream, guards) as (_, client):
        answers = [await ask(client, ENKRYPT, request) for _ in range(3)]

    right = {"is_hallucination": 0, "adherence_score": 1}
    wrong = {"is_hallucination": 1, "adherence_score": 0}
    assert [status for status, *_ in answers] == [200, 200, 200]
    assert [found(document)[1] for *_, document in answers] == [
        right | {"relevancy_score": 1},
        wrong | {"relevancy_score": 1},
        wrong | {"relevancy_score": 0},
    ]


async def test_without_a_context_nothing_is_said_of_it(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(answer(chat(FALSE)))
    guards = "output: [{guard: grounded, action: block}, {guard: system_prompt}]"
    async with guarded(tmp_path, upstream, guards) as (proxy, client):
        status, _, answered = await ask(client, ENKRYPT, {"messages": [REQUEST]})
        [record] = await proxy.sink.wait()

    assert status == 200
    assert found(answered) == ({}, {})
    assert [result.verdict for _, result in record.guard_results()] == [
        "not_applicable",
        "not_applicable",
    ]


async def test_a_stream_is_held_until_its_sentences_can_be_judged(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(stream(chat_events("Members may borrow ", "books for 9", " weeks.")))
    guards = "output: [{guard: grounded, action: block}]"
    async with guarded(tmp_path, upstream, guards) as (_, client):
        body = {"messages": [REQUEST], "context": CONTEXT}
        _, read, _ = await ask(client, OPENAI, body, streamed=True)

    assert b"guardrail_blocked" in read
    assert b"borrow" not in read


async def test_protected_texts_in_a_file_are_found_in_answers(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "song.txt").write_text(PROMPT)
    upstream.answer_with(answer(chat(f"As the song has it: {PROMPT}")))
    guards = "output: [{guard: copyright, texts_from: [song.txt], share: null, action: mask}]"
    async with guarded(tmp_path, upstream, guards) as (_, client):
        _, _, answered = await ask(client, OPENAI, {"messages": [REQUEST]})

    assert answered["choices"][0]["message"]["content"].startswith("As the song has it: [PASSAGE]")
