"""Responses of upstreams and of the proxy itself: preambles, bills, model lists, token counts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace as Some
from typing import Any

import pytest
from aiohttp import ClientSession

from proxy.call.attempts import Attempt
from proxy.dialects.document import make_document_frame
from proxy.dialects.responses.sealing import IdSealer
from proxy.policy.review.sample_call import build_sample_call
from proxy.types import ModelCall, Plan, StateRef, Target, Upstream
from proxy.types.events import (
    RESPONSE_END,
    Delta,
    Event,
    Fault,
    Finish,
    Frame,
    Part,
    PartStart,
    ResponseStart,
    ToolCall,
    Unmapped,
    UsageReport,
)
from proxy.upstream.attempt import read_remaining_rate_limit
from proxy.upstream.background_billing import BackgroundBilling, is_billable
from proxy.upstream.local_responses import IMAGE_TOKENS, estimate_tokens, is_counted_locally
from proxy.upstream.response import MAX_PREAMBLE_FRAMES, is_short_preamble
from tests.conftest import KEY, Proxy
from tests.doubles import Json, ScriptedUpstream, response
from tests.for_each import for_each
from tests.limits.test_claims import CALL_TIME

TEXT, CALL = Part("text", 0), Part("arguments", 1)
ROLE = Frame((ResponseStart("id", "model", None), PartStart(TEXT), Delta(TEXT, "")))


@for_each(
    "events",
    [
        (),
        (ResponseStart("id", "model", None),),
        (PartStart(CALL, ToolCall("1", "f")), Delta(CALL, "")),
        (UsageReport(None, {}),),
    ],
)
def test_frames_without_content_are_a_preamble(events: tuple[Event, ...]) -> None:
    assert is_short_preamble([ROLE, Frame(events)])


@for_each(
    "event",
    [
        Delta(TEXT, "Paris"),
        Delta(Part("reasoning", 1), "Hm"),
        PartStart(Part("opaque", 1)),
        Finish(0, "stop"),
        Fault("message", "code"),
        RESPONSE_END,
    ],
)
def test_content_ends_a_preamble(event: Event) -> None:
    assert not is_short_preamble([ROLE, Frame((event,))])


def test_preamble_is_bounded() -> None:
    assert is_short_preamble([ROLE] * MAX_PREAMBLE_FRAMES)
    assert not is_short_preamble([ROLE] * (MAX_PREAMBLE_FRAMES + 1))
    assert not is_short_preamble([ROLE, Frame((), size=1)])


def test_unread_bytes_are_content() -> None:
    assert not is_short_preamble([Frame((Unmapped(),), raw=b"a")])


def test_remaining_rate_limit_is_read() -> None:
    body = {"x-ratelimit-remaining-requests": "59", "x-ratelimit-remaining-tokens": "149984"}

    assert read_remaining_rate_limit(body) == {"requests": 59, "tokens": 149984}


@for_each("text", ["", "-1", "1e9", "59, 60", "٣", "9" * 400, "none"])
def test_invalid_remaining_rate_limit_is_unknown(text: str) -> None:
    assert read_remaining_rate_limit({"x-ratelimit-remaining-requests": text}) == {}


def background_response(status: str = "completed", **fields: Any) -> Json:
    return response(status=status, background=True, **fields)


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
def test_finished_background_response_has_a_bill(document: Json, billed: bool) -> None:
    assert is_billable(document) is billed


@dataclass
class Slow:
    """A store that records its callers and responds once it is released."""

    owners: dict[str, str] = field(default_factory=dict)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)

    async def claim_bill(self, name: str, owner: str) -> bool:
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
    frame = make_document_frame({**background_response(), "id": "resp_sealed"})
    store = Slow()
    billing = BackgroundBilling(store.claim_bill, IdSealer(()))
    if other_flag:
        store.may_answer.set()
        value_before: Any = Some(**{**vars(request), "attempt": Attempt(target, 0, "s0", 0.0)})
        await billing.claim_background_bill(value_before, [frame])
        store.may_answer.clear()
        store.asked.clear()

    asking = asyncio.ensure_future(billing.claim_background_bill(request, [frame]))
    await store.asked.wait()
    asking.cancel()
    if twice:
        await asyncio.sleep(0)
        attempt.bill = Some(cost=1)  # type: ignore[assignment]  # while another call asks
        asking.cancel()
    store.may_answer.set()
    with pytest.raises(asyncio.CancelledError):
        await asking

    is_billed = twice or not other_flag  # an uncertain bill is kept
    assert (attempt.is_billed, attempt.bill) == (is_billed, None)
    assert (attempt.meter.reported is not None) is is_billed


OTHER_VALUES = {"Authorization": "Bearer hr-search-key"}


@pytest.mark.parametrize(
    "name", ["smol", "search-answers", "openai/smol", "openai%2Fsmol"], ids=str
)
async def test_any_name_finds_the_model(
    name: str, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    response = await proxy.send(f"{proxy.url}/v1/models/{name}", headers=OTHER_VALUES, method="GET")

    assert response.status == 200
    assert (response.json["id"], response.json["object"]) == (name.replace("%2F", "/"), "model")
    [record] = await proxy.sink.wait()
    assert (record.outcome, record.head.route) == ("success", "/v1/models/{model}")
    assert upstream.requests == []


@pytest.mark.parametrize("name", ["gpt-4o-mini", "support-chat", "nobody-has-it", "a/b/c"])
async def test_model_of_another_key_is_not_found(name: str, proxy: Proxy) -> None:
    response = await proxy.send(f"/v1/models/{name}", headers=OTHER_VALUES, method="GET")

    assert response.status == 404
    assert response.json["error"] == {
        "message": f"No deployment of this key serves the model {name}. "
        "GET /v1/models lists the models of this key.",
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }
    [record] = await proxy.sink.wait()
    assert record.outcome == "client_error"


FIRST_DOCUMENT = {"Authorization": "Bearer hr-test-key"}
OTHER_NAMES = {"openai/gpt-4o-mini", "scale/scale-model"}
DEPLOYMENTS = ["compare", "legacy-only", "resilient", "responses-only", "search-answers"]
LISTED_MODELS = {"first", "gpt-4o-mini", "primary", "second", "smol", "smol-legacy", "third"}


async def test_list_has_one_id_per_model_unless_requested(proxy: Proxy) -> None:
    listed = {}
    for query in ("", "?names=all", "?names=some"):
        response = await proxy.send(f"/v1/models{query}", headers=FIRST_DOCUMENT, method="GET")
        listed[query] = response.json

    names = {query: [model["id"] for model in listed[query].get("data", ())] for query in listed}
    assert names[""][: len(DEPLOYMENTS)] == DEPLOYMENTS
    assert {*names[""]} > LISTED_MODELS
    assert OTHER_NAMES.isdisjoint(names[""])
    assert {*names["?names=all"]} > {*names[""]} | OTHER_NAMES
    assert listed["?names=some"]["error"]["param"] == "names"
    assert all(item["owned_by"] for item in listed["?names=all"]["data"])
    assert [item["owned_by"] for item in listed[""]["data"] if item["id"] == "smol"] == ["openai"]


async def test_listed_ids_work(client: ClientSession, upstream: ScriptedUpstream) -> None:
    async with client.get("/v1/models", headers=FIRST_DOCUMENT) as response:
        names = [model["id"] for model in (await response.json())["data"]]

    for name in names:  # the listed id belongs to a deployment
        body = {"model": name, "prompt": "Hi"}
        async with client.post("/v1/completions", headers=FIRST_DOCUMENT, json=body) as response:
            assert response.headers.get("x-headrace-deployment"), (name, await response.text())
    assert {request.json["model"] for request in upstream.requests} >= LISTED_MODELS


ANTHROPICS = [
    {"x-api-key": KEY},
    {"x-api-key": KEY, "anthropic-version": "2023-06-01"},
    {"Authorization": f"Bearer {KEY}", "anthropic-version": "2023-06-01"},
]


@for_each("headers", ANTHROPICS, ids="+".join)
async def test_anthropic_page_format(headers: dict[str, str], proxy: Proxy) -> None:
    response = await proxy.send("/v1/models?limit=2", headers=headers, method="GET")

    page = response.json
    assert response.headers["request-id"] == response.headers["x-request-id"]
    assert [model["id"] for model in page["data"]] == DEPLOYMENTS[:2]
    assert (page["has_more"], page["first_id"], page["last_id"]) == (True, *DEPLOYMENTS[:2])


COUNT = "/v1/messages/count_tokens"


def count_call(content: Any, path: str = COUNT, **fields: Any) -> Any:
    body = {"model": "m", "messages": [{"role": "user", "content": content}], **fields}
    return build_sample_call(body, {}, CALL_TIME, path)


def plan(dialect: str) -> Plan:
    target = Target(Upstream("u", dialect, ""), "m")
    return Plan("r", "k", "d", {}, (ModelCall("m", (target,)),))


def data(media_type: str, size: int) -> dict[str, Any]:
    kind = "image" if media_type.startswith("image/") else "document"
    return {
        "type": kind,
        "source": {"type": "base64", "media_type": media_type, "data": "A" * size},
    }


def test_tokens_are_estimated_only_for_upstreams_without_count() -> None:
    assert is_counted_locally(plan("openai"), count_call("Hello"))
    assert not is_counted_locally(plan("anthropic"), count_call("Hello"))
    chat = count_call("Hello", "/v1/messages", max_tokens=4)
    assert not is_counted_locally(plan("openai"), chat)


def test_every_text_counts_as_tokens() -> None:
    short, long = estimate_tokens(count_call("x" * 40)), estimate_tokens(count_call("x" * 440))

    assert long - short == 100
    assert estimate_tokens(count_call("x" * 40, system="y" * 400)) - short >= 100


def test_image_and_file_have_token_estimates() -> None:
    nothing = estimate_tokens(count_call([{"type": "text", "text": "x"}]))
    image = estimate_tokens(count_call([{"type": "text", "text": "x"}, data("image/png", 300_000)]))
    small = estimate_tokens(
        count_call([{"type": "text", "text": "x"}, data("application/pdf", 100)])
    )
    large = estimate_tokens(
        count_call([{"type": "text", "text": "x"}, data("application/pdf", 300_000)])
    )

    assert IMAGE_TOKENS < image - nothing < IMAGE_TOKENS + 50
    assert IMAGE_TOKENS < small - nothing < IMAGE_TOKENS + 50
    assert large - nothing > 3 * IMAGE_TOKENS
