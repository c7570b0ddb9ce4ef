"""Order of events that `tests.checked` accepts and rejects."""

from __future__ import annotations

import pytest

from proxy.money.usage import Tokens
from proxy.types.events import (
    STOP,
    Begin,
    Delta,
    End,
    Event,
    Finish,
    Frame,
    Part,
    Start,
    UsageReport,
)
from tests.checked import checked

START = Start("id", "model", None)
TEXT, CALL = Part("text", 0), Part("arguments", 1)
ITEM = Part("item", 0)
CHILD = Part("text", 0, parent=ITEM)
SOFT = Part("text", 0, closing="implicit")
USAGE = UsageReport(Tokens(1), {})


def test_valid_order_is_accepted() -> None:
    events: list[Event] = [START, Begin(ITEM), Begin(CHILD), Delta(CHILD, "a"), End(CHILD)]
    events += [End(ITEM), Begin(SOFT), Delta(SOFT, "b"), USAGE, Finish(0, "stop"), STOP]
    frames = [Frame((event,)) for event in events]

    assert checked(frames, split=True, sequenced=True) == frames


@pytest.mark.parametrize(
    ("events", "rule"),
    [
        ([Begin(TEXT)], "Begin before Start"),
        ([USAGE], "UsageReport before Start"),
        ([START, START], "second Start"),
        ([START, Delta(TEXT, "a")], "not open"),
        ([START, Begin(TEXT), Begin(TEXT)], "second Begin"),
        ([START, Begin(CHILD)], "parent is not open"),
        ([START, Begin(ITEM), Begin(CHILD), End(ITEM)], "child is open"),
        ([START, Begin(TEXT), End(TEXT), Delta(TEXT, "a")], "not open"),
        ([START, Begin(TEXT), Finish(0, "stop")], "marked part is open"),
        ([START, Finish(0, "stop"), Finish(0, "stop")], "second Finish"),
        ([START, Finish(0, "stop"), Begin(TEXT)], "Begin after Finish"),
        ([START, Begin(SOFT), STOP], "Stop before Finish"),
        ([START, STOP, USAGE], "after Stop"),
    ],
)
def test_invalid_order_is_rejected(events: list[Event], rule: str) -> None:
    with pytest.raises(AssertionError, match=rule):
        checked([Frame((event,)) for event in events])


def test_frames_of_split_streams_have_one_delta() -> None:
    texts = Begin(TEXT), Delta(TEXT, "a"), Delta(TEXT, "b")
    with pytest.raises(AssertionError, match="two deltas"):
        checked([Frame((START, *texts))], split=True)
    with pytest.raises(AssertionError, match="beside an end"):
        checked([Frame((START, Begin(TEXT), Delta(TEXT, "a"), End(TEXT)))], split=True)


def test_parts_of_a_sequenced_stream_do_not_overlap() -> None:
    with pytest.raises(AssertionError, match="two parts are open"):
        checked([Frame((START, Begin(TEXT), Begin(CALL)))], sequenced=True)
