"""Targets: prices that USD limits require, ranges of fields, names, and Azure."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from proxy.policy.review.check import CheckReport, check_folder
from tests.conftest import DIGEST, Proxy, running_proxy
from tests.doubles import ScriptedUpstream, chat, chat_events, respond, stream
from tests.for_each import for_each
from tests.policy.decisions import read_text
from tests.test_pipeline import BEARER, MESSAGES

FOLDER = f"""\
upstreams: {{up: {{dialect: openai, base_url: 'https://api.example.test', provider: own}}}}
keys: {{widget: {{sha256: {"0" * 64}, deployments: [chat]}}}}
policies:
  default:
    limits: [{{name: month, usd: 5 per month}}]
    rules: []
deployments:
  chat:
    targets: [{{upstream: up, model: m, price: {{input: 1, output: 2}}}}]
prices: {{}}
"""
SAY = (
    'but limit "month" is in USD. Add "price:" to this target, or set "unpriced: allow" '
    "on the limit."
)


def check_report(folder: Path, *changes: tuple[str, str]) -> CheckReport:
    text = FOLDER
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "p.yaml").write_text(text)
    return check_folder(folder, {})


PRICE = ", price: {input: 1, output: 2}"
RULE = "rules: [{name: r, RULE}]"


@for_each(
    ("changes", "error"),
    [
        ([(PRICE, "")], f'9:15: deployments.chat.targets[0]: model "m" has no known price, {SAY}'),
        ([(", output: 2", "")],
            f"9:15: deployments.chat.targets[0]: model \"m\" has no price for output, {SAY}"),
        ([("{input: 1, output: 2}", "{output: 2}")],
            f"9:15: deployments.chat.targets[0]: model \"m\" has no price for input, {SAY}"),
        ([("}]\nprices", "}]\n    fallback: [{upstream: up, model: spare}]\nprices")],
            f"10:16: deployments.chat.fallback[0]: model \"spare\" has no known price, {SAY}"),
        ([("rules: []", RULE), ("RULE", "targets: [{upstream: up, model: x}]")],
            f"6:33: policies.default.rules[0].targets[0]: model \"x\" has no known price, {SAY}"),
        (
            [("rules: []", RULE), ("RULE", "targets: [{upstream: up, model: x}]"), ("limits: ["
              "{name: month, usd: 5 per month}]", "limits: []"),
             ("model: x}]", "model: x}], limits: [{name: month, usd: 5 per month}]")],
            f"6:33: policies.default.rules[0].targets[0]: model \"x\" has no known price, {SAY}",
        ),
        ([("per month}]", "per month, mode: shadow}]"), (PRICE, "")],
            f"9:15: deployments.chat.targets[0]: model \"m\" has no known price, {SAY}"),
    ],
)  # fmt: skip
def test_budget_needs_price(changes: list[tuple[str, str]], error: str, tmp_path: Path) -> None:
    report = check_report(tmp_path, *changes)

    assert [str(problem) for problem in report.errors] == [f"p.yaml:{error}"]


@for_each(
    "changes",
    [
        [],
        [("per month}]", "per month, unpriced: allow}]"), (PRICE, "")],
        [("usd: 5", "tokens: 5k"), ("month}]", "hour}]"), ("per hour", "per minute"), (PRICE, "")],
        [("model: m", "model: text-embedding-m"), (", output: 2", "")],
        [
            ("rules: []", RULE),
            ("RULE", "targets: [{upstream: up, model: x}], without: {limits: [month]}"),
        ],
    ],
    ids=["priced", "allowed", "no money", "embeddings", "without the limit"],
)
def test_unpriced_target_is_valid_without_a_usd_limit(
    changes: list[tuple[str, str]], tmp_path: Path
) -> None:
    assert check_report(tmp_path, *changes).errors == ()


def policies(url: str) -> str:
    return f"""
upstreams:
  closed: {{dialect: fireworks, base_url: '{url}'}}
  wider:
    dialect: fireworks
    base_url: '{url}'
    accepts: [guided_json, stop: 16, top_k: 500, temperature: 1.5]
  compatible: {{dialect: openai_compatible, base_url: '{url}', include_usage: 'off'}}
  openai: {{dialect: openai, base_url: '{url}'}}
keys:
  widget:
    sha256: {DIGEST}
    deployments: [closed, wider, compatible, openai]
deployments:
  closed: {{targets: [{{upstream: closed, model: c}}]}}
  wider: {{targets: [{{upstream: wider, model: w}}], also_known_as: [gpt-4o, 'a/b:free']}}
  compatible: {{targets: [{{upstream: compatible, model: m}}]}}
  openai: {{targets: [{{upstream: openai, model: o}}], also_known_as: [c]}}
