"""Retry waits, retries of requests that create state, and the error for the client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from proxy import errors
from proxy.types import Retry
from proxy.upstream.errors import choose_most_useful_error, compute_retry_delay, get_retry_cause
from tests.conftest import running_proxy
from tests.dialects.test_stored_state import policy, stateful_proxy
from tests.doubles import Json, Script, ScriptedUpstream, cut_before_head, respond, response
from tests.for_each import for_each
from tests.passthrough.listed_policies import BEARER, policies
from tests.upstream.test_retries import ask, models, resilient_proxy

RETRY = Retry(times=3, on=frozenset({"connect", 429, 503}), wait=1.0, max_wait=3.0)


def unavailable(status: int | None, request: float | None = None) -> errors.UpstreamUnavailable:
    error = errors.UpstreamUnavailable("x", upstream_status=status)
    error.retry_after_s = request
    return error


@for_each(
    ("failure", "name"),
    [
        (unavailable(None), "connect"),
        (unavailable(503), 503),
        (errors.UpstreamTimeout("connect"), "connect"),
        (errors.UpstreamTimeout("first_byte"), "timeout"),
        (errors.UpstreamTimeout("idle"), "timeout"),
        (errors.UpstreamTimeout("total"), None),
        (errors.UpstreamInvalid("x"), "invalid"),
        (errors.ResponseTooLarge("x"), None),
        (errors.UpstreamRejected("x", upstream_status=409), 409),
        (errors.UpstreamRejectedKey("x", upstream_status=401), 401),
        (errors.CircuitOpen(1), None),
        (errors.UpstreamBusy(1), None),
        (errors.InvalidField("n", "x"), None),
    ],
    ids=lambda error_item: str(error_item)[:20],
)
def test_failures_have_policy_names(failure: errors.ProxyError, name: int | str | None) -> None:
    assert get_retry_cause(failure) == name


@pytest.mark.parametrize(("tries", "seconds"), [(1, 0.5), (2, 1.0), (3, 1.5)])
def test_wait_doubles_up_to_its_bound_with_jitter(tries: int, seconds: float) -> None:
    assert compute_retry_delay(RETRY, unavailable(503), tries, lambda: 0.5) == seconds


@for_each(
    "values",
    [
        (None, unavailable(503), 1),
        (RETRY, unavailable(503), 4),
        (RETRY, unavailable(500), 1),
        (RETRY, unavailable(429, request=3.1), 1),
    ],
)
def test_never_waits_without_reason(values: tuple[Retry | None, errors.ProxyError, int]) -> None:
    assert compute_retry_delay(*values, lambda: 0.5) is None


def test_retry_after_is_the_minimum_wait() -> None:
    assert compute_retry_delay(RETRY, unavailable(429, request=2.5), 1, lambda: 0.5) == 2.5


def test_upstream_may_forbid_retries() -> None:
    failure = unavailable(429)
    failure.should_retry = False

    assert compute_retry_delay(RETRY, failure, 1, lambda: 0.5) is None


Send = Callable[[], Awaitable[int]]
QUEUED = response(status="queued", background=True, output=[], usage=None)
TALK: Json = {"id": "conv_1", "object": "conversation", "created_at": 1, "metadata": {}}


def error(status: int, **fields: Any) -> Script:
    return respond({"error": {"message": "No.", **fields}}, status)


UNPROCESSED: dict[str, Script] = {
    "our key is wrong": error(401),
    "no such model": error(404, code="model_not_found"),
    "no such model, under another status": error(400, code="model_not_found"),
    "no such path": error(404),
    "lost by a balancer": respond(b"<html>", 404, media_type="text/html"),
    "too many requests": error(429),
    "overloaded": error(529),
}
PROCESSED: dict[str, Script] = {
    "at fault": error(400),
    "broken": error(500),
    "no answer at all": cut_before_head(),
    "garbled": respond(b"{"),
    "moved": respond(b"", 307, "location: http://127.0.0.1:1/"),
}


@asynccontextmanager
async def stored_response_call(
    folder: Path, upstream: ScriptedUpstream, path: str, body: Json, answered: Json
) -> AsyncIterator[Send]:
    policy_text = policy(upstream.url).replace(", api_key", ", breaker: off, api_key")
    async with stateful_proxy(folder, upstream, policy_text) as context:
        upstream.answer_with(respond(response()))
        await context.id_of()  # leaves an idle connection
        upstream.answer_with(respond(answered))
        headers = {**BEARER, "x-headrace-deployment": "resilient"}

        async def send() -> int:
            async with context.session.post(path, headers=headers, json=body) as response:
                await response.read()
                return response.status

        yield send


@asynccontextmanager
async def passthrough_call(folder: Path, upstream: ScriptedUpstream) -> AsyncIterator[Send]:
    repeated = "{times: 1, on: [503], wait: 1ms}"
    spare = "[{upstream: openai, model: rerank-2, price: {input: 3, output: 0}}]"
    policy_text = policies(upstream.url, retry=f"{repeated}\n    fallback: {spare}")
    policy_text = policy_text.replace("    timeouts:", "    breaker: off\n    timeouts:")
    async with running_proxy(folder, policy_text) as proxy:
        upstream.answer_with(respond({"results": []}))

        async def send() -> int:
            return (await proxy.send("/v1/moderations", {"input": "x"})).status

        assert await send() == 200  # leaves an idle connection
        yield send


def background_call(folder: Path, upstream: ScriptedUpstream) -> Any:
    body = {"model": "primary", "input": "Go on.", "background": True}
    return stored_response_call(folder, upstream, "/v1/responses", body, QUEUED)


def conversation_call(folder: Path, upstream: ScriptedUpstream) -> Any:
    return stored_response_call(folder, upstream, "/v1/conversations", {}, TALK)


@pytest.mark.parametrize("kind", [background_call, conversation_call, passthrough_call])
async def test_request_creating_state_is_retried_only_if_unprocessed(
    kind: Callable[[Path, ScriptedUpstream], Any], tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    observed: dict[str, tuple[bool, int]] = {}
    async with kind(tmp_path / "policies", upstream) as send:
        for name, script in (UNPROCESSED | PROCESSED).items():
            requests_before = len(upstream.requests)
            upstream.then(script)
            status = await send()
            observed[name] = (status == 200, len(upstream.requests) - requests_before)

    expected = {name: (True, 2) for name in UNPROCESSED} | {name: (False, 1) for name in PROCESSED}
    assert {name: value for name, value in observed.items() if value != expected[name]} == {}


REFUSED = errors.UpstreamRejected("Too long.", upstream_status=400)
DENIED = errors.BlockedByUpstream("No.", upstream_status=446)
DOWN = errors.UpstreamUnavailable("Away.")
SLOW = errors.UpstreamTimeout("total")
BROKEN = errors.UpstreamInvalid("Not JSON.")
KEY = errors.UpstreamRejectedKey("No key.", upstream_status=401)
FORBIDDEN = errors.UpstreamForbids("Not this.", upstream_status=403)
OPEN, BUSY = errors.CircuitOpen(9.0), errors.UpstreamBusy(1.0)
FIELD = errors.InvalidField("tools", "cannot be served")


@for_each(
    ("failures", "event"),
    [
        ([DOWN], DOWN),
        ([DOWN, REFUSED], REFUSED),
        ([OPEN, DENIED], DENIED),
        ([SLOW, DOWN, BROKEN], BROKEN),
        ([DOWN, OPEN], DOWN),
        ([FORBIDDEN, SLOW, KEY], SLOW),
        ([BUSY, OPEN, KEY], BUSY),
        ([DOWN, FIELD], DOWN),
        ([KEY, FORBIDDEN], FORBIDDEN),
        ([KEY, FIELD], KEY),
        ([FIELD], FIELD),
    ],
    ids=lambda error_item: (
        ", ".join(e.code for e in error_item) if isinstance(error_item, list) else error_item.code
    ),
)
def test_most_useful_failure_is_reported(
    failures: Sequence[errors.ProxyError], event: errors.ProxyError
) -> None:
    assert choose_most_useful_error(failures) is event


def test_choice_of_error_is_associative() -> None:
    for failures in permutations([REFUSED, DOWN, SLOW, KEY, OPEN, BUSY, FIELD], 3):
        rejected, *other_values = failures
        assert choose_most_useful_error(
            [rejected, choose_most_useful_error(other_values)]
        ) is choose_most_useful_error(failures)


SCRIPTS: dict[str, Script] = {
    "refused": respond({"error": {"message": "Too long.", "code": "context_length_exceeded"}}, 400),
    "limited": respond({}, 429, "retry-after: 7"),
    "away": respond({}, 503),
    "key": respond({}, 401),
}


@pytest.mark.parametrize(
    "text", ["description: plain", "hedge: {after: 1ms}", "hedge: {after: 5s}"]
)
@for_each(
    ("primary", "spare", "error"),
    [
        ("away", "refused", (400, "context_length_exceeded")),
        ("limited", "key", (429, "upstream_unavailable")),
    ],
)
async def test_sequential_and_parallel_failures_have_equal_errors(
    primary: str, spare: str, error: tuple[int, str], text: str, tmp_path: Path,
    upstream: ScriptedUpstream,
) -> None:  # fmt: skip
    upstream.by_model = {"primary": SCRIPTS[primary], "spare": SCRIPTS[spare]}
    upstream.by_model |= {"first": SCRIPTS[primary], "second": SCRIPTS[spare]}
    async with resilient_proxy(tmp_path, upstream, text) as proxy:
        in_turn = await ask(proxy)
        assert sorted(models(upstream)) == ["primary", "spare"]
        body = {"model": ["first", "second"], "prompt": "Hi"}
        together = await proxy.send("/v1/completion", body)

    for reply in (in_turn, together):
        assert (reply.status, reply.error["code"]) == error
