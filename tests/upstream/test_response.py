"""A preamble ends with the first content, or after 16 frames."""

from __future__ import annotations

from proxy.types.events import (
    STOP,
    Begin,
    Delta,
    Event,
    Fault,
    Finish,
    Frame,
    Native,
    Part,
    Start,
    ToolCall,
    UsageReport,
)
from proxy.upstream.attempt import remaining_rate_limit
from proxy.upstream.response import MAX_PREAMBLE_FRAMES, is_preamble
from tests.for_each import for_each

TEXT, CALL = Part("text", 0), Part("arguments", 1)
ROLE = Frame((Start("id", "model", None), Begin(TEXT), Delta(TEXT, "")))


@for_each(
    "events",
    [
        (),
        (Start("id", "model", None),),
        (Begin(CALL, ToolCall("1", "f")), Delta(CALL, "")),
        (UsageReport(None, {}),),
    ],
)
def test_announcements_are_a_preamble(events: tuple[Event, ...]) -> None:
    assert is_preamble([ROLE, Frame(events)])


@for_each(
    "event",
    [
        Delta(TEXT, "Paris"),
        Delta(Part("reasoning", 1), "Hm"),
        Begin(Part("opaque", 1)),
        Finish(0, "stop"),
        Fault("message", "code"),
        STOP,
    ],
)
def test_content_ends_a_preamble(event: Event) -> None:
    assert not is_preamble([ROLE, Frame((event,))])


def test_a_preamble_is_bounded() -> None:
    assert is_preamble([ROLE] * MAX_PREAMBLE_FRAMES)
    assert not is_preamble([ROLE] * (MAX_PREAMBLE_FRAMES + 1))
    assert not is_preamble([ROLE, Frame((), size=1)])


def test_bytes_that_are_not_read_are_content() -> None:
    assert not is_preamble([Frame((Native(),), raw=b"a")])


def test_what_is_left_is_read() -> None:
    body = {"x-ratelimit-remaining-requests": "59", "x-ratelimit-remaining-tokens": "149984"}

    assert remaining_rate_limit(body) == {"requests": 59, "tokens": 149984}


@for_each("text", ["", "-1", "1e9", "59, 60", "٣", "9" * 400, "none"])
def test_what_is_no_plain_number_is_not_known(text: str) -> None:
    assert remaining_rate_limit({"x-ratelimit-remaining-requests": text}) == {}
