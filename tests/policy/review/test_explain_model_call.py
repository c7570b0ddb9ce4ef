"""Explanations show the parameters that the upstream receives, and explain passthrough paths."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from proxy.dialects import DIALECTS, ROUTES
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.review.call_history import strip_call
from proxy.policy.review.explain import explain
from proxy.policy.review.sample_call import build_sample_call, guess_request_path
from proxy.policy.store import read_folder
from proxy.policytest.cases import Given, ScriptedAnswer
from proxy.policytest.harness import run_case
from proxy.types import Call, Endpoint, Json
from tests.for_each import for_each
from tests.policy.decisions import read_text
from tests.policy.review.test_explain import PASSING, run

POSITION = datetime(2026, 1, 5, 12, tzinfo=UTC)
CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
BODIES: dict[str, Json] = {
    "chat": CHAT,
    "completions": {"prompt": "Hi"},
    "embeddings": {"input": "Hi"},
    "responses": {"input": "Hi"},
}
PATHS = {
    (dialect, endpoint): path
    for (method, path), (dialect, endpoint) in reversed(ROUTES.items())
    if method == "POST" and endpoint in BODIES and "{" not in path
}
RULES: dict[str, Json] = {
    "none": {},
    "set and lower cap": {"set": {"max_tokens": 1000}, "cap": {"max_tokens": 50}},
    "set and higher cap": {"set": {"max_tokens": 5}, "cap": {"max_tokens": 50}},
    "cap": {"cap": {"max_tokens": 50}},
    "high cap": {"cap": {"max_tokens": 100_000}},
    "cap of one": {"cap": {"max_tokens": 1}},
    "set": {"set": {"max_tokens": 1000}},
    "two names": {"set": {"max_completion_tokens": 90}, "cap": {"max_tokens": 60}},
    "others": {"set": {"temperature": 0.2, "seed": 7}, "cap": {"top_p": 0.5, "n": 1}},
    "effort": {"set": {"reasoning_effort": "low"}, "cap": {"max_completion_tokens": 4000}},
}
UPSTREAMS: dict[str, Json] = {
    **{dialect: {"upstream": dialect} for dialect in DIALECTS},
    **{
        f"openai.{endpoint}": {"upstream": "openai", "endpoint": endpoint}
        for endpoint in ("chat", "completions", "responses")
    },
}
MODELS = ("gpt-4o", "o3-mini", "claude-sonnet-4-5")
REQUESTS: dict[str, Json] = {
    "nothing": {},
    "bound": {"max_tokens": 500},
    "other bound": {"max_completion_tokens": 500},
    "output bound": {"max_output_tokens": 500},
    "sampling": {"temperature": 0.9, "top_p": 0.9},
    "effort": {"reasoning_effort": "high"},
    "thinking": {"max_tokens": 4000, "thinking": {"type": "enabled", "budget_tokens": 2000}},
}


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    """Policies with a deployment per upstream dialect, model and rule."""
    folder = tmp_path_factory.mktemp("policies")
    deployments = {
        f"{upstream}-{model}-{number}": {
            "policy": f"p{number}",
            "targets": [{**target, "model": model}],
        }
        for upstream, target in UPSTREAMS.items()
        for model in MODELS
        for number, _ in enumerate(RULES)
    }
    policies = {
        f"p{number}": {"rules": [{"name": "r", "when": {"key": "widget"}, **effects}]}
        for number, effects in enumerate(RULES.values())
        if effects
    }
    plain = {"p0": {"limits": [{"name": "l", "requests": "9 per second", "mode": "shadow"}]}}
    upstreams = {
        dialect: {"dialect": dialect, "base_url": f"https://{dialect}.test"} for dialect in DIALECTS
    }
    key = {"sha256": "0" * 64, "deployments": list(deployments)}
    config = {"upstreams": upstreams, "policies": {**plain, **policies}, "deployments": deployments}
    (folder / "p.json.yaml").write_text(json.dumps({**config, "keys": {"widget": key}}))
    return read_folder(folder, None)


def parameters_by_path(body: Json, path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in body.items():
        if isinstance(value, dict):
            yield from parameters_by_path(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def changed_parameters(initial: Json, final: Json) -> dict[str, str]:
    was, now = dict(parameters_by_path(initial)), dict(parameters_by_path(final))
    return {
        name: str(now.get(name, "removed"))
        for name in {*was, *now}
        if was.get(name) != now.get(name)
    }


async def received_parameters(
    snapshot: Snapshot, path: str, deployment: str, body: Json
) -> Json | None:
    answers = [ScriptedAnswer(status=500)]
    setup = Given(key="widget", path=path, deployment=deployment, body=body, answers=answers)
    played = await run_case(snapshot, setup)
    return played.requests[0].body if played.requests else None


def explained_parameters(snapshot: Snapshot, call: Call) -> dict[str, str]:
    key = snapshot.keys["widget"]
    reasons = explain(snapshot, key, call).decisions
    parts = [part for reason in reasons for part in reason.parts if part.subject == "parameter"]
    outputs = (part.result.partition(": ") for part in parts)
    return {name: value for name, _, value in outputs}


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("model", MODELS)
@for_each("client", PATHS, ids="-".join)
@for_each("request_", REQUESTS)
async def test_explained_parameters_equal_the_sent_ones(
    upstream: str, model: str, client: tuple[str, Endpoint], request_: str, snapshot: Snapshot
) -> None:
    path, compared = PATHS[client], 0
    for number, rules in enumerate(RULES):
        deployment = f"{upstream}-{model}-{number}"
        body = {"model": deployment, **BODIES[client[1]], **REQUESTS[request_]}
        plain = await received_parameters(snapshot, path, f"{upstream}-{model}-0", body)
        request_body = await received_parameters(snapshot, path, deployment, body)
        if plain is None or request_body is None:
            continue
        headers = {"x-headrace-deployment": deployment}
        call = build_sample_call(body, headers, POSITION, path)

        assert explained_parameters(snapshot, call) == changed_parameters(plain, request_body), (
            rules,
            request_body,
        )

        past = strip_call(call, frozenset())
        assert past is not None
        if not any(isinstance(value, dict) for value in REQUESTS[request_].values()):
            assert explained_parameters(snapshot, past.restore()) == changed_parameters(
                plain, request_body
            ), (rules, request_body)
        compared += 1
    assert compared or client[1] == "embeddings" or request_ != "bound"


@pytest.mark.parametrize("extends", ["", "extends: [moved]"])
def test_rule_that_matches_only_other_names_of_the_call_is_explained(
    extends: str, tmp_path: Path
) -> None:
    policies = f"""
