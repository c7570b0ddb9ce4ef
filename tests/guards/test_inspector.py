"""Output guards on whole responses, and restored values."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial

import orjson
import pytest

from proxy.call.record import Record, TraceIds
from proxy.guards.engine import Engine
from proxy.guards.inspector import replace_document, restore_masked_values
from proxy.guards.kinds.keywords import Keywords
from proxy.guards.run import PolicyGuards
from proxy.guards.stream.placeholders import Masks
from proxy.guards.text.documents import collect_texts, walk_response_document
from proxy.ports import OutputGuards
from proxy.types import Json, Plan, ResponseHead
from proxy.types.events import Delta, FamilyName, Fault, Frame
from proxy.types.guard import GuardPlan, GuardRule
from tests.doubles import message, response, text_item
from tests.golden.pipeline import call_of
from tests.guards.doubles import SlowService, Ticks, rule, short_digests
from tests.guards.services.test_stage import service
from tests.guards.stream import frames as made

WHOLE_WORDS = GuardRule("words", Keywords("word", ["secret"]), "mask")


def guarding(client: str, *rules: GuardRule) -> tuple[OutputGuards, Record]:
    """Return the output guards of a call that is not streamed."""
    call = call_of(client, stream=False)
    record = Record(TraceIds("a" * 32, "b" * 16, "c" * 16), 0.0, datetime.now(UTC), Ticks())
    plan = Plan("1", "k", "d", {}, (), guards=GuardPlan((), rules))
    gate = PolicyGuards(Engine(Ticks())).build_call_guards(plan, call, record)
    return gate.build_output_guards(call, ResponseHead(streamed=False)), record


FUNCTION = {"name": "f", "arguments": '{"a": "secret"}'}
TOOL = {"id": "call_1", "type": "function", "function": FUNCTION}
CHAT: Json = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "a secret", "tool_calls": [TOOL]},
            "finish_reason": "tool_calls",
        }
    ],
}
MESSAGE: Json = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "a sec"}, {"type": "text", "text": "ret"},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"a": "secret"}}],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 1, "output_tokens": 1},
}  # fmt: skip
DOCUMENTS: dict[FamilyName, Json] = {"chat": CHAT, "messages": MESSAGE}


def whole(family: FamilyName, document: Json | None = None) -> Frame:
    return made.whole_answer(document or DOCUMENTS[family], family)


def released_texts(frame: Frame) -> list[str]:
    return [event.text for event in frame.events if isinstance(event, Delta) and event.text]


SPLIT: dict[FamilyName, Json] = {
    "messages": message(
        {"type": "thinking", "thinking": "one se", "signature": "s"},
        {"type": "text", "text": "a se"},
        {"type": "tool_use", "id": "t", "name": "f", "input": {}},
        {"type": "thinking", "thinking": "cret two", "signature": "s"},
        {"type": "text", "text": "cret b"},
    ),
    "responses": response(
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "one se"}]},
        text_item("a se", "m1"),
        {"type": "reasoning", "id": "s", "summary": [{"type": "summary_text", "text": "cret two"}]},
        text_item("cret b", "m2"),
    ),
}


@pytest.mark.parametrize("judges", [False, True], ids=["places", "whole"])
@pytest.mark.parametrize("family", SPLIT)
async def test_texts_of_one_kind_are_joined(family: FamilyName, judges: bool) -> None:
    watch, record = guarding(family, rule("secret", action="mask", unbounded=judges))

    [safe] = await watch.inspect(whole(family, SPLIT[family]))

    assert isinstance(safe, Frame)
    texts = [text for text in released_texts(safe) if text != "{}"]
    assert texts == ["one [WORD]", "a [WORD]", "[WORD] two", "[WORD] b"]
    [(_, result)] = record.list_guard_results()
    assert result.findings == {"word": 2}


@pytest.mark.parametrize("family", ["messages", "responses"])
async def test_words_at_the_ends_of_texts_are_found(family: FamilyName) -> None:
    """Joined with adjacent texts, the word would be part of a longer one."""
    documents = {
        "messages": message(*[{"type": "text", "text": item} for item in ("ab", "secret", "cd")]),
        "responses": response(text_item("ab"), text_item("secret", "m2"), text_item("cd", "m3")),
    }
    watch, _ = guarding(family, WHOLE_WORDS)

    [safe] = await watch.inspect(whole(family, documents[family]))

    assert released_texts(safe) == ["ab", "[WORD]", "cd"]


@pytest.mark.parametrize("size", [10, 40_000])
async def test_words_split_over_long_texts_are_found(size: int) -> None:
    parts = "x" * size + " sec", "ret " + "y" * size
    watch, _ = guarding("responses", rule("secret", action="mask"))
    document = response(text_item(parts[0]), text_item(parts[1], "m2"))

    [safe] = await watch.inspect(whole("responses", document))

    assert "ret" not in "".join(released_texts(safe)).replace("[WORD]", "")


@pytest.mark.parametrize("family", SPLIT)
async def test_service_gets_one_text_per_kind(family: FamilyName) -> None:
    way = SlowService()
    watch, record = guarding(family, service(way=way, action="mask"))

    [safe] = await watch.inspect(whole(family, SPLIT[family]))

    assert isinstance(safe, Frame)
    assert "cret" not in "".join(released_texts(safe))
    assert {"one secret two", "a secret b"} <= {piece.text for piece in way.asked[0]}
    [(_, result)] = record.list_guard_results()
    assert result.findings == {"word": 2}


@pytest.mark.parametrize("family", DOCUMENTS)
def test_values_are_restored(family: FamilyName) -> None:
    masks = Masks(short_digests())
    masks.make_placeholder("word", "secret")
    name = masks.make_placeholder("word", "secret")
    document = orjson.loads(orjson.dumps(DOCUMENTS[family]).replace(b"secret", name.encode()))

    frame = restore_masked_values(whole(family, document), masks, call_of(family, stream=False))

    assert frame.doc == DOCUMENTS[family]
    assert released_texts(frame) == released_texts(whole(family))


FAILED = Frame((Fault("Overloaded.", "overloaded"),), model_call=1)


async def test_failed_response_passes() -> None:
    watch, _ = guarding("chat", rule("secret"))
    masks = Masks(short_digests())

    assert watch.try_inspect(FAILED) is None
    assert await watch.inspect(FAILED) == [FAILED]
    assert restore_masked_values(FAILED, masks, call_of("chat", stream=False)) is FAILED


async def test_response_without_document_is_blocked() -> None:
    watch, _ = guarding("chat", rule("secret"))
    frame = whole("chat")._replace(doc=None, raw=None)

    with pytest.raises(ValueError, match="'chat' has no document"):
        await watch.inspect(frame)
    with pytest.raises(ValueError, match="'chat' has no document"):
        restore_masked_values(frame, Masks(short_digests()), call_of("chat", stream=False))


def test_document_keeps_the_index_of_its_response() -> None:
    frame = whole("chat")._replace(model_call=3, size=9)

    changed = replace_document(frame, CHAT, call_of("chat", stream=False))

    assert (changed.model_call, changed.size, changed.last) == (3, 9, True)


@pytest.mark.parametrize("family", DOCUMENTS)
async def test_every_family_is_read_in_time_slices(family: FamilyName) -> None:
    document = DOCUMENTS[family]
    walk = partial(walk_response_document, family=family, is_event=False)

    texts = await Engine(Ticks()).read_texts(walk, document, 0)

    assert texts == collect_texts(walk(document))
