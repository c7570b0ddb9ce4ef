"""Order of events that `tests.checked` accepts and rejects."""

from __future__ import annotations

import pytest

from proxy.money.usage import Tokens
from proxy.types.events import (
    RESPONSE_END,
    Delta,
    Event,
    Finish,
    Frame,
    Part,
    PartEnd,
    PartStart,
    ResponseStart,
    UsageReport,
)
from tests.checked import checked

START = ResponseStart("id", "model", None)
TEXT, CALL = Part("text", 0), Part("arguments", 1)
ITEM = Part("item", 0)
CHILD = Part("text", 0, parent=ITEM)
SOFT = Part("text", 0, closing="implicit")
USAGE = UsageReport(Tokens(1), {})


def test_valid_order_is_accepted() -> None:
    events: list[Event] = [
        START,
        PartStart(ITEM),
        PartStart(CHILD),
        Delta(CHILD, "a"),
        PartEnd(CHILD),
    ]
    events += [
        PartEnd(ITEM),
        PartStart(SOFT),
        Delta(SOFT, "b"),
        USAGE,
        Finish(0, "stop"),
        RESPONSE_END,
    ]
    frames = [Frame((event,)) for event in events]

    assert checked(frames, split=True, sequenced=True) == frames


@pytest.mark.parametrize(
    ("events", "rule"),
    [
        ([PartStart(TEXT)], "PartStart before ResponseStart"),
        ([USAGE], "UsageReport before ResponseStart"),
        ([START, START], "second ResponseStart"),
        ([START, Delta(TEXT, "a")], "not open"),
        ([START, PartStart(TEXT), PartStart(TEXT)], "second PartStart"),
        ([START, PartStart(CHILD)], "parent is not open"),
        ([START, PartStart(ITEM), PartStart(CHILD), PartEnd(ITEM)], "child is open"),
        ([START, PartStart(TEXT), PartEnd(TEXT), Delta(TEXT, "a")], "not open"),
        ([START, PartStart(TEXT), Finish(0, "stop")], "marked part is open"),
        ([START, Finish(0, "stop"), Finish(0, "stop")], "second Finish"),
        ([START, Finish(0, "stop"), PartStart(TEXT)], "PartStart after Finish"),
        ([START, PartStart(SOFT), RESPONSE_END], "ResponseEnd before Finish"),
        ([START, RESPONSE_END, USAGE], "after ResponseEnd"),
    ],
)
def test_invalid_order_is_rejected(events: list[Event], rule: str) -> None:
    with pytest.raises(AssertionError, match=rule):
        checked([Frame((event,)) for event in events])


def test_frames_of_split_streams_have_one_delta() -> None:
    texts = PartStart(TEXT), Delta(TEXT, "a"), Delta(TEXT, "b")
    with pytest.raises(AssertionError, match="two deltas"):
        checked([Frame((START, *texts))], split=True)
    with pytest.raises(AssertionError, match="beside an end"):
        checked([Frame((START, PartStart(TEXT), Delta(TEXT, "a"), PartEnd(TEXT)))], split=True)


def test_parts_of_a_sequenced_stream_do_not_overlap() -> None:
    with pytest.raises(AssertionError, match="two parts are open"):
        checked([Frame((START, PartStart(TEXT), PartStart(CALL)))], sequenced=True)
