"""Fields of SDK request types reach the upstream, or are refused if they refer outside."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import ClientSession, web
from pytest_aiohttp.plugin import AiohttpRawServer

from proxy.dialects.requests.field_filter import apply_field_rules
from proxy.errors import InvalidField
from proxy.types import Json, Upstream
from tests.conftest import KEY, running_proxy
from tests.passthrough.listed_policies import BEARER, digest
from tests.sdks.conftest import PYTHON, TOP, needs
from tests.sdks.request_types import CANARY

UPSTREAM = Upstream("a", "openai", "https://llm.example")
REFERS = re.compile(
    r"(?:^|_)(?:ids?|urls?|uri|headers?|auth\w*|models?|secrets?|domains?|tokens?|keys?|path|host"
    r"|address|endpoint|credentials?|connector|file|source|server\w*)$"
)
"""Last names of fields that may refer to an address, a secret, a model or data of an account."""
WITHIN_THE_REQUEST = frozenset(
    {"approval_request_id", "call_id", "caller_id", "id", "mcp_server_name", "server_label"}
    | {"server_name", "tab_id", "tool_call_id", "tool_id", "tool_use_id", "download_id"}
)
"""Names of tools, calls and parts of the same request. Ids of items are sealed elsewhere."""
FOR_THE_MODEL = frozenset(
    {"allowed_domains", "blocked_domains", "file_url", "image_url", "path", "source", "url"}
    | {"file", "server_description", "server_tool_results", "user_id"}
)
"""What the model reads or searches, or a description."""
OTHER_MEANINGS = frozenset(
    {"budget_tokens", "hold_key", "input_tokens", "key", "keys", "output_tokens", "token"}
    | {"max_completion_tokens", "max_content_tokens", "max_output_tokens", "max_tokens"}
    | {"prompt_cache_key", "reasoning_tokens", "total_tokens"}
)
"""Counts, keyboard keys, names in filters, and words of a model."""
HARMLESS = WITHIN_THE_REQUEST | FOR_THE_MODEL | OTHER_MEANINGS
CHECKED_FREE = frozenset(
    {"annotations", "configs", "content", "filters", "headers", "input_schema", "logit_bias"}
    | {"output_schema", "parameters", "schema", "tools", "trigger", "variables"}
)
"""Fields of any JSON in which names are checked: schemas except for their properties, tools that
are chosen and what a server says of them, headers, and options."""
QUOTATIONS = frozenset({"annotations", "citations", "from", "results", "svg_usage", "to"})
TYPED = frozenset({"arguments", "input_examples", "metadata"})
"""Fields of the client's data for which the SDKs have a type."""


def read_fields() -> list[tuple[str, bool, str, Json]]:
    """Return each path of a request type, whether it is any JSON, its API path and a body."""
    needs(PYTHON)
    command = [str(PYTHON), "-m", "tests.sdks.request_types"]
    run = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=True)
    return [tuple(json.loads(line)) for line in run.stdout.splitlines()]


@pytest.fixture(scope="module")
def fields() -> list[tuple[str, bool]]:
    """Paths of the SDKs' request types, and whether each may be any JSON."""
    return sorted({(path, is_free) for path, is_free, _, _ in read_fields()})


def body_of(path: str) -> Json:
    value: object = "other"
    for step in reversed(path.split(".")):
        name = step.replace("[]", "")
        for _ in range(step.count("[]")):
            value = [value]
        value = {name: value}
    assert isinstance(value, dict)
    return value


def is_refused(body: Json) -> bool:
    try:
        apply_field_rules(body, UPSTREAM, "gpt-4o")
    except InvalidField:
        return True
    return False


def is_free(path: str) -> bool:
    """Return True if a field may have members of any name. Items of a conversation are an input."""
    return not is_refused(body_of(re.sub(r"^items\b", "input", path) + ".server_url"))


def test_fields_that_refer_outside_are_refused(fields: list[tuple[str, bool]]) -> None:
    passing = []
    for path, _ in fields:
        outer, _, name = path.replace("[]", "").rpartition(".")
        if not REFERS.search(name) or name in HARMLESS or path == "model":
            continue
        if not is_refused(body_of(path)) and not is_free(outer):
            passing.append(path)

    assert len(fields) > 1_500
    assert passing == []


def test_free_form_json_is_free_in_the_sdks(fields: list[tuple[str, bool]]) -> None:
    """A field with members of any name is any JSON in the types, a quotation, or within one."""
    free = {path.replace("[]", ""): any_json for path, any_json in fields if is_free(path)}
    outermost = {path for path in free if path.rpartition(".")[0] not in free}
    checked = {path.replace("[]", "") for path, any_json in fields if any_json} - free.keys()

    typed = {path.split(".")[-1] for path in outermost if not free[path]}
    assert typed <= QUOTATIONS | TYPED
    assert {path.split(".")[-1] for path in checked} <= CHECKED_FREE
    assert len(outermost) >= 20


