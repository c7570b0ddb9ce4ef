"""Portkey configs, each of which becomes one deployment."""

from __future__ import annotations

from typing import Any

from proxy.migrate.portkey import NO_EMBEDDINGS_NOTE, convert_config
from tests.for_each import for_each

GPT = {"virtual_key": "openai-prod", "override_params": {"model": "gpt-4o"}}
CLAUDE = {"provider": "@anthropic-1", "override_params": {"model": "claude-sonnet-4-5"}}


def models(targets: list[dict[str, Any]]) -> list[tuple[str, int | None]]:
    return [(target["model"], target.get("weight")) for target in targets]


@for_each(
    ("mode", "weights", "targets", "fallback"),
    [
        ("fallback", (1, 0.5), [("gpt-4o", None)], [("claude-sonnet-4-5", None)]),
        ("loadbalance", (0.75, 0.25), [("gpt-4o", 750), ("claude-sonnet-4-5", 250)], []),
    ],
)
def test_strategy_is_migrated(
    mode: str, weights: tuple[float, float], targets: list[Any], fallback: list[Any]
) -> None:
    listed = [{**GPT, "weight": weights[0]}, {**CLAUDE, "weight": weights[1]}]
    config = {"strategy": {"mode": mode}, "targets": listed}

    [deployment] = convert_config(config, "Support Desk", {}).deployments.values()

    assert models(deployment["targets"]) == targets
    assert models(deployment.get("fallback", [])) == fallback


def test_config_may_be_a_target() -> None:
    config = {"provider": "openai", "override_params": {"model": "@groq-eu/llama"}}
    converted = convert_config(config, "c", {})

    assert converted.upstreams["groq-eu"]["base_url"] == "https://api.groq.com/openai/v1"
    assert models(converted.deployments["c"]["targets"]) == [("llama", None)]


def test_invalid_url_is_not_copied() -> None:
    converted = convert_config({"targets": [{**GPT, "custom_host": "sk-live"}]}, "c", {})

    assert (converted.upstreams, converted.skipped_count) == ({}, 1)
    assert converted.notes[0] == (
        "targets[0].custom_host: is not an http or https URL. This target was not converted."
    )


def test_retries_cache_and_timeout_are_migrated() -> None:
    config = {
        "targets": [GPT],
        "retry": {"attempts": 3, "on_status_codes": [429, 418, [429], "429"]},
        "cache": {"mode": "semantic", "max_age": 60},
        "request_timeout": 1500,
    }

    converted = convert_config(config, "c", {})

    assert converted.deployments["c"]["retry"] == {"times": 3, "on": [429]}
    assert converted.deployments["c"]["cache"] == {"ttl": "60s"}
    assert converted.notes == [f"cache.mode: {NO_EMBEDDINGS_NOTE}"]
    assert converted.upstreams["openai-prod"]["timeouts"] == {"total": "1500ms"}


def test_secrets_are_not_written() -> None:
    converted = convert_config({"targets": [{**GPT, "api_key": "sk-live"}]}, "c", {})

    assert "sk-live" not in "".join(converted.render_files().values())
    assert converted.notes == [
        "targets[0].api_key: the secret is not copied. Set OPENAI_PROD_API_KEY to it."
    ]


def test_accounts_have_separate_keys() -> None:
    other_item = {**GPT, "virtual_key": "openai-eu"}
    plain = {"provider": "openai", "override_params": {"model": "gpt-4o"}}

    converted = convert_config({"targets": [GPT, other_item, plain]}, "c", {})

    assert {name: item["api_key"] for name, item in converted.upstreams.items()} == {
        "openai-prod": "${OPENAI_PROD_API_KEY}",
        "openai-eu": "${OPENAI_EU_API_KEY}",
        "openai": "${OPENAI_API_KEY}",
    }


@for_each(
    "config",
    [{}, {"targets": [1, None, {}]}, {"targets": [{"virtual_key": "mine"}]}, {"strategy": 1}],
)
def test_missing_model_is_noted(config: dict[str, Any]) -> None:
    converted = convert_config(config, "c", {})

    assert converted.deployments == {}
    assert converted.notes
