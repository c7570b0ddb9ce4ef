"""Filtering of streamed frames: released texts and a valid order of events."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import getitem
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import GuardBlocked
from proxy.guards.stream.filter import MAX_STREAMS, StreamFilter
from proxy.types.events import (
    RESPONSE_END,
    Attach,
    Delta,
    Extension,
    FamilyName,
    Finish,
    Frame,
    PartEnd,
    PartStart,
    ResponseStart,
    ToolCall,
    Unmapped,
    UsageReport,
)
from proxy.types.guard import Action
from tests.checked import checked
from tests.guards.doubles import pieces, rule, tallies
from tests.guards.stream import frames as made

CUTS = st.lists(st.integers(0, 300), max_size=12)
TEXT = st.lists(
    st.sampled_from(["secret", "sec", "ret", "s e c r e t", " ", "ok", "é"]), max_size=8
).map("".join)
MASK = rule("secret", action="mask")
FLAG = rule("secret", action="flag")
BLOCK = rule("secret", action="block")


def fed(frames: Sequence[Frame], *rules: Any, sequenced: bool = False) -> list[Frame]:
    """Return what a filter releases of a whole stream. Checks the order of events."""
    frames = checked(frames, split=True, sequenced=sequenced)
    feeding = StreamFilter.for_rules(tallies(*rules))
    out = [safe for frame in frames for safe in feeding.feed(frame)]
    return checked(out, split=True, sequenced=sequenced)


@given(TEXT, TEXT, CUTS, CUTS)
def test_each_choice_is_masked_as_if_alone(
    one: str, two: str, cuts: list[int], others: list[int]
) -> None:
    parts = made.part(), made.part(choice=1)
    values = [
        made.text_frames(part, pieces(text, at))
        for part, text, at in zip(parts, (one, two), (cuts, others), strict=True)
    ]
    length = max(map(len, values))
    mixed = [item[index] for index in range(length) for item in values if index < len(item)]
    frames = [Frame((PartStart(part),), "chat") for part in parts]

    out = fed([made.START, *frames, *mixed, *map(made.finished, (0, 1)), made.STOPPED], MASK)

    for part, text in zip(parts, (one, two), strict=True):
        alone = made.part()
        expected = made.text_of(fed(made.whole((alone, [text])), MASK), alone)
        assert made.text_of(out, part) == expected
        assert "secret" not in expected


@given(TEXT.filter(lambda text: "s" not in text), CUTS)
def test_frames_without_findings_are_not_copied(text: str, cuts: list[int]) -> None:
    frames = made.whole((made.part(), pieces(text, cuts)))

    out = fed(frames, rule("not there at all, and a long one too"))

    assert len(out) == len(frames)
    assert all(a is b for a, b in zip(out, frames, strict=True))


def test_start_precedes_other_choices() -> None:
    parts = made.part(), made.part(choice=1)
    start = ResponseStart("c1", "m", 1)
    frames = [
        made.delta_frame(parts[0], "sec", start, PartStart(parts[0])),
        made.delta_frame(parts[1], "ok now, it is known", PartStart(parts[1])),
        *map(made.finished, (0, 1)),
        made.STOPPED,
    ]

    out = fed(frames, MASK)

    assert made.text_of(out, parts[0]) == "sec"
    assert out[0] is frames[0]


def test_long_text_is_released_before_its_end() -> None:
    part, text = made.part(), "it is all well known " * 5
    started = made.delta_frame(part, text, ResponseStart("c1", "m", 1), PartStart(part))
    feeding = StreamFilter.for_rules(tallies(MASK))

    [first_frame] = feeding.feed(started)
    remainder = [item for frame in (made.finished(), made.STOPPED) for item in feeding.feed(frame)]

    checked([first_frame, *remainder], split=True)
    assert len(made.text_of([first_frame], part)) == len(text) - len("secret")
    assert made.text_of([first_frame, *remainder], part) == text


def test_finding_across_blocks_is_masked_in_the_second() -> None:
    parts = [made.part(number=number, closing="marked") for number in range(2)]
    frames = made.message(made.block(parts[0], ["a sec"]), made.block(parts[1], ["ret, and on"]))

    out = fed(frames, MASK, sequenced=True)

    assert [made.text_of(out, part) for part in parts] == ["a sec", "[WORD], and on"]
    with pytest.raises(GuardBlocked):
        fed(frames, BLOCK, sequenced=True)


@pytest.mark.parametrize("path", [("delta", "odd", "inner"), ("delta", "parts", 0, "text")])
def test_member_without_a_type_is_inspected_across_frames(path: tuple[str | int, ...]) -> None:
    def at(text: str) -> Frame:
        value: Any = text
        for step in reversed(path):
            value = [{"index": 0, "text": text}] if step == 0 else {step: value}
            value = value if step != "text" else text
        return made.chat({**made.HEAD, "choices": [{"index": 0, **value}]}, Unmapped())

    out = fed([made.START, *map(at, ("a s", "ecr", "et.")), made.finished(), made.STOPPED], MASK)

    choices = [(frame.doc or {})["choices"][0] for frame in out[1:-2]]
    assert "".join(reduce(getitem, path, choice) for choice in choices) == "a [WORD]."


def test_frame_waits_for_all_of_its_texts() -> None:
    part = made.part()

    def both(text: str, odd: str) -> Frame:
        slot = ("choices", 0, "delta", "content")
        return made.chunk(0, {"content": text, "odd": odd}, Delta(part, text, slot), Unmapped())

    frames = [
        made.START,
        Frame((PartStart(part),), "chat"),
        both("a word. ", "a sec"),
        both("and now the sec", "ret. "),
        made.delta_frame(part, "ret."),
        made.finished(),
        made.STOPPED,
    ]

    out = fed(frames, MASK)

    assert made.text_of(out, part) == "a word. and now the [WORD]."
    odd = [frame.doc["choices"][0]["delta"].get("odd", "") for frame in out if frame.doc]
    assert "".join(odd) == "a [WORD]. "


@pytest.mark.parametrize("wrap", [lambda text: text, lambda text: {"x": text}, lambda text: [text]])
def test_unknown_deltas_are_inspected_across_frames(wrap: Any) -> None:
    deltas = [
        made.event(
            "content_block_delta",
            {"index": 0, "delta": {"type": "new_delta", "words": wrap(text)}},
            Unmapped(),
        )
        for text in ("a s", "ecr", "et.")
    ]

    out = fed(made.message(deltas), MASK)

    outputs = [frame.doc["delta"]["words"] for frame in out[1:-2] if frame.doc]
    assert outputs == [wrap("a [WORD]"), wrap(""), wrap(".")]


@pytest.mark.parametrize("family", ["messages", "responses"])
@pytest.mark.parametrize("wrap", [str, lambda text: {"deep": [text]}])
def test_texts_of_unknown_events_are_one_text(family: FamilyName, wrap: Any) -> None:
    def events(action: Action) -> list[Any]:
        frames = [
            Frame((Unmapped(),), family, {"type": "new", "note": wrap(text)})
            for text in ("a sec", "ret here", "so")
        ]
        outputs = fed([made.START, *frames, made.STOPPED], rule("secret", action=action))
        return [frame.doc["note"] for frame in outputs if frame.doc]

    assert events("mask") == [wrap("a sec"), wrap("[WORD] here"), wrap("so")]
    assert events("flag") == [wrap("a sec"), wrap("ret here"), wrap("so")]
    with pytest.raises(GuardBlocked):
        events("block")


def test_values_next_to_an_unknown_delta_pass_once() -> None:
    deltas = [
        made.event("content_block_delta", {"index": 0, "note": note, "delta": {}}, Unmapped())
        for note in ("a sec", "a sec", "ret")
    ]

    outputs = [frame.doc["note"] for frame in fed(made.message(deltas), MASK)[1:-2] if frame.doc]

    assert outputs == ["a sec", "a sec", ""]


def test_repeated_texts_are_inspected_once() -> None:
    work = tallies(FLAG)
    item = {"id": "i", "type": "message", "content": [{"type": "output_text", "text": "secret"}]}
    doc = {"type": "response.output_item.done", "item": {**item, "odd": "a secret"}}

    filtered = StreamFilter.for_rules(work)
    filtered.feed(made.native(doc, None, ("item", "content", 0, "text")))
    filtered.close()

    assert work[0].findings == {"word": 1}


def test_values_of_events_without_documents_are_masked() -> None:
    part = made.part("arguments", closing="marked")
    citation = {"title": "a secret", "url": "https://a.example"}
    frames = [
        Frame((ResponseStart("c", "m", 1),)),
        Frame((PartStart(part, ToolCall("a", "secret")),)),
        Frame((Attach(part, "citation", citation),)),
        Frame((Extension("detections", {"found": ["secret"]}),)),
        Frame((PartEnd(part),)),
        Frame((Finish(0, "stop"),)),
        Frame((RESPONSE_END,), last=True),
    ]

    out = fed(frames, MASK)

    assert "secret" not in str([frame.events for frame in out])
    assert out[2].events == (Attach(part, "citation", {**citation, "title": "a [WORD]"}),)


def test_texts_beyond_the_bound_fail_closed_and_are_not_stored() -> None:
    blocking, flagging = (StreamFilter.for_rules(tallies(each)) for each in (BLOCK, FLAG))
    frames = [
        made.delta_frame(made.part("arguments", number, closing="json"), "{")
        for number in range(2 * MAX_STREAMS)
    ]

    with pytest.raises(GuardBlocked):
        for frame in frames[: MAX_STREAMS + 1]:
            blocking.feed(frame)
    for frame in frames:
        assert flagging.feed(frame) == [frame]


def test_rules_apply_to_their_kinds_only() -> None:
    narrow = rule("secret", action="mask", fields=frozenset({"arguments"}))
    text, arguments = made.part(), made.part("arguments", closing="json")

    out = fed(made.whole((text, ["a secret"]), (arguments, ['"secret"'])), narrow)

    assert made.text_of(out, text) == "a secret"
    assert made.text_of(out, arguments) == '"[WORD]"'


def test_inspected_texts_are_counted() -> None:
    work = tallies(MASK)
    feeding = StreamFilter.for_rules(work)
    for frame in made.whole((made.part(), ["a s", "ec", "ret"]), (made.part(choice=1), ["ok"])):
        feeding.feed(frame)

    result = work[0].to_result()
    assert (result.verdict, result.findings) == ("masked", {"word": 1})
    assert (result.bytes, result.fields) == (10, 2)


def test_frames_without_text_overtake_a_held_text() -> None:
    part = made.part()
    feeding = StreamFilter.for_rules(tallies(MASK))
    feeding.feed(made.START)
    assert feeding.feed(made.delta_frame(part, "a sec")) == []
    usage = Frame((UsageReport(None, {"total_tokens": 1}),), "chat", {"usage": {}})
    alive = Frame(())

    assert [*feeding.feed(usage), *feeding.feed(alive)] == [usage, alive]


def test_alternating_parts_share_a_filter() -> None:
    text, thought = made.part(closing="marked"), made.part("reasoning", closing="marked")
    feeding = StreamFilter.for_rules(tallies(MASK))
    for number in range(4 * MAX_STREAMS):
        for kind in (text.kind, thought.kind):
            for frame in made.block(made.part(kind, number, closing="marked"), ["a"]):
                feeding.feed(frame)

    assert not feeding.close()