def test_quotations_are_no_requests(fields: list[tuple[str, bool]]) -> None:
    """Quotations occur only within messages and items, where servers read no options."""
    outer = {
        path.split(".")[0]
        for path, _ in fields
        if path.replace("[]", "").split(".")[-1] in QUOTATIONS and is_free(path)
    }

    assert outer <= {"input[]", "items[]", "messages[]", "system[]"}


LISTED, BATCHES = "/v1/anything", "/v1/messages/batches"
MODELS = {"messages": "claude", "responses": "gpt-r", "chats": "gpt-c"}
OF_THE_PROVIDER = ("container.skills[].skill_id", ".content.content[].file_id")
"""Ids of what everybody may use: skills of Anthropic, and outputs that a message quotes."""


def policies(url: str) -> str:
    price = "price: {input: 1, output: 2}"
    return f"""
upstreams:
  openai: {{dialect: openai, base_url: '{url}/v1', breaker: off}}
  anthropic: {{dialect: anthropic, base_url: '{url}', breaker: off}}
keys:
  app: {{sha256: {digest(KEY)}, deployments: [chats, responses, messages]}}
deployments:
  chats: {{targets: [{{upstream: openai, model: gpt-c, endpoint: chat, {price}}}]}}
  responses:
    targets: [{{upstream: openai, model: gpt-r, {price}}}]
    passthrough: [{LISTED}]
  messages:
    targets: [{{upstream: anthropic, model: claude, {price}}}]
    passthrough: [{BATCHES}]
"""


def ways(url: str, body: Json) -> Iterator[tuple[str, str, Any]]:
    """Yield the deployment, the path and the body of each request that has a field."""
    served = {"/v1/messages": "messages", "/v1/chat/completions": "chats"}.get(url, "responses")
    if "conversations" not in url:
        body = {**body, "model": MODELS[served]}
    yield served, url, {"json": body}
    if served == "messages":
        yield served, BATCHES, {"json": {"requests": [{"custom_id": "a", "params": body}]}}
    body = {**body, "model": MODELS["responses"]}
    yield "responses", LISTED, {"json": body}
    form = aiohttp.FormData(default_to_multipart=True, quote_fields=False)
    for name, text in form_fields(body):
        form.add_field(name, text)
    yield "responses", LISTED, {"data": form}


def form_fields(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield the fields of a form with a body, such as ``tools[0][type]``."""
    if not isinstance(value, dict | list):
        yield name, value if isinstance(value, str) else json.dumps(value)
        return
    for step, member in value.items() if isinstance(value, dict) else enumerate(value):
        yield from form_fields(member, f"{name}[{step}]" if name else str(step))


def refers_outside(path: str) -> bool:
    outer, _, name = path.replace("[]", "").rpartition(".")
    is_quoted = path.endswith(OF_THE_PROVIDER) or (bool(outer) and is_free(outer))
    return bool(REFERS.search(name)) and name not in HARMLESS and path != "model" and not is_quoted


async def test_fields_that_refer_outside_are_dropped_from_lists(
    aiohttp_raw_server: AiohttpRawServer, tmp_path: Path
) -> None:
    fields = [read_field for read_field in read_fields() if refers_outside(read_field[0])]
    bodies: list[bytes] = []

    async def upstream(request: web.BaseRequest) -> web.Response:
        bodies.append(await request.read())
        return web.json_response({"id": "conv_1", "object": "conversation", "created_at": 1})

    url = str((await aiohttp_raw_server(upstream)).make_url("")).rstrip("/")
    reached, events = list[tuple[str, str]](), list[str]()
    async with (
        running_proxy(tmp_path / "policies", policies(url), id_secrets=("a secret",)) as proxy,
        ClientSession(base_url=proxy.url, headers=BEARER) as client,
    ):
        headers = {"x-headrace-deployment": "responses"}
        async with client.post("/v1/conversations", headers=headers, json={}) as response:
            conversation = (await response.json())["id"]
        for path, _, route, body in fields:
            for deployment, place, sent_value in ways(route.format(id=conversation), body):
                bodies.clear()
                headers = {"x-headrace-deployment": deployment}
                async with client.post(place, headers=headers, **sent_value) as response:
                    refusal = await response.text()
                if any(CANARY.encode() in raw for raw in bodies):
                    reached.append((path, place))
                events.append(refusal)

    assert reached == []
    assert sum("unless the upstream accepts" in text for text in events) > 0.98 * len(events) > 600
