"""No spelling of a field name hides the field from the policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.adversary.test_what_a_request_may_say import ask, proxied
from tests.doubles import ScriptedUpstream

GROUPS = (
    "chat_template_kwargs", "custom_params", "extra_body", "generation_config", "google",
    "inference_config", "inference_extra_params", "model_kwargs", "nvext", "options", "parameters",
    "reasoning", "sampling_params", "thinking", "thinking_config",
)  # fmt: skip


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("route", ["openai", "openai-chat", "fireworks", "scale", "multimodel"])
async def test_no_group_of_options_chooses_a_model(
    route: str, group: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    wrong = 422 if route == "scale" else 400
    async with proxied(tmp_path, upstream, extra="accepts: [model],") as (proxy, client):
        for name in ("model", "MODEL", "model_id", "model_name", "engine", "deployment"):
            status, _, fields = await ask(client, route, {group: {name: "gpt-5-pro"}})
            assert (status, fields["error"]["param"]) == (wrong, f"{group}.{name.lower()}")
        deeper: dict[str, Any] = {group: {"extra_body": {"model": "gpt-5-pro"}}}
        status, _, fields = await ask(client, route, deeper)
        records = await proxy.sink.wait(7)

    assert (status, fields["error"]["param"]) == (wrong, f"{group}.extra_body.model")
    assert upstream.requests == []
    assert {record.outcome for record in records} == {"client_error"}


def spellings(name: str) -> set[str]:
    """Return names that a server may read as this one: case, forms, camel case, hyphens."""
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
@pytest.mark.parametrize(
    "path", [*NAMES, "stream", "user", "top_p", *(f"extra_body.{name}" for name in NAMES)]
)
async def test_no_spelling_of_a_name_passes(
    path: str, route: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    group, _, name = path.rpartition(".")
    if group and route != "openai-chat":
        return
    events = set()
    async with proxied(tmp_path, upstream) as (_, client):
        for spelled in sorted(spellings(name)):
            body: Any = {spelled: {"num_predict": 900_000}}
            status, _, fields = await ask(client, route, {group: body} if group else body)
            events.add((status, fields["error"]["param"]))

    assert events == {(422 if route == "scale" else 400, path)}
    assert upstream.requests == []


async def test_accepts_names_of_other_scripts(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    fields = {"größe": 5, "長さ": 1, "ﬁeld": True, "timeout": 5, "keepAlive": 1, "top-a": 0.1}
    async with proxied(tmp_path, upstream) as (_, client):
        status, _, _ = await ask(client, "openai-chat", fields)

    [request] = upstream.requests
    assert (status, {name: request.json[name] for name in fields}) == (200, fields)
