"""Searches for members at any depth that select an address, a secret, a model or another tenant.

Tools, files and ids are refused in JSON and in forms. Free-form JSON may use the same names.
"""

from __future__ import annotations

import re
import string
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import pytest

from proxy.dialects.passthrough.form import check_form_field
from proxy.dialects.requests.field_filter import apply_field_rules
from proxy.errors import InvalidField
from proxy.fields.member_table import FREE_FORM, MEMBERS
from proxy.fields.rules import POLICY_FIELDS
from proxy.types import Target, Upstream
from tests.conftest import KEY, Proxy
from tests.dialects.test_stored_state import StatefulProxy, policy, stateful_proxy
from tests.doubles import Json, ScriptedUpstream, respond
from tests.for_each import for_each

UPSTREAM = Upstream("openai", "openai", "https://example.com")
ELSEWHERE = "https://evil.example/mcp"
NETWORK: Json = {"type": "allowlist", "allowed_domains": ["evil.example"]}
SECRETS: Json = {"domain_secrets": [{"domain": "evil.example", "name": "a", "value": "b"}]}
INLINE: Json = {"type": "inline", "source": {"type": "base64", "data": "AAAA"}}

TOOLS: dict[str, Json] = {
    "server_url": {"type": "mcp", "server_label": "a", "server_url": ELSEWHERE},
    "authorization": {"type": "mcp", "server_label": "a", "authorization": "token"},
    "headers": {"type": "mcp", "server_label": "a", "headers": {"x-key": "a"}},
    "connector_id": {"type": "mcp", "connector_id": "connector_gmail"},
    "tunnel_id": {"type": "mcp", "tunnel_id": "tunnel_1"},
    "vector_store_ids": {"type": "file_search", "vector_store_ids": ["vs_1"]},
    "model": {"type": "image_generation", "model": "expensive"},
    "mask": {"type": "image_generation", "input_image_mask": {"file_id": "file-1"}},
    "container": {"type": "code_interpreter", "container": "cntr_1"},
    "file_ids": {"type": "code_interpreter", "container": {"type": "auto", "file_ids": ["f"]}},
    "environment": {"type": "shell", "environment": {"container_id": "cntr_1"}},
    "network": {"type": "shell", "environment": {"network_policy": NETWORK}},
    "secrets": {"type": "shell", "environment": {"network_policy": SECRETS}},
    "skill_id": {"type": "shell", "environment": {"skills": [{"skill_id": "skill_1"}]}},
    "server tool": {"type": "openrouter:advisor", "parameters": {"model": "expensive"}},
    "inline skill": {"type": "shell", "environment": {"skills": [INLINE]}},
}
TOOL_LISTS: dict[str, Callable[[Json], Json]] = {
    "tools": lambda tool: {"tools": [tool]},
    "namespace": lambda tool: {"tools": [{"type": "namespace", "name": "n", "tools": [tool]}]},
    "tool_choice": lambda tool: {"tool_choice": {"type": "allowed_tools", "tools": [tool]}},
    "additional_tools": lambda tool: {"input": [{"type": "additional_tools", "tools": [tool]}]},
    "tool_search_output": lambda tool: {
        "input": [{"type": "tool_search_output", "call_id": "c", "tools": [tool]}]
    },
    "namespace in an item": lambda tool: {
        "input": [{"type": "additional_tools", "tools": [{"type": "namespace", "tools": [tool]}]}]
    },
    "batch": lambda tool: {"requests": [{"custom_id": "a", "params": {"tools": [tool]}}]},
    "session": lambda tool: {"session": {"tools": [tool]}},
    "nested lists": lambda tool: {"input": [[{"tools": [[tool]]}]]},
    "extra_body": lambda tool: {"extra_body": {"parameters": {"tools": [tool]}}},
}


@for_each("tool_list", TOOL_LISTS)
@for_each("tool", TOOLS)
def test_tools_are_checked_in_every_list(tool: str, tool_list: str) -> None:
    with pytest.raises(InvalidField, match="clients may not set this field"):
        apply_field_rules(TOOL_LISTS[tool_list](TOOLS[tool]), UPSTREAM)


