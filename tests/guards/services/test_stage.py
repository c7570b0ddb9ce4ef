"""Guard services inspect whole texts, after all other guards."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.call.record import Record, new_record
from proxy.errors import GuardBlocked
from proxy.guards.engine import Engine
from proxy.guards.run import PolicyGuards
from proxy.ports import OutputGuards
from proxy.types import Call, Json, Plan, RequestHead, ResponseHead
from proxy.types.events import Frame
from proxy.types.guard import (
    Finding,
    GuardClient,
    GuardPlan,
    GuardResult,
    GuardRule,
    PromptContext,
    ServiceText,
)
from tests.for_each import for_each
from tests.guards.doubles import SlowService, Ticks, Words, pieces, rule
from tests.guards.stream import frames as made

HEAD = RequestHead("openai", "chat", "/v1/chat/completions", "req_1")
BITS = ["secret", "sec", "ret", " ", "s e c r e t", "pin", "p", "é", "\u200b", "ok "]
TEXT = st.lists(st.sampled_from(BITS), max_size=8).map("".join)
CUTS = st.lists(st.integers(0, 200), max_size=8)


def asking(body: Json, *, stream: bool = False) -> Call:
    return Call(HEAD, body, ("smol",), stream=stream)


def plan(*rules: GuardRule) -> Plan:
    return Plan("1", "k", "support-chat", {}, (), guards=GuardPlan(rules, rules))


def guards() -> PolicyGuards:
    return PolicyGuards(Engine(Ticks()))


def service(**keys: Any) -> GuardRule:
    return GuardRule("service", keys.pop("way", None) or SlowService(), cased=True, **keys)


def chunk(delta: Json, index: int = 0) -> Json:
    return {"choices": [{"index": index, "delta": delta, "finish_reason": None}]}


def tool_call(text: str) -> Json:
    return {"tool_calls": [{"index": 0, "function": {"arguments": text}}]}


END: Json = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


async def inspected(record: Record, body: Json, *rules: GuardRule) -> Json:
    _, safe = await guards().build_call_guards(plan(*rules), asking(body), record).inspect()
    return safe.body


def output_guards(
    rules: Sequence[GuardRule], record: Record, *, stream: bool = False
) -> OutputGuards:
    call = asking({"prompt": "Hi"}, stream=stream)
    return (
        guards()
        .build_call_guards(plan(*rules), call, record)
        .build_output_guards(call, ResponseHead(streamed=call.stream))
    )


async def streamed(
    rules: Sequence[GuardRule], chunks: Sequence[Json]
) -> tuple[list[list[Frame]], str | None, list[GuardResult]]:
    """Return what each frame released, what blocked, and what is on record."""
    record = new_record()
    watch = output_guards(rules, record, stream=True)
    out: list[list[Frame]] = []
    blocked = None
    try:
        for frame in made.read(*chunks):
            out += [list(await watch.inspect(frame))]
    except GuardBlocked as error:
        blocked = f"{error.guard} {error.kind}"
    return out, blocked, [result for _, result in record.list_guard_results()]


def text_of(out: Sequence[Sequence[Frame]], index: int = 0) -> tuple[str, str]:
    """Join the released content and tool arguments of a choice."""
    content = arguments = ""
    for document in made.documents([frame for released in out for frame in released]):
        for choice in document["choices"]:
            if choice["index"] == index:
                content += choice["delta"].get("content") or ""
                for call in choice["delta"].get("tool_calls") or ():
                    arguments += call["function"]["arguments"]
    return content, arguments


async def test_service_gets_kinds_roles_and_question() -> None:
    way = SlowService()
    body = {"messages": [{"role": "user", "content": "Hi"}], "prompt": "Hi"}
    await inspected(new_record(), body, service(way=way, roles=frozenset({"user"})))

    [pieces] = way.asked
    assert [(piece.text, piece.kind, piece.role) for piece in pieces] == [
        ("Hi", "content", "user"),
        ("Hi", "prompt", "user"),
    ]
    assert way.questions == [PromptContext(user_message="Hi")]


async def test_service_gets_decoded_text_of_a_file() -> None:
    way = SlowService()
    url = "data:text/plain;base64," + base64.b64encode(b"a text").decode()
    body = {"messages": [{"role": "user", "content": [{"image_url": {"url": url}}]}]}

    await inspected(new_record(), body, service(way=way, action="flag"))

    assert [piece.text for piece in way.asked[0]] == ["a text"]


async def test_masked_text_is_not_sent_to_services() -> None:
    way = SlowService()
    body = {"prompt": "a secret pin"}
    rules = (service(way=way, action="flag"), rule("secret", action="mask"))

    await inspected(new_record(), body, *rules)

    assert [piece.text for piece in way.asked[0]] == ["a [WORD] pin"]
    assert way.questions[0].user_message == "a [WORD] pin"


async def test_service_is_not_called_for_a_blocked_call() -> None:
    way, record = SlowService(), new_record()

    with pytest.raises(GuardBlocked):
        await inspected(record, {"prompt": "hippo"}, service(way=way), rule("hippo"))

    assert way.asked == []
    verdicts = {result.guard: result.verdict for _, result in record.list_guard_results()}
    assert verdicts == {"words": "blocked", "service": "not_applicable"}


@dataclass(slots=True)
class ScriptedService:
    """Responds as ``script`` does, which gets the texts and the guard client."""

    script: Callable[[Sequence[ServiceText], GuardClient], Awaitable[Any]]

    async def find_all(
        self, texts: Sequence[ServiceText], prompt: PromptContext, client: GuardClient
    ) -> Sequence[Sequence[Finding]]:
        return await self.script(texts, client)  # type: ignore[no-any-return]  # also wrong types


async def test_services_are_called_concurrently() -> None:
    both, record = asyncio.Barrier(2), new_record()

    async def wait_for_both(texts: Sequence[ServiceText], client: GuardClient) -> Any:
        await both.wait()
        return [() for _ in texts]

    rules = [service(way=ScriptedService(wait_for_both)) for _ in range(2)]
    await inspected(record, {"prompt": "Hi"}, *rules)

    assert [result.verdict for _, result in record.list_guard_results()] == ["passed", "passed"]


def returning(answer: Any) -> ScriptedService:
    async def respond(texts: Sequence[ServiceText], client: GuardClient) -> Any:
        return answer

    return ScriptedService(respond)


async def divide_by_zero(texts: Sequence[ServiceText], client: GuardClient) -> Any:
    return 1 // 0


async def hang(texts: Sequence[ServiceText], client: GuardClient) -> Any:
    await asyncio.Event().wait()


WRONG = {
    "ZeroDivisionError": ScriptedService(divide_by_zero),
    "OSError": ScriptedService(lambda texts, client: client.post("http://localhost", {}, b"")),
    "deadline": ScriptedService(hang),
    "MismatchedAnswer": returning([]),
    "MismatchedAnswer places": returning([[Finding(0, 99, "x")]]),
    "TypeError": returning(None),
}


@for_each("name", WRONG)
@for_each("stream", [False, True])
@for_each(
    ("keys", "stops"),
    [
        ({}, True),
        ({"on_error": "open"}, False),
        ({"shadow": True}, False),
        ({"action": "flag"}, False),
    ],
)
async def test_failed_service_blocks_if_it_enforces(
    name: str, stream: bool, keys: dict[str, Any], stops: bool
) -> None:
    rules = [service(way=WRONG[name], deadline_s=0.01, **keys)]
    if stream:
        out, blocked, results = await streamed(rules, [chunk({"content": "a secret"}), END])
        assert text_of(out)[0] == ("" if stops else "a secret")
    else:
        record, blocked = new_record(), None
        try:
            await inspected(record, {"prompt": "a secret"}, *rules)
        except GuardBlocked as stopped:
            blocked = f"{stopped.guard} {stopped.kind}"
        results = [result for _, result in record.list_guard_results()]

    assert blocked == ("service could_not_check" if stops else None)
    error, *_ = name.split()
    assert [(outcome.verdict, outcome.error) for outcome in results] == [("failed", error)]


RULES: list[Callable[[], tuple[GuardRule, ...]]] = [
    lambda: (service(action="mask"),),
    lambda: (service(),),
    lambda: (service(action="flag"),),
    lambda: (service(action="mask", shadow=True), rule("pin", action="mask")),
    lambda: (service(action="mask"), rule("pin", action="mask"), rule("é", action="flag")),
    lambda: (
        service(action="flag"),
        service(way=SlowService(Words(("pin", "secret"), kind="x")), action="mask"),
    ),
]


@settings(deadline=None)
@given(TEXT, TEXT, CUTS, CUTS, st.sampled_from(RULES))
async def test_any_cut_gives_the_same_result(
    content: str,
    value: str,
    cuts: list[int],
    others: list[int],
    make: Callable[[], tuple[GuardRule, ...]],
) -> None:
    rules = make()
    arguments = f'{{"a": "{value}", "n": 17}}'
    chunks = [chunk({"content": content}), chunk(tool_call(arguments)), END]
    expected = await streamed(rules, chunks)

    for parts, argument_parts in (
        (pieces(content, cuts), pieces(arguments, others)),
        (content, arguments),
    ):
        chunks = [chunk({"content": part}) for part in parts]
        chunks += [chunk(tool_call(part)) for part in argument_parts]
        cut = await streamed(rules, [*chunks, END])

        assert cut[1:] == expected[1:]
        assert text_of(cut[0]) == text_of(expected[0])


@given(TEXT, CUTS)
async def test_stream_is_masked_as_the_whole_text(text: str, cuts: list[int]) -> None:
    record = new_record()
    rules = (service(action="mask"), rule("pin", action="mask"))
    watch = output_guards(rules, record)
    response = {"choices": [{"index": 0, "message": {"content": text}}]}
    [frame] = await watch.inspect(made.whole_answer(response))

    chunks = [chunk({"content": part}) for part in pieces(text, cuts)]
    out, _, results = await streamed(rules, [*chunks, END])

    assert frame.doc is not None
    assert text_of(out)[0] == frame.doc["choices"][0]["message"]["content"]
    assert results == [result for _, result in record.list_guard_results()]


async def test_service_is_not_called_for_a_broken_stream() -> None:
    way = SlowService()
    record = new_record()
    watch = output_guards([service(way=way, action="flag")], record, stream=True)
    [first_frame, _] = made.read(chunk({"content": "a sec"}))
    await watch.inspect(first_frame)

    results = [result for _, result in record.list_guard_results()]
    assert way.asked == []
    assert [outcome.verdict for outcome in results] == ["not_applicable"]


CUT: dict[str, list[Json]] = {
    "at a finish": [
        {"delta": {"content": "a sec"}, "finish_reason": "stop"},
        {"delta": {"content": "ret"}},
    ],
    "between parts": [
        {"delta": {"content": [{"type": "text", "text": part} for part in ("a sec", "ret")]}}
    ],
}


@for_each("place", CUT)
@for_each("action", ["block", "mask", "flag"])
async def test_no_cut_hides_a_word_from_a_service(place: str, action: str) -> None:
    way = SlowService()
    chunks = [{"choices": [{"index": 0, **choice}]} for choice in CUT[place]]

    out, _, [result] = await streamed([service(way=way, action=action)], [*chunks, END])

    sent_text = json.dumps([frame.doc for released in out for frame in released])
    assert "ret" not in sent_text or action == "flag"
    if action == "flag":
        assert result.findings == {"word": 1}
        assert [frame.text for frame in way.asked[0]] == ["a secret"]


async def test_all_services_get_the_released_text() -> None:
    chunks = [{"choices": [{"index": 0, **choice}]} for choice in CUT["at a finish"]]
    ways = SlowService(), SlowService()
    rules = [service(way=ways[0], action="mask"), service(way=ways[1], action="flag")]

    _, _, results = await streamed(rules, [*chunks, END])

    assert [[piece.text for piece in way.asked[0]] for way in ways] == [["a sec"]] * 2
    assert [result.verdict for result in results] == ["passed"] * 2


@pytest.mark.parametrize("stream", [False, True])
async def test_opaque_response_is_not_passed(stream: bool) -> None:
    record = new_record()
    watch = output_guards([service(action="flag")], record, stream=stream)
    members: Json = {"content": "all is well", "audio": {"data": "AAAA"}}
    choice = {"index": 0, ("delta" if stream else "message"): members}

    doc = {"choices": [choice]}
    for frame in made.read(doc) if stream else [made.whole_answer(doc)]:
        await watch.inspect(frame)

    [(_, result)] = record.list_guard_results()
    assert result.verdict == "not_applicable"
