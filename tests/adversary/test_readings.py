"""No client assembles a guarded word from a stream, whichever members and indexes it reads."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path

from tests.adversary.readings import chunks_of, response_texts, shown_texts
from tests.adversary.test_cut_texts import ACTIONS, CONTENT_FORMS, GUARD, chunks, send, thoughts
from tests.doubles import Json, ScriptedUpstream, response_events, stream
from tests.for_each import for_each
from tests.guards.calls import guarded

WORD = "hydropolis"
PIECES = ("We go to hydro", " XX ", "polis now", " and on.")
REASONING: Mapping[str, object] = {
    "reasoning_content": lambda text: {"reasoning_content": text},
    "reasoning": lambda text: {"reasoning": text},
    "thinking part": lambda text: {"content": thoughts(text)},
    "both": lambda text: {"reasoning_content": text, "reasoning": text},
    "both, unequal": lambda text: {"reasoning_content": text, "reasoning": text[::-1]},
    "both, unequal, backwards": lambda text: {"reasoning_content": text[::-1], "reasoning": text},
}
CONTENT = {name: CONTENT_FORMS[name] for name in ("text", "typed part", "refusal")}


def alternating(forms: Mapping[str, object], size: int) -> dict[str, list[Json]]:
    """Return streams whose pieces take each sequence of forms."""
    return {
        ", ".join(names): [forms[n](text) for n, text in zip(names, PIECES, strict=False)]  # type: ignore[operator]
        for names in product(forms, repeat=size)
    }


@ACTIONS
@for_each("client", ["chat", "completions"])
@for_each("kind", [REASONING, CONTENT], ids=["reasoning", "content"])
async def test_alternating_members_show_no_guarded_word(
    kind: Mapping[str, object], client: str, action: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with guarded(tmp_path, upstream, GUARD.format(action)) as proxy:
        for name, deltas in alternating(kind, 3).items():
            upstream.answer_with(chunks(*deltas, {"content": "Yes."}, {}))
            reply = await send(proxy, client, stream=True)
            texts = shown_texts(chunks_of(reply.raw))
            leaks = [reading for reading, text in texts.items() if WORD in text]
            assert leaks == [], (name, reply.raw)
            if action == "mask":
                assert any("We go to" in text for text in texts.values()), (name, reply.raw)
                assert any("Yes." in text for text in texts.values()), (name, reply.raw)


ABSENT = "absent"
INDEXES: list[object] = [
    *(ABSENT, None, 0, 0.0, -0.0, "0", False, 1, 1.0, "1", True, -1, 1.5, 10**30, "x", {"a": 1}, [])
]


def chunk_at(index: object, delta: Json) -> Json:
    choice: Json = {"delta": delta, "finish_reason": None}
    return choice if index == ABSENT else {"index": index, **choice}


@ACTIONS
@for_each("choices", [1, 2])
async def test_indexes_of_choices_hide_no_guarded_word(
    choices: int, action: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with guarded(tmp_path, upstream, GUARD.format(action)) as proxy:
        for first, second in product(INDEXES, repeat=2):
            cut = chunk_at(first, {"content": PIECES[0]}), chunk_at(second, {"content": PIECES[2]})
            between = (
                chunk_at(second, {"content": PIECES[1]}),
                chunk_at(first, {"content": PIECES[2]}),
            )
            for script in ([[cut[0]], [cut[1]]], [[*cut]], [[cut[0]], [between[0]], [between[1]]]):
                end = {"choices": [{**chunk_at(first, {}), "finish_reason": "stop"}]}
                upstream.answer_with(stream([*({"id": "c", "choices": c} for c in script), end]))
                reply = await send(proxy, "chat", stream=True, n=choices)
                texts = shown_texts(chunks_of(reply.raw), is_single=choices == 1)
                leaks = [reading for reading, text in texts.items() if WORD in text]
                assert leaks == [], (first, second, reply.raw)
                [record] = await proxy.sink.wait()
                proxy.sink.forget()
                assert not record.is_internal_error
                assert (choices == 1 and action == "mask") <= (reply.status == 200)


def calling(index: object, arguments: str, **call: object) -> Json:
    fragment: Json = {"function": {"arguments": arguments, **call}}
    calls = [fragment if index == ABSENT else {"index": index, **fragment}]
    return {"tool_calls": calls}


@ACTIONS
async def test_indexes_of_tool_calls_hide_no_guarded_word(
    action: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with guarded(tmp_path, upstream, GUARD.format(action)) as proxy:
        for first, second in product(INDEXES, repeat=2):
            begin = calling(first, '{"a": "to hydro', name="f")
            end = calling(second, 'polis"}')
            between = calling(second, ' X", "b": "', name="f"), calling(first, 'polis"}')
            both = {"tool_calls": [*begin["tool_calls"], *end["tool_calls"]]}
            for deltas in ((begin, end), (both,), (begin, *between)):
                upstream.answer_with(chunks(*deltas, {}, finish="tool_calls"))
                reply = await send(proxy, "chat", stream=True)
                texts = shown_texts(chunks_of(reply.raw))
                calls = {key: text for key, text in texts.items() if "call" in str(key)}
                leaks = [reading for reading, text in calls.items() if WORD in text]
                assert leaks == [], (first, second, reply.raw)
                [record] = await proxy.sink.wait()
                proxy.sink.forget()
                assert not record.is_internal_error


LOCATION: Json = {"output_index": 0, "item_id": "a", "content_index": 0}
SECOND: Json = {**LOCATION, "content_index": 1}
ITEM_2: Json = {"output_index": 1, "item_id": "b", "content_index": 0}
RESPONSES: dict[str, list[tuple[str, Json]]] = {
    "another id between": [("hydro", LOCATION), ("X", LOCATION | {"item_id": "b"})],
    "no id between": [("hydro", LOCATION), ("X", LOCATION | {"item_id": None})],
    "another type of index between": [
        ("hydro", LOCATION),
        ("X", LOCATION | {"content_index": 0.0}),
    ],
    "another part between": [("hydro", LOCATION), ("X", SECOND)],
    "another item between": [("hydro", LOCATION), ("X", ITEM_2)],
    "an item with the same id": [
        ("hydro", LOCATION),
        ("X", ITEM_2),
        ("polis", ITEM_2 | {"output_index": 2, "item_id": "a"}),
    ],
    "two parts that do not end": [("hydro", LOCATION), ("polis", SECOND)],
    "two items that do not end": [("hydro", LOCATION), ("polis", ITEM_2)],
    "parts in another order": [("polis", SECOND), ("hydro", LOCATION)],
    "items in another order": [("polis", ITEM_2), ("hydro", LOCATION)],
}


@ACTIONS
@for_each("kind", ["output_text", "reasoning_summary_text", "reasoning_text", "refusal"])
async def test_locations_of_responses_hide_no_guarded_word(
    kind: str, action: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    index = "summary_index" if kind.endswith("summary_text") else "content_index"
    async with guarded(tmp_path, upstream, GUARD.format(action)) as proxy:
        for name, deltas in RESPONSES.items():
            if not name.endswith(("end", "order", "same id")):
                deltas = [*deltas, ("polis", LOCATION)]  # noqa: PLW2901
            events = [
                {"type": f"response.{kind}.delta", "delta": text}
                | {
                    index if key == "content_index" else key: value
                    for key, value in chunk_at.items()
                }
                for text, chunk_at in deltas
            ]
            upstream.answer_with(stream(response_events(events), is_done=False))
            reply = await send(proxy, "responses", model="responses-only", stream=True)
            texts = response_texts(chunks_of(reply.raw))
            assert [key for key, text in texts.items() if WORD in text] == [], (name, reply.raw)
            [record] = await proxy.sink.wait()
            proxy.sink.forget()
            assert not record.is_internal_error
            assert action == "block" or name.endswith("order") or reply.status == 200, name


@ACTIONS
@for_each("client", ["chat", "completions"])
@for_each("member", ["content", "refusal", *REASONING])
async def test_text_after_the_finish_reason_hides_no_word(
    member: str, client: str, action: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    form = REASONING.get(member, lambda text: {member: text})
    begin, end = (form(text) for text in ("We go to hydro", "polis"))  # type: ignore[operator]
    stop = {"finish_reason": "stop"}
    documents = {
        "the end, then a text": ([chunk_at(0, begin)], [chunk_at(0, {}) | stop, chunk_at(0, end)]),
        "a text with the end, then a text": ([chunk_at(0, begin) | stop, chunk_at(0, end)],),
        "a text, the end, a text": (
            [chunk_at(0, begin), chunk_at(0, {}) | stop, chunk_at(0, end)],
        ),
        "other spellings of the index": (
            [chunk_at(0, begin)],
            [chunk_at("0", {}) | stop, chunk_at(0.0, end)],
        ),
    }
    async with guarded(tmp_path, upstream, GUARD.format(action)) as proxy:
        for name, listed in documents.items():
            for choices in (1, 2):
                upstream.answer_with(stream({"id": "c", "choices": c} for c in listed))
                reply = await send(proxy, client, stream=True, n=choices)
                texts = shown_texts(chunks_of(reply.raw))
                leaks = [reading for reading, text in texts.items() if WORD in text]
                assert leaks == [], (name, reply.raw)
                [record] = await proxy.sink.wait()
                proxy.sink.forget()
                assert not record.is_internal_error