FILE: Json = {"type": "input_file", "file_id": "file-1"}
ACCOUNT_IDS: dict[str, Json] = {
    "input[].content[].file_id": {"input": [{"role": "user", "content": [FILE]}]},
    "input[].output[].file_id": {"input": [{"type": "function_call_output", "output": [FILE]}]},
    "input[].output.file_id": {
        "input": [{"type": "computer_call_output", "output": {"file_id": "file-1"}}]
    },
    "messages[].content[].file.file_id": {
        "messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}]
    },
    "messages[].content[].source.file_id": {
        "messages": [{"role": "user", "content": [{"type": "image", "source": {"file_id": "f"}}]}]
    },
    "messages[].content[].content[].source.file_id": {
        "messages": [{"content": [{"content": [{"source": {"file_id": "f"}}]}]}]
    },
    "messages[].audio.id": {"messages": [{"role": "assistant", "audio": {"id": "audio_1"}}]},
    "container.skills[].skill_id": {"container": {"skills": [{"skill_id": "skill_1"}]}},
    "moderation.model": {"moderation": {"model": "expensive"}},
    "diagnostics.previous_message_id": {"diagnostics": {"previous_message_id": "msg_1"}},
    "tool.comparison_response_id": {"tool": {"comparison_response_id": "resp_1"}},
    "audio.voice.id": {"audio": {"voice": {"id": "voice_1"}}},
    "session.prompt.id": {"session": {"prompt": {"id": "pmpt_1"}}},
    "tools[].vector_store_ids": {"tools": [{"vector_store_ids": ["vs_1"]}]},
}


@for_each(("param", "body"), ACCOUNT_IDS.items())
def test_account_id_is_refused_unless_accepted(param: str, body: Json) -> None:
    with pytest.raises(InvalidField) as refused:
        apply_field_rules(body, UPSTREAM)
    accepting = Upstream("a", "openai", "https://example.com", accepts=frozenset({param}))

    assert refused.value.param == param
    assert apply_field_rules(body, accepting) == (body, [])


FORBIDDEN_NAMES = sorted(name for name in POLICY_FIELDS if "." not in name)
OUTER: dict[str, Callable[[Json], Json]] = {
    "batch": lambda fields: {"requests": [{"params": fields}]},
    "session": lambda fields: {"session": fields},
    "sessions": lambda fields: {"sessions": [fields]},
    "message": lambda fields: {"messages": [{"role": "user", **fields}]},
    "part": lambda fields: {"messages": [{"role": "user", "content": [fields]}]},
    "item": lambda fields: {"input": [fields]},
    "group in a batch": lambda fields: {"requests": [{"extra_body": fields}]},
}


@for_each("outer", OUTER)
@for_each("name", FORBIDDEN_NAMES)
def test_forbidden_fields_are_refused_at_any_depth(name: str, outer: str) -> None:
    with pytest.raises(InvalidField):
        apply_field_rules(OUTER[outer]({name: "other"}), UPSTREAM, "gpt-4o")


@for_each("outer", OUTER)
def test_nested_model_becomes_that_of_the_target(outer: str) -> None:
    body = OUTER[outer]({"model": "gpt-4o"})

    assert apply_field_rules(body, UPSTREAM, "gpt-4o") == (body, [])
    names: list[object] = ["gpt-4o-mini", {"id": "gpt-4o-mini"}, {"ID": "a", "speed": "standard"}]
    for value in names:
        with pytest.raises(InvalidField, match='must be "gpt-4o"'):
            apply_field_rules(OUTER[outer]({"model": value}), UPSTREAM, "gpt-4o")
    for value in ({"id": "gpt-4o"}, {"type": "string"}):
        body = OUTER[outer]({"model": value})
        assert apply_field_rules(body, UPSTREAM, "gpt-4o") == (body, [])


NO_CODE_OUTPUTS: tuple[object, ...] = (
    *("image_output", "x_output", "function_call_output", "_output", "x_code_execution_output"),
    *("Code_execution_output", "code_execution_output ", ["code_execution_output"], {}, None),
)


@for_each("outer", OUTER)
@for_each("type_", NO_CODE_OUTPUTS)
def test_part_of_any_type_hides_no_file(type_: object, outer: str) -> None:
    with pytest.raises(InvalidField):
        apply_field_rules(OUTER[outer]({"source": {"type": type_, "file_id": "file-1"}}), UPSTREAM)