upstreams: {{openai: {{dialect: openai, base_url: 'https://api.example.test'}}}}
keys: {{widget: {{sha256: {"0" * 64}, deployments: [chat]}}}}
deployments: {{chat: {{policy: public, targets: [{{upstream: openai, model: gpt-4o}}]}}}}
policies:
  public:
    {extends}
    rules:
      - name: calm
        when: {{all: [{{model: gpt-4o}}, {{not: {{model: openai/gpt-4o}}}}]}}
        set: {{temperature: 0}}
  moved:
    rules:
      - {{name: move, when: {{model: gpt-4o}}, targets: [{{upstream: openai, model: other}}]}}
"""
    snapshot = read_text(tmp_path, policies, {})
    call = build_sample_call({"model": "gpt-4o", **CHAT}, {}, POSITION)

    text = explain(snapshot, snapshot.keys["widget"], call).format_tree()

    assert "calm does not apply" in text


SENT_ONCE = "/v1/images/generations (retried only if the upstream"
REPEATED = "/v1/files/{id} (retried after a failure)"


@for_each(
    ("arguments", "body", "words"),
    [
        (("--path", "/v1/images/generations"), None, f"passthrough: POST {SENT_ONCE}"),
        (("--path", "/v1/images/generations", "--deployment", "pictures"), None, "openai/dall-e-3"),
        (("--path", "/v1/images/generations", "-"), b'{"prompt": "secret"}', "not evaluated"),
        (("--path", "/v1/rerank", "-"), b'{"query": "a"}', "result: route to openai/files"),
        (("--path", "/v1/rerank", "-"), b'{"model": "b"}', "404 model_not_found"),
        (("--path", "/v1/rerank", "--deployment", "pictures"), None, "404 not_found"),
        (("--path", "/v1/files/a", "--method", "get"), None, f"passthrough: GET {REPEATED}"),
        (("--path", "/v1/models", "--method", "GET"), None, "answered with the models of the key"),
        (("--path", "/v1/conversations", "--deployment", "files"), None,
            "result: route to openai/files"),
    ],
)  # fmt: skip
def test_passthrough_path_is_explained_without_deployment(
    arguments: tuple[str, ...], body: bytes | None, words: str, tmp_path: Path
) -> None:
    (tmp_path / "policies.yaml").write_text(PASSING.replace("AAAA", "a" * 64))

    code, text = run(tmp_path, *arguments, body=body)

    assert (code, words in text) == (0, True), text


@pytest.mark.parametrize(
    ("maximum", "decided"), [(2, "rejected with 429 by limit day"), (1, "route to")]
)
def test_path_cost_is_limited(maximum: int, decided: str, tmp_path: Path) -> None:
    listed = f"{{path: /v1/images/generations, most_usd: {maximum}}}"
    limit = "    limits: [{name: day, usd: 1 per day}]\n    policy: guarded\n"
    text = PASSING.replace("AAAA", "a" * 64).replace("[/v1/images/generations]", f"[{listed}]")
    text = text.replace("model: dall-e-3", "model: dall-e-3, price: {input: 1, output: 1}")
    (tmp_path / "policies.yaml").write_text(text.replace("    policy: guarded\n", limit))

    results = run(tmp_path, "--path", "/v1/images/generations")[1]

    assert f"result: {decided}" in results
    assert f"this call reserves {maximum} USD" in results


@for_each(
    ("body", "path"),
    [
        ({"prompt": "Hi"}, "/v1/completions"),
        ({"messages": [], "max_tokens": 9}, "/v1/chat/completions"),
        ({"messages": [], "max_tokens": 9, "system": "Be kind."}, "/v1/messages"),
        ({"messages": [], "tools": [{"name": "f", "input_schema": {}}]}, "/v1/messages"),
        ({"input": "Hi"}, "/v1/responses"),
        ({"input": [{"role": "user", "content": "Hi"}]}, "/v1/responses"),
        ({"input": ["Hi"]}, "/v1/embeddings"),
        ({"input": "Hi", "dimensions": 8}, "/v1/embeddings"),
        ({}, "/v1/chat/completions"),
    ],
)
def test_path_is_derived_from_the_body(body: dict[str, Any], path: str) -> None:
    assert guess_request_path(body) == path
