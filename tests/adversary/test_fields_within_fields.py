"""Fields that a client may not set are refused within tools, sources and option groups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.adversary.test_what_a_request_may_say import ask, proxied
from tests.doubles import ScriptedUpstream

ROUTES = ["openai", "openai-chat", "fireworks", "scale"]
FUNCTION = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
ELSEWHERE = "https://evil.example/mcp"
WITHIN: list[tuple[str, dict[str, Any]]] = [
    ("tools[].server_url", {"tools": [FUNCTION, {"type": "mcp", "server_url": ELSEWHERE}]}),
    ("tools[].connector_id", {"tools": [{"type": "mcp", "connector_id": "connector_gmail"}]}),
    ("tools[].authorization", {"tools": [{"type": "mcp", "authorization": "a token"}]}),
    ("tools[].headers", {"tools": [{"type": "mcp", "headers": {"x-key": "a token"}}]}),
    ("tools[].extra_headers", {"tools": [{"type": "mcp", "extra_headers": {"x-key": "a"}}]}),
    ("tools[].mcp.server_url", {"tools": [{"type": "mcp", "mcp": {"server_url": ELSEWHERE}}]}),
    ("tools[].model", {"tools": [{"type": "image_generation", "model": "dear"}]}),
    ("tools[].retrieval", {"tools": [{"retrieval": {"external_api": {"endpoint": ELSEWHERE}}}]}),
    ("tools[].mcp_servers", {"tools": [{"mcp_servers": [{"url": ELSEWHERE}]}]}),
    ("tools[].server_url", {"tools": {"server_url": ELSEWHERE}}),
    ("tools[].server_url", {"tools": [{"serverUrl": ELSEWHERE}]}),
    ("tools[].server_url", {"tools": [{"SERVER_URL": ELSEWHERE}]}),
    (
        "search_parameters.sources[].links",
        {"search_parameters": {"sources": [{"type": "rss", "links": [ELSEWHERE]}]}},
    ),
    ("container.id", {"container": "container_1"}),
    ("container.id", {"container": {"id": "container_1", "skills": []}}),
    ("container.id", {"Container": ["container_1"]}),
    ("extra_body.container.id", {"extra_body": {"container": "container_1"}}),
    ("tools[].container.id", {"tools": [{"type": "code_interpreter", "container": "cntr_1"}]}),
    (
        "tools[].environment.container_id",
        {"tools": [{"type": "shell", "environment": {"container_id": "cntr_1"}}]},
    ),
    ("input[].container_id", {"input": [{"type": "x"}, {"type": "x", "container_id": "cntr_1"}]}),
    ("extra_body.tools[].server_url", {"extra_body": {"tools": [{"server_url": ELSEWHERE}]}}),
    ("mcp_servers", {"mcp_servers": [{"type": "url", "url": ELSEWHERE}]}),
    ("connectors", {"connectors": [{"id": "x", "user_access_token": "a"}]}),
    ("litellm_credential_name", {"litellm_credential_name": "other"}),
]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(("name", "fields"), WITHIN, ids=str)
async def test_what_chooses_an_address_within_a_field_is_refused(
    name: str, fields: dict[str, Any], route: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with proxied(tmp_path, upstream) as (_, client):
        status, _, event = await ask(client, route, fields)

    if isinstance(fields.get("tools"), dict):  # no list: of the wrong type at some doors
        assert status in (400, 422)
    else:
        assert (status, event["error"]["param"]) == (422 if route == "scale" else 400, name)
    assert upstream.requests == []


PASSING: list[dict[str, Any]] = [
    {"tools": [FUNCTION]},
    {"tools": [{"type": "function", "function": {"name": "f", "parameters": {
        "type": "object", "properties": {"server_url": {"type": "string"}, "headers": {}}}}}]},
    {"tools": [{"type": "web_search", "filters": {"allowed_domains": ["example.com"]}}]},
    {"tools": [{"type": "mcp", "server_label": "a", "server_url": None}]},
    {"tools": [{"type": "function", "parameters": {"properties": {"model": {}}}}]},
    {"tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]},
    {"tools": [{"type": "shell", "environment": {"type": "container_auto"}}]},
    {"container": {"skills": [{"type": "anthropic", "skill_id": "pdf"}]}},
    {"container": {"id": None}},
    {"container": ""},
    {"input": [{"type": "code_interpreter_call", "code": "1"}, "container_id"]},
    {"web_search_options": {"search_context_size": "low"}},
    {"search_parameters": {"sources": [{"type": "web"}, "news"], "mode": "auto"}},
    {"metadata": {"server_url": "https://example.com", "headers": "none"}},
]  # fmt: skip


@pytest.mark.parametrize("fields", PASSING, ids=str)
async def test_all_else_within_a_field_passes(
    fields: dict[str, Any], tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with proxied(tmp_path, upstream) as (_, client):
        status, _, _ = await ask(client, "openai-chat", fields)

    [request] = upstream.requests
    assert (status, {name: request.json[name] for name in fields}) == (200, fields)


async def test_nested_fields_follow_upstream(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    lists = (
        "accepts: ['tools[].server_url'], drop: ['tools[].headers', 'search_parameters.sources'],"
        " refuse: ['messages[].content[].image_url.url', 'tools[].container'],"
    )
    tool = {"type": "mcp", "server_url": "https://mcp.example/"}
    search = {"mode": "on"}
    picture = [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]
    async with proxied(tmp_path, upstream, "", extra=lists) as (_, client):
        body = {
            "tools": [FUNCTION, {**tool, "headers": {"x": "y"}}],
            "search_parameters": {**search, "sources": [{"type": "web"}]},
        }
        status, headers, _ = await ask(client, "openai-chat", body)
        events = [
            await ask(client, "openai-chat", {"messages": [{"role": "user", "content": picture}]}),
            await ask(client, "openai-chat", {"tools": [{"type": "x", "container": "auto"}]}),
        ]

    [request] = upstream.requests
    assert status == 200
    assert (request.json["tools"], request.json["search_parameters"]) == ([FUNCTION, tool], search)
    assert "tools[].headers dropped" in headers["x-headrace-warning"]
    assert "search_parameters.sources dropped" in headers["x-headrace-warning"]
    assert [(item[0], item[2]["error"]["param"]) for item in events] == [
        (400, "messages[].content[].image_url.url"),
        (400, "tools[].container"),
    ]


async def test_single_tenant_takes_containers(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    names = "accepts: [container.id, 'tools[].container.id', 'input[].container_id'],"
    body = {
        "container": "container_1",
        "tools": [{"type": "code_interpreter", "container": "cntr_1"}],
        "input": [{"type": "code_interpreter_call", "container_id": "cntr_1"}],
    }
    async with proxied(tmp_path, upstream, "", extra=names) as (_, client):
        status, _, _ = await ask(client, "openai-chat", body)

    [request] = upstream.requests
    assert (status, {name: request.json[name] for name in body}) == (200, body)


DEARER: list[tuple[str, dict[str, Any]]] = [
    ("service_tier", {"service_tier": "priority"}),
    ("service_tier", {"service_tier": "scale"}),
    ("service_tier", {"service_tier": "performance"}),
    ("service_tier", {"service_tier": "a tier of tomorrow"}),
    ("service_tier", {"serviceTier": "priority"}),
    ("extra_body.service_tier", {"extra_body": {"service_tier": "priority"}}),
    ("speed", {"speed": "fast"}),
    ("inference_geo", {"inference_geo": "us"}),
]
USUAL = [
    *({"service_tier": each} for each in ("auto", "default", "flex", "standard_only", None)),
    {"speed": "standard"},
    {"extra_body": {"service_tier": "flex"}},
]


@pytest.mark.parametrize("route", ["openai", "openai-chat", "fireworks"])
@pytest.mark.parametrize(("name", "fields"), DEARER, ids=str)
async def test_what_costs_more_than_the_price_says_is_refused(
    name: str, fields: dict[str, Any], route: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with proxied(tmp_path, upstream) as (_, client):
        status, _, event = await ask(client, route, fields)

    assert (status, event["error"]["param"]) == (400, name)
    assert upstream.requests == []


@pytest.mark.parametrize("fields", USUAL, ids=str)
async def test_what_costs_no_more_passes(
    fields: dict[str, Any], tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with proxied(tmp_path, upstream) as (_, client):
        status, _, _ = await ask(client, "openai-chat", fields)

    [request] = upstream.requests
    sent_body = {name: value for name, value in fields.items() if value is not None}
    assert (status, {name: request.json[name] for name in sent_body}) == (200, sent_body)


@pytest.mark.parametrize(
    ("lists", "tier", "sent_items"),
    [
        ("accepts: [service_tier],", "priority", ["priority"]),
        ("drop: [service_tier],", "priority", [None]),
        ("drop: [service_tier],", "flex", [None]),
        ("refuse: [service_tier],", "flex", []),
    ],
)
async def test_an_upstream_says_which_tiers_it_takes(
    lists: str, tier: str, sent_items: list[Any], tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with proxied(tmp_path, upstream, extra=lists) as (_, client):
        status, _, _ = await ask(client, "openai-chat", {"service_tier": tier})

    assert status == (200 if sent_items else 400)
    assert [request.json.get("service_tier") for request in upstream.requests] == sent_items
