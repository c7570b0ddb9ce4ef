"""Searches for interrupted responses that are billed for fewer or more tokens than were used."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import ClientSession

from proxy.call.record import Record, new_record
from proxy.limits.claims import estimate_hidden_output
from proxy.policy.review.sample_call import build_sample_call
from proxy.types import Call, ModelCall, Plan, Target, Upstream
from proxy.types.events import Delta, Frame, Part
from tests.conftest import policies_for, running_proxy
from tests.doubles import (
    Json,
    Script,
    ScriptedUpstream,
    chat_events,
    item_events,
    message_events,
    response_events,
    stream,
    text_events,
    text_item,
)
from tests.for_each import for_each
from tests.limits.sample_limits import estimate_tokens
from tests.test_pipeline import BEARER

RECEIVED_AT = datetime(2026, 1, 1, tzinfo=UTC)
HI = [{"role": "user", "content": "Hi"}]
SENT_AT = 100.0
LIMIT = 32_000  # the bound that Claude Code sends


@dataclass(frozen=True)
class Api:
    """An API of clients and upstreams. ``thinking`` are fields that make a model think."""

    path: str
    body: dict[str, Any]
    bound: str
    thinking: tuple[dict[str, Any], ...]
    dialect: str = "openai"
    endpoint: Any = None
    choices: tuple[dict[str, Any], ...] = ()

    @property
    def target(self) -> Target:
        upstream = Upstream("up", self.dialect, "http://127.0.0.1:9")
        return Target(upstream, "m", self.endpoint)

    def call(self, **options: Any) -> Call:
        return build_sample_call(
            {"model": "m", **self.body, self.bound: LIMIT, **options}, {}, RECEIVED_AT, self.path
        )


SEVERAL = ({"n": 5}, {"n": 2, "best_of": 5})
APIS = {
    "legacy": Api(
        "/v1/completions",
        {"prompt": "Hi"},
        "max_tokens",
        ({"reasoning_effort": "high"},),
        endpoint="completions",
        choices=(*SEVERAL, {"prompt": ["Hi"] * 5}),
    ),
    "chat": Api("/v1/chat/completions", {"messages": HI}, "max_completion_tokens",
        ({"reasoning_effort": "high"},), endpoint="chat", choices=SEVERAL[:1]),
    "messages": Api("/v1/messages", {"messages": HI}, "max_tokens",
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}},), dialect="anthropic"),
    "responses": Api("/v1/responses", {"input": "Hi"}, "max_output_tokens",
        ({"reasoning": {"effort": "high"}},), endpoint="responses"),
}  # fmt: skip
ENDS = (
    "cancelled", "guard_blocked", "request_timeout", "upstream_broke_off", "upstream_total_timeout",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """An interrupted response. Times are in seconds from the request."""

    output_tokens: int
    """The billed tokens."""
    ended_after: float
    thoughts: int = 0
    """Received tokens of thoughts."""
    text: int = 0
    """Received tokens of text."""
    text_after: float = 0.0


THINKING_STREAM = (
    Case(0, ended_after=0.0),
    Case(13, ended_after=0.25),
    Case(1000, ended_after=20),
    Case(LIMIT, ended_after=10_000),
    Case(101, text=1, text_after=2, ended_after=2.25),
    Case(101, text=1, text_after=2, ended_after=600),  # nothing is hidden after the first text
    Case(400, thoughts=400, ended_after=2),
    Case(500, thoughts=400, ended_after=10),  # summarized thoughts
    Case(410, thoughts=400, text=10, text_after=2, ended_after=9),
    Case(LIMIT, text=9, text_after=10_000, ended_after=10_001),
    Case(LIMIT + 9, text=LIMIT + 9, text_after=1, ended_after=2),  # received tokens count
)
PLAIN_STREAM = (
    Case(0, ended_after=20),
    Case(10, text=10, text_after=2, ended_after=20),
    Case(400, thoughts=400, ended_after=20),
)
DOCUMENT = (
    Case(0, ended_after=0.0),
    Case(1, ended_after=2**-10),
    Case(44, ended_after=0.875),
    Case(175, ended_after=3.5),
    Case(LIMIT, ended_after=10_000),
)


def build_record(api: Api, call: Call, case: Case, error: str) -> Record:
    """Return the record of a call with an interrupted response."""
    target = api.target
    record = replace(new_record(), now=lambda: SENT_AT)
    record.call, record.ended = call, SENT_AT + case.ended_after
    plan = Plan("1", "key", "chat", {}, (ModelCall("m", (target,)),))
    record.hidden_output = lambda attempt: estimate_hidden_output(plan, call, attempt)
    attempt = record.start_attempt(target, 0)
    attempt.sent_at = attempt.response_at = SENT_AT
    attempt.ended, attempt.error = record.ended, error
    _, attempt.max_output_tokens = estimate_tokens(call, target) or (0, 0)
    if case.thoughts:
        thought = Delta(Part("reasoning", 0), "x" * 4 * case.thoughts)
        attempt.meter.feed(Frame((thought,)), SENT_AT + 0.1)
    if case.text:
        text = Delta(Part("text", 1), "y" * 4 * case.text)
        attempt.meter.feed(Frame((text,)), SENT_AT + case.text_after)
    record.use_attempt(0, attempt)
    return record


def get_output_tokens(record: Record) -> int:
    assert record.billing.usage_source == "partial_estimate"
    return record.billing.tokens.output


@for_each("error", ENDS)
@for_each("api", APIS.values(), ids=APIS.keys())
def test_interrupted_output_is_bounded_by_time(api: Api, error: str) -> None:
    for thinking in api.thinking:
        for case in THINKING_STREAM:
            record = build_record(api, api.call(stream=True, **thinking), case, error)
            assert get_output_tokens(record) == case.output_tokens, (thinking, case)
        for case in DOCUMENT:
            record = build_record(api, api.call(**thinking), case, error)
            assert get_output_tokens(record) == case.output_tokens, (thinking, case)
    for case in PLAIN_STREAM:
        record = build_record(api, api.call(stream=True), case, error)
        assert get_output_tokens(record) == case.output_tokens, case
    for case in DOCUMENT:
        record = build_record(api, api.call(), case, error)
        assert get_output_tokens(record) == case.output_tokens, case


@pytest.mark.parametrize("api", APIS.values(), ids=APIS.keys())
def test_each_choice_is_estimated_by_time(api: Api) -> None:
    for fields in api.choices:
        for case in DOCUMENT[:-1]:
            record = build_record(api, api.call(**fields), case, "cancelled")
            assert get_output_tokens(record) == 5 * case.output_tokens


WORD = "x" * 8  # two tokens
EVENTS: dict[str, list[Json]] = {
    "chat": chat_events(WORD),
    "messages": message_events(text_events(0, WORD)),
    "responses": response_events(item_events(0, text_item(WORD), WORD)),
}
MODELS = {"chat": "search-answers", "messages": "via-anthropic", "responses": "responses-only"}


def first_word(api: str, *, cuts: bool) -> Script:
    """Stream one word, then break the connection, or stall."""
    events = EVENTS[api]
    events = events[: 1 + next(n for n, item in enumerate(events) if WORD in str(item))]
    if cuts:
        return stream([*events, {}], cut_after=len(events))
    return stream(events, gate=asyncio.Event(), gate_after=len(events))


async def close_after_first_word(response: aiohttp.ClientResponse) -> None:
    raw = b""
    while WORD.encode() not in raw:
        raw += await response.content.readany()
    response.close()


async def read_to_end(response: aiohttp.ClientResponse) -> None:
    with suppress(aiohttp.ClientError):
        await response.read()


Interrupt = Callable[[aiohttp.ClientResponse], Awaitable[None]]
INTERRUPTS: dict[str, tuple[Interrupt, bool, dict[str, str]]] = {
    "client leaves": (close_after_first_word, False, {}),
    "client allows no more time": (read_to_end, False, {"x-litellm-timeout": "0.3"}),
    "upstream breaks off": (read_to_end, True, {}),
}


@pytest.mark.parametrize("end", INTERRUPTS)
@pytest.mark.parametrize("api", EVENTS)
async def test_reasoning_stream_is_billed_below_its_bound(
    api: str, end: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    interrupt, cuts, headers = INTERRUPTS[end]
    upstream.answer_with(first_word(api, cuts=cuts))
    declared = APIS[api]
    body = {**declared.body, declared.bound: 128_000, **declared.thinking[0]}
    async with (
        running_proxy(tmp_path / "policies", policies_for(upstream.url)) as proxy,
        ClientSession(base_url=proxy.url, headers=BEARER | headers) as client,
    ):
        body |= {"model": MODELS[api], "stream": True}
        async with client.post(declared.path, json=body) as answered:
            await interrupt(answered)
        [record] = await proxy.sink.wait()

    [attempt] = record.attempts
    assert record.outcome != "success"
    assert record.billing.usage_source == "partial_estimate"
    assert 2 < record.billing.tokens.output <= 2 + ceil(50 * (attempt.ended - attempt.sent_at))
