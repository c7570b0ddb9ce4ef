"""A saved config of Portkey becomes one deployment."""

from __future__ import annotations

from typing import Any

from proxy.migrate.portkey import NO_EMBEDDINGS, draft_of
from tests.for_each import for_each

GPT = {"virtual_key": "openai-prod", "override_params": {"model": "gpt-4o"}}
CLAUDE = {"provider": "@anthropic-1", "override_params": {"model": "claude-sonnet-4-5"}}


def deployment(**config: Any) -> dict[str, Any]:
    result: dict[str, Any] = draft_of(config, "Support Desk", {}).deployments["support-desk"]
    return result


def models(targets: list[dict[str, Any]]) -> list[tuple[str, int | None]]:
    return [(target["model"], target.get("weight")) for target in targets]


def test_a_fallback_is_asked_in_order() -> None:
    result = deployment(strategy={"mode": "fallback"}, targets=[GPT, {**CLAUDE, "weight": 0.5}])

    assert models(result["targets"]) == [("gpt-4o", None)]
    assert models(result["fallback"]) == [("claude-sonnet-4-5", None)]


def test_a_balance_is_by_weight() -> None:
    shares = [{**GPT, "weight": 0.75}, {**CLAUDE, "weight": 0.25}]

    result = deployment(strategy={"mode": "loadbalance"}, targets=shares)

    assert models(result["targets"]) == [("gpt-4o", 750), ("claude-sonnet-4-5", 250)]


def test_a_config_may_be_one_target_itself() -> None:
    converted = draft_of(
        {"provider": "openai", "override_params": {"model": "@groq-eu/llama"}}, "c", {}
    )

    assert converted.upstreams["groq-eu"]["base_url"] == "https://api.groq.com/openai/v1"
    assert models(converted.deployments["c"]["targets"]) == [("llama", None)]


def test_what_is_no_address_is_copied_nowhere() -> None:
    converted = draft_of({"targets": [{**GPT, "custom_host": "sk-live"}]}, "c", {})

    assert (converted.upstreams, converted.left_out) == ({}, 1)
    assert converted.notes[0] == (
        "targets[0].custom_host: is not an http or https URL. This target is skipped."
    )


def test_retries_a_cache_and_a_time_come_over() -> None:
    config = {
        "targets": [GPT],
        "retry": {"attempts": 3, "on_status_codes": [429, 418, [429], "429"]},
        "cache": {"mode": "semantic", "max_age": 60},
        "request_timeout": 1500,
    }

    converted = draft_of(config, "c", {})

    assert converted.deployments["c"]["retry"] == {"times": 3, "on": [429]}
    assert converted.deployments["c"]["cache"] == {"ttl": "60s"}
    assert converted.notes == [f"cache.mode: {NO_EMBEDDINGS}"]
    assert converted.upstreams["openai-prod"]["timeouts"] == {"total": "1500ms"}


def test_no_secret_of_a_config_is_written() -> None:
    converted = draft_of({"targets": [{**GPT, "api_key": "sk-live"}]}, "c", {})

    assert "sk-live" not in "".join(converted.files().values())
    assert converted.notes == [
        "targets[0].api_key: the secret is not copied. Set OPENAI_PROD_API_KEY to it."
    ]


def test_accounts_of_one_provider_have_keys_of_their_own() -> None:
    other_item = {**GPT, "virtual_key": "openai-eu"}
    plain = {"provider": "openai", "override_params": {"model": "gpt-4o"}}

    converted = draft_of({"targets": [GPT, other_item, plain]}, "c", {})

    assert {name: item["api_key"] for name, item in converted.upstreams.items()} == {
        "openai-prod": "${OPENAI_PROD_API_KEY}",
        "openai-eu": "${OPENAI_EU_API_KEY}",
        "openai": "${OPENAI_API_KEY}",
    }


@for_each(
    "config",
    [{}, {"targets": [1, None, {}]}, {"targets": [{"virtual_key": "mine"}]}, {"strategy": 1}],
)
def test_what_names_no_model_at_a_provider_is_told(config: dict[str, Any]) -> None:
    converted = draft_of(config, "c", {})

    assert converted.deployments == {}
    assert converted.notes