def test_error_names_the_field_and_the_setting() -> None:
    with pytest.raises(InvalidField) as refused:
        apply_field_rules({"input": [{"content": [FILE]}]}, UPSTREAM)

    assert (refused.value.param, str(refused.value)) == (
        "input[].content[].file_id",
        "input[].content[].file_id: clients may not set this field, "
        'unless the upstream accepts "file_id"',
    )


SAME_NAMES: Json = {
    "model": "a", "server_url": "b", "file_id": "c", "headers": {"authorization": "d"},
    "tools": [{"type": "mcp", "server_url": ELSEWHERE}], "container": {"id": "e"},
}  # fmt: skip


def code_output(tool: str) -> Json:
    output = {"type": f"{tool}_output", "file_id": "f"}
    content = {"type": f"{tool}_result", "content": [output]}
    result = {"type": f"{tool}_tool_result", "content": content}
    return {"messages": [{"role": "user", "content": [result]}]}


SCHEMA: Json = {"type": "object", "properties": SAME_NAMES, "required": ["server_url"]}
FREE_FORM_BODIES: dict[str, Json] = {
    "metadata": {"metadata": SAME_NAMES},
    "chat function": {"tools": [{"type": "function", "function": {"parameters": SCHEMA}}]},
    "Responses function": {"tools": [{"type": "function", "parameters": SCHEMA}]},
    "Messages tool": {"tools": [{"name": "f", "input_schema": SCHEMA}]},
    "examples": {"tools": [{"name": "f", "input_examples": [SAME_NAMES]}]},
    "deferred function": {
        "input": [{"type": "tool_search_output", "tools": [{"parameters": SCHEMA}]}]
    },
    "response_format": {"response_format": {"json_schema": {"name": "a", "schema": SCHEMA}}},
    "text format": {"text": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    "output_config": {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    "tool_use": {
        "messages": [
            {"role": "assistant", "content": [{"type": "tool_use", "input": SAME_NAMES}]},
        ]
    },
    "arguments": {"input": [{"type": "tool_search_call", "arguments": SAME_NAMES}]},
    "items beside an object": {"content": [{"input": {"file_id": "f"}}, {"input": [{}]}]},
    "documents": {"documents": [{"model": "a", "headers": "b"}]},
    "citations": {
        "input": [{"role": "assistant", "content": [{"annotations": [{"file_id": "f"}]}]}]
    },
    **{f"{tool} output": code_output(tool) for tool in ("code_execution", "bash_code_execution")},
    "text": {"messages": [{"role": "user", "content": '{"model": "a", "server_url": "b"}'}]},
    "search": {"tools": [{"type": "web_search", "filters": {"allowed_domains": ["a.example"]}}]},
    "null": {"input": [{"type": "additional_tools", "tools": [{"server_url": None}]}]},
}  # fmt: skip


@for_each("body", FREE_FORM_BODIES.values(), ids=FREE_FORM_BODIES)
def test_free_form_json_may_use_any_name(body: Json) -> None:
    assert apply_field_rules(body, UPSTREAM) == (body, [])


FREE_FORM_NAMES = sorted(
    {
        *(member.name for member in MEMBERS.values() if member.is_schema_map),
        *(path.rpartition(".")[2] for path in FREE_FORM),
    }
    - {"input_examples", "metadata"}
)
"""Names of free-form JSON, except for those that tools have."""


@for_each("tool_list", TOOL_LISTS)
@for_each("name", FREE_FORM_NAMES)
def test_free_form_names_hide_no_field_of_a_tool(name: str, tool_list: str) -> None:
    inner = {"server_url": ELSEWHERE}
    tools: list[Json] = [{name: inner}, {name: [inner]}, {"mcp": {name: inner}}]
    for tool in tools:
        with pytest.raises(InvalidField, match="clients may not set this field"):
            apply_field_rules(TOOL_LISTS[tool_list]({"type": "mcp", **tool}), UPSTREAM)


def added_tool(tool: str) -> Json:
    return {"type": "additional_tools", "role": "developer", "tools": [TOOLS[tool]]}


@for_each("tool", TOOLS)
async def test_forbidden_tool_is_refused(
    tool: str, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    body = {"model": "smol-responses", "input": [added_tool(tool)]}

    reply = await proxy.send("/v1/responses", body)

    assert (reply.status, reply.error["type"]) == (400, "invalid_request_error")
    assert reply.error["param"].startswith("input[].tools[].")
    assert upstream.requests == []


TO_DEPLOYMENT = {"x-headrace-deployment": "kept"}


@pytest.mark.parametrize("path", ["/v1/conversations", "/v1/conversations/{id}/items"])
async def test_conversation_refuses_forbidden_tools(path: str, gateway: StatefulProxy) -> None:
    _, conversation, _ = await gateway.send("/v1/conversations", "POST", {}, **TO_DEPLOYMENT)
    path = path.format(id=conversation["id"])
    for tool in TOOLS:
        status, document, _ = await gateway.send(
            path, "POST", {"items": [added_tool(tool)]}, **TO_DEPLOYMENT
        )

        assert (status, document["error"]["type"]) == (400, "invalid_request_error"), tool
        assert "unless the upstream accepts" in document["error"]["message"], tool
    assert len(gateway.upstream.requests) == 1


@pytest.fixture
async def gateway(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[StatefulProxy]:
    upstream.answer_with(respond({"id": "conv_1", "object": "conversation", "created_at": 1}))
    text = policy(upstream.url).replace("  kept:\n", "  kept:\n    passthrough: [/v1/forms]\n")
    async with stateful_proxy(tmp_path / "policies", upstream, text) as running:
        yield running


FORMS = (
    ("tools", '[{"type": "mcp", "server_url": "https://evil.example"}]'),
    ("tools[0][server_url]", "https://evil.example"),
    ("extra_body", '{"api_base": "https://evil.example"}'),
    ("session", '{"model": "expensive"}'),
    ("service_tier", "priority"),
    ("image[file_id]", "file-1"),
    ("tools/0/server_url", "https://evil.example"),
    ("tools[0][ server_url ]", "https://evil.example"),
    ("tools[0][server%5furl]", "https://evil.example"),
)
SEPARATORS = sorted({*string.punctuation, " ", "\t", "\N{FULLWIDTH LEFT SQUARE BRACKET}"} - {"_"})
SPELLINGS = (
    "tools{0}0{0}server_url", "tools{0}0{0}server_url{0}", "{0}tools{0}server_url",
    "tools[0]{0}serverUrl", "tools[-1][server_url]{0}", "container{0}id", "container[-1]{0}id",
    "extra_body{0}api_base", "session{0}model", "requests[0][params]{0}service_tier", "{0}model",
    "model{0}",
)  # fmt: skip


@for_each("separator", SEPARATORS)
@for_each("spelling", SPELLINGS)
def test_form_fields_are_checked_with_any_separator(spelling: str, separator: str) -> None:
    with pytest.raises(InvalidField):
        check_form_field(spelling.format(separator), "other", Target(UPSTREAM, "gpt-4o"))


@for_each("name", ["metadata[server_url]", "metadata.model", "my_model", "model_tier", "prompt"])
def test_allowed_form_field_passes(name: str) -> None:
    check_form_field(name, "other", Target(UPSTREAM, "gpt-4o"))


@for_each(("name", "value"), FORMS)
async def test_form_fields_follow_the_rules_of_json(
    name: str, value: str, gateway: StatefulProxy
) -> None:
    headers = {"authorization": f"Bearer {KEY}", "x-headrace-deployment": "kept"}
    writer = aiohttp.MultipartWriter("form-data")
    for field, text in (("prompt", "A cat."), (name, value)):
        writer.append(text).set_content_disposition("form-data", quote_fields=False, name=field)

    async with gateway.session.post("/v1/forms", headers=headers, data=writer) as response:
        status, document = response.status, await response.json()

    assert (status, document["error"]["type"]) == (400, "invalid_request_error")
    outermost = re.split(r"\W", document["error"]["param"])[0]
    assert outermost in (re.split(r"\W", name)[0], "form")
    assert gateway.upstream.requests == []
