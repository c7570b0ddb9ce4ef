"""Routes without a prompt end with one record, one log line and one metric."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from proxy.dialects import ROUTES as SERVED
from proxy.dialects.responses.sealing import CONVERSATIONS, IdSealer
from tests.conftest import KEY, Proxy, Reply, policies_for, running_proxy
from tests.dialects.responses import test_conversations as talks
from tests.doubles import (
    Json,
    ScriptedUpstream,
    message,
    respond,
    response,
)
from tests.for_each import for_each
from tests.test_pipeline import AZURE, AZURES, BEARER, MESSAGES, PORTKEY, ROUTES, SCALE, VERSION

VECTORS: Json = {
    "object": "list",
    "model": "m",
    "data": [{"object": "embedding", "embedding": [0.5], "index": 0}],
    "usage": {"prompt_tokens": 5, "total_tokens": 5},
}
ODD_USER: Json = {"model": "gpt-4o-mini", "input": "Hi", "user": 1}
COUNTED: Json = {"input_tokens": 5}
ANTHROPIC = {**SCALE, "anthropic-version": "2023-06-01"}
INPUT: Json = {"model": "gpt-4o-mini", "input": "Hi"}
TALK: Json = {"model": "via-anthropic", **MESSAGES}
CONVERSATION = "/v1/conversations/{id}"
ITEMS = f"{CONVERSATION}/items"
SECRETS = ("a secret of replicas",)
PLACE = ("support-widget", "support-chat", "openai")
VALUES = IdSealer.from_secrets(SECRETS).seal(*PLACE, "conv_1", CONVERSATIONS)
KEEPING = BEARER | {"x-headrace-deployment": "support-chat"}
COSTLESS = (None, COUNTED, talks.TALK, talks.PAGE)


@dataclass(frozen=True)
class OtherRoute:
    """A route, what its clients send, and what the upstream says; nothing where policy itself is
    the answer. ``wrong`` is a request that is refused, by a path or by a body."""

    method: str
    path: str
    credential: dict[str, str]
    body: Json | None = None
    reply: Json | None = None
    wrong: str | Json = field(default_factory=dict)
    route: str | None = None

    @property
    def is_anthropics(self) -> bool:
        return "x-api-key" in self.credential


def models(prefix: str, credential: dict[str, str]) -> list[OtherRoute]:
    text = f"{prefix}/models/openai/smol"
    name = f"{prefix}/models/{{model}}"
    missing = f"{prefix}/models/nobody-has-it"
    return [
        OtherRoute("GET", f"{prefix}/models", credential, wrong=missing),
        OtherRoute("GET", text, credential, wrong=missing, route=name),
        OtherRoute("HEAD", text, credential, wrong=missing, route=name),
    ]


OTHER_VALUES = [
    *models("/v1", BEARER),
    *models("", BEARER),
    *models("/v1", PORTKEY),
    *(
        OtherRoute("GET", path, BEARER, wrong="/model/info/all")
        for path in ("/model/info", "/v1/model/info")
    ),
    *models("/openai/v1", BEARER),
    *models("/openai", AZURE),
    *models("/inference/v1", BEARER),
    *models("/v1", SCALE),
    *models("", ANTHROPIC),
    *(
        OtherRoute("POST", f"{prefix}/embeddings", credential, INPUT, VECTORS, {**INPUT, "user": 1})
        for prefix, credential in (
            ("/v1", BEARER), ("", BEARER), ("/v1", PORTKEY), ("/inference/v1", BEARER),
            ("/openai/v1", AZURE)
        )
    ),
    *(
        OtherRoute("POST", path, credential, TALK, COUNTED, {**TALK, "messages": []})
        for path in ("/v1/messages/count_tokens", "/messages/count_tokens")
        for credential in (ANTHROPIC, SCALE)
    ),
    OtherRoute(
        *("POST", f"{AZURES}/embeddings{VERSION}", AZURE, {"input": "Hi"}, VECTORS),
        wrong={"input": "Hi", "user": 1},
        route="/openai/deployments/{deployment}/embeddings",
    ),
    *(
        OtherRoute("POST", f"{prefix}/responses", credential, INPUT, response(), ODD_USER)
        for prefix, credential in (
            ("", BEARER), ("/v1", PORTKEY), ("/openai/v1", AZURE), ("/openai", AZURE)
        )
    ),
    OtherRoute("POST", "/messages", ANTHROPIC, {**TALK, "max_tokens": 9}, message(), TALK),
    OtherRoute("POST", "/v1/conversations", KEEPING, {}, talks.TALK, {"items": 1}),
    *(
        OtherRoute(method, f"/v1/conversations/{VALUES}{end}", BEARER, body, reply, wrong, route)
        for method, end, body, reply, wrong, route in (
            ("GET", "", None, talks.TALK, "/v1/conversations/conv_1", CONVERSATION),
            ("POST", "/items", {"items": [talks.QUESTION]}, talks.PAGE, {"items": 1}, ITEMS),
        )
    ),
]  # fmt: skip


def name_of(route: OtherRoute) -> str:
    return f"{route.method}-{route.path}-{'+'.join(route.credential)}"


every_route = pytest.mark.parametrize("case", OTHER_VALUES, ids=name_of)
all_routes = for_each("case", OTHER_VALUES, ids=name_of)


async def send(proxy: Proxy, case: OtherRoute, **changes: Any) -> Reply:
    request = {"path": case.path, "body": case.body, "headers": case.credential, **changes}
    return await proxy.send(**request, method=case.method)


def check_error_form(case: OtherRoute, reply: Reply) -> None:
    if reply.raw:
        assert (reply.json.get("type") == "error") is case.is_anthropics


def test_every_route_without_prompt_has_a_case() -> None:
    covered = {case.route or case.path for case in OTHER_VALUES}
    covered |= {route.route for route in ROUTES.values()}
    endpoints = ("completions", "chat", "embeddings", "models", "count_tokens")
    served = {path for (_, path), (_, kind) in SERVED.items() if kind in endpoints}

    served |= {"/v1/conversations", CONVERSATION, ITEMS}
    assert covered == served | {path for _, path in SERVED if path.endswith("/responses")}


@pytest.fixture
async def proxy(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[Proxy]:
    folder = tmp_path / "policies"
    async with running_proxy(folder, policies_for(upstream.url), id_secrets=SECRETS) as running:
        yield running


@every_route
async def test_call_leaves_one_record_and_one_metric_count(
    case: OtherRoute, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(respond(case.reply or {}))

    reply = await send(proxy, case)

    assert reply.status == 200, reply.raw
    assert reply.raw or case.method == "HEAD"
    assert len(upstream.requests) == (case.reply is not None)
    [record] = await proxy.sink.wait()
    assert (record.outcome, record.status) == ("success", 200)
    assert record.head.route == (case.route or case.path)
    assert record.billing.cost in ((0, None) if case.reply in COSTLESS else (750, 2550))
    lines = (await proxy.metrics()).splitlines()
    counts = [line for line in lines if line.startswith("headrace_requests_total{")]
    counted = [line for line in counts if not line.endswith(" 0.0")]
    assert len(counted) == 1
    assert f'endpoint="{record.head.endpoint}"' in counted[0]


@all_routes
async def test_invalid_key_is_refused(
    case: OtherRoute, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    wrong = {name: item.replace(KEY, "hr-wrong") for name, item in case.credential.items()}

    reply = await send(proxy, case, headers=wrong)

    assert (reply.status, reply.headers["x-headrace-error"]) == (401, "invalid_api_key")
    check_error_form(case, reply)
    [record] = await proxy.sink.wait()
    assert (record.outcome, upstream.requests) == ("client_error", [])


@all_routes
async def test_invalid_field_or_path_is_refused(
    case: OtherRoute, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    change = {"path" if isinstance(case.wrong, str) else "body": case.wrong}

    reply = await send(proxy, case, **change)

    assert reply.status == (404 if "path" in change else 400)
    check_error_form(case, reply)
    [record] = await proxy.sink.wait()
    assert (record.outcome, upstream.requests) == ("client_error", [])
