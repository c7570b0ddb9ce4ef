"""No name, spelling or place of a request field hides it from the policy."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from proxy.errors.words import MAX_NAME
from proxy.fields.spelling import fold_name
from tests.adversary.fields import ROUTES, Start, ask, refusal
from tests.adversary.shapes import SHAPES, text
from tests.doubles import Json, ScriptedUpstream
from tests.for_each import for_each

GROUPS = (
    "chat_template_kwargs", "custom_params", "extra_body", "generation_config", "google",
    "inference_config", "inference_extra_params", "model_kwargs", "nvext", "options", "parameters",
    "reasoning", "sampling_params", "thinking", "thinking_config",
)  # fmt: skip


@pytest.mark.parametrize("route", ["openai", "openai-chat", "fireworks", "scale", "multimodel"])
async def test_no_group_of_options_chooses_a_model(
    route: str, start: Start, upstream: ScriptedUpstream
) -> None:
    proxy = await start(extra="accepts: [model],")
    for group in GROUPS:
        for name in ("model", "MODEL", "model_id", "model_name", "engine", "deployment"):
            reply = await ask(proxy, route, {group: {name: "gpt-5-pro"}})
            expected = (refusal(route), f"{group}.{name.lower()}")
            assert (reply.status, reply.error["param"]) == expected
        deeper = await ask(proxy, route, {group: {"extra_body": {"model": "gpt-5-pro"}}})
        assert deeper.error["param"] == f"{group}.extra_body.model"

    records = await proxy.sink.wait(7 * len(GROUPS))
    assert upstream.requests == []
    assert {record.outcome for record in records} == {"client_error"}


def spellings(name: str) -> set[str]:
    """Return names that servers may read as this one: case, Unicode forms, camel case, hyphens."""
    wide = "".join(chr(ord(item) + 0xFEE0) if item.isalpha() else item for item in name)
    odd = {name.replace("s", "\u017f"), name.replace("k", "\u212a"), wide}
    first_text, *other_items = name.split("_")
    camel = first_text + "".join(map(str.title, other_items))
    marked = {camel, camel[0].upper() + camel[1:], camel.lower(), name.replace("_", "-")}
    return {name.upper(), name.title(), *odd, *map(str.upper, odd), *marked} - {name}


BOUNDED = (
    "max_tokens", "max_output_tokens", "max_new_tokens", "max_gen_len", "best_of", "n",
    "num_predict", "n_cmpl", "num_return_sequences", "candidate_count", "thinking_budget",
    "budget_tokens",
)  # fmt: skip
CHOSEN = (
    "models", "api_base", "api_key", "base_url", "extra_headers", "extra_query", "fallbacks",
    "provider", "webhook_url", "engine", "model_id", "model_name", "lora_adapter", "data_sources",
)  # fmt: skip


NAMES = (*BOUNDED, *CHOSEN, *GROUPS)


@pytest.mark.parametrize("route", ["openai", "openai-chat", "scale", "multimodel"])
async def test_no_spelling_of_a_name_passes(
    route: str, start: Start, upstream: ScriptedUpstream
) -> None:
    proxy = await start()
    paths = [*NAMES, "stream", "user", "top_p"]
    if route == "openai-chat":
        paths += [f"extra_body.{name}" for name in NAMES]
    for path in paths:
        group, _, name = path.rpartition(".")
        for spelled in sorted(spellings(name)):
            fields: Any = {spelled: {"num_predict": 900_000}}
            reply = await ask(proxy, route, {group: fields} if group else fields)
            assert (reply.status, reply.error["param"]) == (refusal(route), path), spelled

    assert upstream.requests == []


async def test_names_in_other_scripts_pass(start: Start, upstream: ScriptedUpstream) -> None:
    fields = {"größe": 5, "長さ": 1, "ﬁeld": True, "timeout": 5, "keepAlive": 1, "top-a": 0.1}

    reply = await ask(await start(), "openai-chat", fields)

    [request] = upstream.requests
    assert reply.status == 200
    assert {name: request.json[name] for name in fields} == fields


LONG = 30_000  # characters; combining marks would take seconds
MAX_S = 0.25  # CPU seconds of all threads for one refused call
NESTED: dict[str, Callable[[str], Json]] = {
    "top": lambda name: {name: 1},
    "group": lambda name: {"options": {name: 1}},
    "group in a group": lambda name: {"extra_body": {"options": {name: 1}}},
}


@pytest.mark.parametrize("place", NESTED)
@pytest.mark.parametrize("shape", ["ligatures", "marks out of order", "full width", "letters"])
async def test_long_name_is_refused_quickly(
    shape: str, place: str, start: Start, upstream: ScriptedUpstream
) -> None:
    name = text(shape, LONG)
    proxy = await start()
    await ask(proxy, "openai-chat", {})  # fill caches of the process

    started_at = time.process_time()
    reply = await ask(proxy, "openai-chat", NESTED[place](name))
    spend = time.process_time() - started_at

    assert reply.status == 400
    assert name[:4] not in reply.error["message"]
    assert len(upstream.requests) == 1
    assert spend < MAX_S


@pytest.mark.parametrize("route", ROUTES)
async def test_each_dialect_bounds_field_names(route: str, start: Start) -> None:
    proxy = await start()
    short, long = [
        [
            await ask(proxy, route, fields)
            for fields in ({"x" * length: 1}, {"options": {"x" * length: 1}})
        ]
        for length in (MAX_NAME, MAX_NAME + 1)
    ]

    assert refusal(route) not in {reply.status for reply in short}
    assert [reply.status for reply in long] == [400, refusal(route)]
    assert [reply.error["param"] for reply in long] == [None, "options"]


async def test_each_option_group_bounds_field_names(start: Start) -> None:
    proxy = await start()
    for group in GROUPS:
        reply = await ask(proxy, "openai-chat", {group: {"é" * 1000: 1}})
        assert (reply.status, reply.error["param"]) == (400, group)


@for_each("shape", SHAPES)
def test_normalization_of_a_name_is_fast(shape: str) -> None:
    name = text(shape, LONG)
    started_at = time.process_time()
    fold_name(name)

    assert time.process_time() - started_at < MAX_S


def test_folded_ascii_is_no_shorter() -> None:
    odd = {chr(code) for code in range(0x80, 0x110000) if fold_name(chr(code)).isascii()}

    assert "\u212a" in odd
    assert [name for name in odd if len(fold_name(name)) < len(name)] == []


DEEP_ROUTES = ("openai", "openai-chat", "fireworks", "scale")
FUNCTION = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
ELSEWHERE = "https://evil.example/mcp"
WITHIN_FIELDS: list[tuple[str, dict[str, Any]]] = [
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
    ("search_parameters.sources[].links",
        {"search_parameters": {"sources": [{"type": "rss", "links": [ELSEWHERE]}]}}),
    ("container.id", {"container": "container_1"}),
    ("container.id", {"container": {"id": "container_1", "skills": []}}),
    ("container.id", {"Container": ["container_1"]}),
    ("extra_body.container.id", {"extra_body": {"container": "container_1"}}),
    ("tools[].container.id", {"tools": [{"type": "code_interpreter", "container": "cntr_1"}]}),
    ("tools[].environment.container_id",
        {"tools": [{"type": "shell", "environment": {"container_id": "cntr_1"}}]}),
    ("input[].container_id", {"input": [{"type": "x"}, {"type": "x", "container_id": "cntr_1"}]}),
    ("extra_body.tools[].server_url", {"extra_body": {"tools": [{"server_url": ELSEWHERE}]}}),
    ("mcp_servers", {"mcp_servers": [{"type": "url", "url": ELSEWHERE}]}),
    ("connectors", {"connectors": [{"id": "x", "user_access_token": "a"}]}),
    ("litellm_credential_name", {"litellm_credential_name": "other"}),
]  # fmt: skip


@pytest.mark.parametrize("route", DEEP_ROUTES)
async def test_address_within_a_field_is_refused(
    route: str, start: Start, upstream: ScriptedUpstream
) -> None:
    proxy = await start()
    for name, fields in WITHIN_FIELDS:
        reply = await ask(proxy, route, fields)
        if isinstance(fields.get("tools"), dict):  # an object is invalid in some dialects
            assert reply.status in (400, 422), fields
        else:
            assert (reply.status, reply.error["param"]) == (refusal(route), name), fields

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


CHEAP: list[dict[str, Any]] = [
    *({"service_tier": tier} for tier in ("auto", "default", "flex", "standard_only", None)),
    {"speed": "standard"},
    {"extra_body": {"service_tier": "flex"}},
]


@for_each("fields", [*PASSING, *CHEAP])
async def test_other_fields_within_a_field_pass(
    fields: dict[str, Any], start: Start, upstream: ScriptedUpstream
) -> None:
    reply = await ask(await start(), "openai-chat", fields)

    [request] = upstream.requests
    expected = fields if fields in PASSING else {n: v for n, v in fields.items() if v is not None}
    assert reply.status == 200
    assert {name: request.json[name] for name in expected} == expected


async def test_nested_fields_follow_the_upstream(start: Start, upstream: ScriptedUpstream) -> None:
    lists = (
        "accepts: ['tools[].server_url'], drop: ['tools[].headers', 'search_parameters.sources'],"
        " refuse: ['messages[].content[].image_url.url', 'tools[].container'],"
    )
    tool = {"type": "mcp", "server_url": "https://mcp.example/"}
    picture = [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]
    proxy = await start("", extra=lists)

    fields = {
        "tools": [FUNCTION, {**tool, "headers": {"x": "y"}}],
        "search_parameters": {"mode": "on", "sources": [{"type": "web"}]},
    }
    accepted = await ask(proxy, "openai-chat", fields)
    refused = [
        await ask(proxy, "openai-chat", fields)
        for fields in (
            {"messages": [{"role": "user", "content": picture}]},
            {"tools": [{"type": "x", "container": "auto"}]},
        )
    ]

    [request] = upstream.requests
    assert accepted.status == 200
    assert request.json["tools"] == [FUNCTION, tool]
    assert request.json["search_parameters"] == {"mode": "on"}
    assert "tools[].headers dropped" in accepted.headers["x-headrace-warning"]
    assert "search_parameters.sources dropped" in accepted.headers["x-headrace-warning"]
    assert [(reply.status, reply.error["param"]) for reply in refused] == [
        (400, "messages[].content[].image_url.url"),
        (400, "tools[].container"),
    ]


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


@pytest.mark.parametrize("route", ["openai", "openai-chat", "fireworks"])
async def test_more_expensive_options_are_refused(
    route: str, start: Start, upstream: ScriptedUpstream
) -> None:
    proxy = await start()
    for name, fields in DEARER:
        reply = await ask(proxy, route, fields)
        assert (reply.status, reply.error["param"]) == (400, name)

    assert upstream.requests == []
