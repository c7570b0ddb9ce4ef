"""Ends of responses, whole and streamed, with their outcome and cost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from proxy.call.summary import summarize
from proxy.dialects.responses.schema import find_failure
from tests.conftest import KEY
from tests.dialects.test_stored_state import StatefulProxy, policy, stateful_proxy
from tests.doubles import (
    Json,
    ScriptedUpstream,
    item_events,
    respond,
    response,
    response_events,
    stream,
    text_item,
)
from tests.for_each import for_each


@for_each(
    ("document", "code", "kind"),
    [
        ({"type": "error", "code": "server_error", "message": "m"}, "server_error", "server_error"),
        ({"type": "error", "code": "invalid_image"}, "invalid_image", "invalid_request_error"),
        ({"type": "error", "error": {"code": "invalid_prompt"}}, "invalid_prompt",
            "invalid_request_error"),
        ({"type": "response.failed", "response": {"error": None}}, None, "server_error"),
        (response(status="failed", error={"code": "rate_limit_exceeded"}), "rate_limit_exceeded",
            "server_error"),
        (response(status="cancelled"), "cancelled", "server_error"),
        ({"type": "response.cancelled", "response": response(status="cancelled")}, "cancelled",
            "server_error"),
    ],
)  # fmt: skip
def test_failed_response_is_an_error_by_its_code(document: Json, code: Any, kind: str) -> None:
    error = (find_failure(document) or {})["error"]

    assert (error["code"], error["type"]) == (code, kind)


@for_each(
    "document",
    [
        response(),
        {"type": "response.completed", "response": response()},
        response(status=["failed"]),
        {"type": ["response.failed"], "status": {}},
    ],
)
def test_other_statuses_are_no_failure(document: Json) -> None:
    assert find_failure(document) is None


def test_failed_response_has_usage() -> None:
    failed = response(status="failed")

    for document in (failed, {"type": "response.failed", "response": failed}):
        usage = (find_failure(document) or {})["usage"]
        assert (usage["prompt_tokens"], usage["completion_tokens"]) == (5, 3)
    assert (find_failure(response(status="failed", usage=None)) or {})["usage"] is None


ITEM = text_item(" Paris.")
SORRY = {"code": "server_error", "message": "Sorry."}
PRICED = 11_000  # nano-USD: 5 tokens at 1,000 and 3 at 2,000
SERVED = (200, "success", "provider", "useful")
PAID_IN_VAIN = (502, "upstream_error", "provider", "abandoned")
ESTIMATED = (502, "upstream_error", "partial_estimate", "abandoned")
ENDS: list[tuple[str, Json, tuple[int, str, str, str]]] = [
    ("completed", {}, SERVED),
    ("incomplete", {"incomplete_details": {"reason": "max_output_tokens"}}, SERVED),
    ("failed", {"error": SORRY}, PAID_IN_VAIN),
    ("cancelled", {}, PAID_IN_VAIN),
    ("failed", {"error": SORRY, "usage": None}, ESTIMATED),
    ("cancelled", {"usage": None}, ESTIMATED),
]
"""A status, what else the response says, and what its client, its record and its bill read of it.
"""


@pytest.fixture
async def gateway(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[StatefulProxy]:
    """One target that serves Responses and chats."""
    price = "price: {input: 1, output: 2}"
    only = f"{{upstream: openai, model: gpt-4o-mini, endpoint: responses, {price}}}"
    text = policy(upstream.url, targets=only)
    fallback = f"    fallback: [{{upstream: spare, model: other, {price}}}]\n"
    assert fallback in text
    policies = text.replace(fallback, "", 1)
    async with stateful_proxy(tmp_path / "policies", upstream, policies) as running:
        yield running


async def status_of(client: str, context: StatefulProxy, **options: Any) -> int:
    if client == "responses":
        return (await context.ask(**options))[0]
    messages = [{"role": "user", "content": "Go on."}]
    request = {"model": "gpt-4o-mini", "messages": messages, **options}
    reply = await context.proxy.chat({"authorization": f"Bearer {KEY}"}, **request)
    return reply.status


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("client", ["responses", "chat"])
@pytest.mark.parametrize("way", ["whole", "stream"])
async def test_each_end_has_its_outcome_and_cost(
    end: tuple[str, Json, tuple[int, str, str, str]], client: str, way: str, gateway: StatefulProxy
) -> None:
    status, options, (answered, outcome, source, use) = end
    ended = response(ITEM, status=status, **options)
    events = response_events(item_events(0, ITEM, " Par", "is."), document=ended)
    streamed: Json = {"stream": True} if way == "stream" else {}
    gateway.upstream.answer_with(stream(events, is_done=False) if streamed else respond(ended))

    received = await status_of(client, gateway, **streamed)

    [record] = await gateway.proxy.sink.wait(1)
    assert received == (200 if streamed else answered)
    assert (record.outcome, record.billing.usage_source) == (outcome, source)
    [billed] = summarize(record).attempts
    assert billed.bill is not None
    assert (billed.result.use, billed.bill.usage.source) == (use, source)
    if source == "provider":
        assert record.billing.cost == PRICED
    else:
        assert record.billing.cost > 0
    if outcome != "success":
        assert billed.attempt.error == "upstream_unavailable"
        assert billed.result.loss == "upstream_broke"


@pytest.mark.parametrize("client", ["responses", "chat"])
@pytest.mark.parametrize("status", ["queued", "in_progress"])
async def test_unfinished_response_is_an_upstream_error(
    status: str, client: str, gateway: StatefulProxy
) -> None:
    gateway.upstream.answer_with(respond(response(status=status, usage=None, output=[])))

    received = await status_of(client, gateway)

    [record] = await gateway.proxy.sink.wait(1)
    assert (received, record.outcome) == (502, "upstream_error")
    assert record.error.code == "upstream_invalid_response"


async def test_response_with_usage_counts_as_finished(gateway: StatefulProxy) -> None:
    gateway.upstream.answer_with(respond(response(status="in_progress")))

    assert (await gateway.ask())[0] == 200


async def test_failure_and_retry_are_billed(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    failed = response(status="failed", error=SORRY)
    upstream.then(respond(failed), respond(response()))

    # a target and a fallback
    async with stateful_proxy(tmp_path / "policies", upstream) as context:
        status, _ = await context.ask()
        [record] = await context.proxy.sink.wait(1)

    assert (status, record.outcome, record.billing.cost) == (200, "success", 2 * PRICED)
    uses = [(result.use, bill.cost) for _, result, bill in summarize(record).attempts if bill]
    assert uses == [("retried", PRICED), ("useful", PRICED)]


async def test_invalid_usage_is_billed_by_estimate(gateway: StatefulProxy) -> None:
    usage = {"input_tokens": "5", "output_tokens": -3}
    gateway.upstream.answer_with(respond(response(status="failed", error=SORRY, usage=usage)))

    status, _ = await gateway.ask()

    [record] = await gateway.proxy.sink.wait(1)
    assert (status, record.billing.usage_source) == (502, "partial_estimate")