"""


@pytest.fixture
async def running(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[Proxy]:
    async with running_proxy(tmp_path / "p", policies(upstream.url)) as proxy:
        yield proxy


async def ask(proxy: Proxy, model: str, **fields: Any) -> tuple[int, Any]:
    reply = await proxy.send("/v1/chat/completions", {"model": model, **MESSAGES, **fields})
    return reply.status, reply.json


async def models(proxy: Proxy) -> Any:
    return (await proxy.send("/v1/models", method="GET")).json["data"]


def test_compatible_server_has_own_ranges_and_prices(tmp_path: Path) -> None:
    snapshot = read_text(tmp_path, policies("https://api.openai.com")).deployments
    upstreams = [snapshot[name].routes.targets[0].upstream for name in ("compatible", "openai")]

    assert [upstream.dialect for upstream in upstreams] == ["openai", "openai"]
    assert [upstream.skips_range_checks for upstream in upstreams] == [True, False]
    assert [upstream.provider for upstream in upstreams] == [None, "openai"]


@pytest.mark.parametrize(
    ("model", "fields", "problem"),
    [
        ("closed", {"stop": ["a"] * 4}, None),
        ("closed", {"stop": ["a"] * 5}, "stop: must be a string or an array of at most 4 strings"),
        ("wider", {"stop": ["a"] * 16}, None),
        ("wider", {"stop": "a"}, None),
        ("wider", {"stop": ["a"] * 17}, "stop: must have at most 16 items"),
        ("wider", {"top_k": 500}, None),
        ("wider", {"top_k": 501}, "top_k: must be at most 500"),
        ("wider", {"temperature": 1.5}, None),
        ("wider", {"temperature": 1.6}, "temperature: must be at most 1.5"),
        ("wider", {"guided_json": {"a": "b"}}, None),
        ("compatible", {"stop": ["a"] * 40, "temperature": 5, "top_logprobs": 90}, None),
    ],
    ids=str,
)
async def test_field_ranges_of_an_upstream_are_configurable(
    model: str,
    fields: dict[str, Any],
    problem: str | None,
    running: Proxy,
    upstream: ScriptedUpstream,
) -> None:
    upstream.answer_with(respond(chat()))

    fields |= {"logprobs": True} if "top_logprobs" in fields else {}
    status, reply = await ask(running, model, **fields)

    if problem is None:
        assert status == 200, reply
        assert upstream.requests[0].json.items() >= fields.items()
    else:
        assert (status, reply["error"]["message"]) == (
            400,
            f"{problem} for the upstream that serves this model",
        )
        assert upstream.requests == []


@pytest.mark.parametrize(
    "parameters", [None, {"include_usage": True}, {"include_usage": True, "x": 1}]
)
async def test_stream_options_are_not_sent_to_servers_without_them(
    parameters: Any, running: Proxy, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(stream(chat_events(" Par", "is.")))
    body = {"model": "compatible", **MESSAGES, "stream": True}
    body |= {} if parameters is None else {"stream_options": parameters}
    reply = await running.send("/v1/chat/completions", body)
    assert b"[DONE]" in reply.raw
    warning = reply.headers.get("x-headrace-warning")

    remaining = {} if parameters is None or "x" not in parameters else {"stream_options": {"x": 1}}
    request_body = upstream.requests[0].json
    assert {
        name: request_body[name] for name in request_body if name == "stream_options"
    } == remaining
    assert warning == (None if parameters is None else "stream_options dropped")
    [record] = await running.sink.wait()
    assert record.billing.tokens.output > 0


@pytest.mark.parametrize("name", ["gpt-4o", "a/b:free"])
async def test_deployment_is_called_by_any_alias(
    name: str, running: Proxy, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(respond(chat()))
    header = {**BEARER, "x-headrace-deployment": name}

    assert (await ask(running, name))[0] == 200
    body = {"model": "whatever", **MESSAGES}
    reply = await running.send("/v1/chat/completions", body, header)
    assert (reply.status, reply.headers["x-headrace-deployment"]) == (200, "wider")
    assert (await running.send(f"/v1/models/{name}", method="GET")).json["id"] == name
    listed = [model["id"] for model in await models(running)]

    assert {request.json["model"] for request in upstream.requests} == {"w"}
    assert [record.plan.deployment for record in (await running.sink.wait(4))[:2]] == ["wider"] * 2
    assert listed == ["closed", "compatible", "openai", "wider", "fireworks/c", "m", "o", "w"]


AZURES = [
    ("", "{api-version: 2024-10-21}",
        "/openai/deployments/my%2Fgpt/chat/completions?api-version=2024-10-21"),
    ("", "{}", "/openai/v1/chat/completions"),
    ("/openai/v1/", "{api-version: preview}", "/openai/v1/chat/completions?api-version=preview"),
]  # fmt: skip


@pytest.mark.parametrize(("base", "query", "path"), AZURES, ids=["classic", "next", "preview"])
async def test_azure_uses_its_paths_and_key_header(
    base: str, query: str, path: str, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.answer_with(respond(chat()))
    text = f"""
upstreams:
  mine:
    dialect: azure
    base_url: '{upstream.url}{base}'
    query: {query}
    api_key: '${{UPSTREAM_KEY}}'
keys: {{widget: {{sha256: {DIGEST}, deployments: [one]}}}}
deployments: {{one: {{targets: [{{upstream: mine, model: my/gpt}}]}}}}
"""
    async with running_proxy(tmp_path / "p", text) as proxy:
        for _ in range(2):
            assert (await ask(proxy, "one", temperature=1))[0] == 200
        status, reply = await ask(proxy, "one", stop=["a"] * 5)
        [_, model] = await models(proxy)

    assert (status, reply["error"]["param"]) == (400, "stop")  # OpenAI's ranges apply
    assert model["owned_by"] == "azure"
    for request in upstream.requests:
        assert request.path == path
        assert request.headers["api-key"] == "sk-upstream-secret"
        assert "authorization" not in request.headers
