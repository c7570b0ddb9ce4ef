"""Preambles, rate limits and bills of responses."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace as Some
from typing import Any

import pytest

from proxy.call.attempts import Attempt
from proxy.dialects.document import document_frame
from proxy.dialects.responses.sealing import ResponseIds
from proxy.types import StateRef
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
from proxy.upstream.background_billing import BackgroundBilling, has_bill
from proxy.upstream.response import MAX_PREAMBLE_FRAMES, is_preamble
from tests.doubles import Json, response
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


def background_response(status: str = "completed", **fields: Any) -> Json:
    return response(status=status, background=True, **fields)


GET, CANCEL, DELETE, ITEMS = (
    ("GET", ""),
    ("POST", "/cancel"),
    ("DELETE", ""),
    ("GET", "/input_items"),
)


@for_each(
    ("document", "billed"),
    [
        ({"status": "queued", "usage": {"input_tokens": 5}}, False),
        ({"status": "in_progress"}, False),
        ({"status": "completed"}, True),
        ({"status": "incomplete"}, True),
        ({"status": "failed"}, False),
        ({"status": "failed", "usage": {"input_tokens": 5}}, True),
        ({"status": "cancelled", "usage": None}, False),
        ({"status": "of a later time", "usage": {"input_tokens": 5}}, True),
        ({"status": ["completed"]}, False),
        ({}, False),
    ],
)
def test_what_has_a_bill(document: Json, billed: bool) -> None:
    assert has_bill(document) is billed


@dataclass
class Slow:
    """A store that hears whoever asks, and answers once it may."""

    owners: dict[str, str] = field(default_factory=dict)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)

    async def bill_once(self, name: str, owner: str) -> bool:
        is_first_one = self.owners.setdefault(name, owner) == owner
        self.asked.set()
        await self.may_answer.wait()
        return is_first_one


@for_each("twice", [False, True], ids=["once", "twice"])
@for_each("other_flag", [False, True], ids=["first", "second"])
async def test_disconnect_during_billing_loses_no_bill(other_flag: bool, twice: bool) -> None:
    target: Any = Some(upstream=Some(name="openai"))
    attempt = Attempt(target, model_call=0, span_id="s1", started=0.0)
    call = Some(head=Some(endpoint="stored"), state_ref=StateRef("resp_sealed", "d", "t", "resp_1"))
    request: Any = Some(call=call, target=target, attempt=attempt, record=Some(now=lambda: 1.0))
    frame = document_frame({**background_response(), "id": "resp_sealed"})
    store = Slow()
    billing = BackgroundBilling(store, ResponseIds(()))
    if other_flag:
        store.may_answer.set()
        value_before: Any = Some(**{**vars(request), "attempt": Attempt(target, 0, "s0", 0.0)})
        await billing.settle(value_before, [frame])
        store.may_answer.clear()
        store.asked.clear()

    asking = asyncio.ensure_future(billing.settle(request, [frame]))
    await store.asked.wait()
    asking.cancel()
    if twice:
        await asyncio.sleep(0)
        attempt.bill = Some(cost=1)  # type: ignore[assignment]  # as somebody asks meanwhile
        asking.cancel()
    store.may_answer.set()
    with pytest.raises(asyncio.CancelledError):
        await asking

    is_billed = twice or not other_flag  # in doubt nothing is lost
    assert (attempt.is_billed, attempt.bill) == (is_billed, None)
    assert (attempt.meter.reported is not None) is is_billed
