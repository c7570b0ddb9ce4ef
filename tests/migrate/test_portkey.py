"""A saved config of Portkey becomes one deployment."""

from __future__ import annotations

from typing import Any

from proxy.migrate.portkey import NO_EMBEDDINGS, draft_of
from tests.for_each import for_each

GPT = {"virtual_key": "openai-prod", "override_params": {"model": "gpt-4o"}}
CLAUDE = {"provider": "@anthropic-1", "override_params": {"model": "claude-sonnet-4-5"}}


def deployment(**config: Any) -> dict[str, Any]:
    found: dict[str, Any] = draft_of(config, "Support Desk", {}).deployments["support-desk"]
    return found


def models(targets: list[dict[str, Any]]) -> list[tuple[str, int | None]]:
    return [(each["model"], each.get("weight")) for each in targets]


def test_a_fallback_is_asked_in_order() -> None:
    made = deployment(strategy={"mode": "fallback"}, targets=[GPT, {**CLAUDE, "weight": 0.5}])

    assert models(made["targets"]) == [("gpt-4o", None)]
    assert models(made["fallback"]) == [("claude-sonnet-4-5", None)]


def test_a_balance_is_by_weight() -> None:
    shares = [{**GPT, "weight": 0.75}, {**CLAUDE, "weight": 0.25}]

    made = deployment(strategy={"mode": "loadbalance"}, targets=shares)

    assert models(made["targets"]) == [("gpt-4o", 750), ("claude-sonnet-4-5", 250)]


def test_a_config_may_be_one_target_itself() -> None:
    made = draft_of({"provider": "openai", "override_params": {"model": "@groq-eu/llama"}}, "c", {})

    assert made.upstreams["groq-eu"]["base_url"] == "https://api.groq.com/openai/v1"
    assert models(made.deployments["c"]["targets"]) == [("llama", None)]


def test_what_is_no_address_is_copied_nowhere() -> None:
    made = draft_of({"targets": [{**GPT, "custom_host": "sk-live"}]}, "c", {})

    assert (made.upstreams, made.left_out) == ({}, 1)
    assert made.notes[0] == (
        "targets[0].custom_host: is not an http or https URL. This target is skipped."
    )


def test_retries_a_cache_and_a_time_come_over() -> None:
    config = {
        "targets": [GPT],
        "retry": {"attempts": 3, "on_status_codes": [429, 418, [429], "429"]},
        "cache": {"mode": "semantic", "max_age": 60},
        "request_timeout": 1500,
    }

    made = draft_of(config, "c", {})

    assert made.deployments["c"]["retry"] == {"times": 3, "on": [429]}
    assert made.deployments["c"]["cache"] == {"ttl": "60s"}
    assert made.notes == [f"cache.mode: {NO_EMBEDDINGS}"]
    assert made.upstreams["openai-prod"]["timeouts"] == {"total": "1500ms"}


def test_no_secret_of_a_config_is_written() -> None:
    made = draft_of({"targets": [{**GPT, "api_key": "sk-live"}]}, "c", {})

    assert "sk-live" not in "".join(made.files().values())
    assert made.notes == [
        "targets[0].api_key: the secret is not copied. Set OPENAI_PROD_API_KEY to it."
    ]


def test_accounts_of_one_provider_have_keys_of_their_own() -> None:
    other = {**GPT, "virtual_key": "openai-eu"}
    plain = {"provider": "openai", "override_params": {"model": "gpt-4o"}}

    made = draft_of({"targets": [GPT, other, plain]}, "c", {})

    assert {name: each["api_key"] for name, each in made.upstreams.items()} == {
        "openai-prod": "${OPENAI_PROD_API_KEY}",
        "openai-eu": "${OPENAI_EU_API_KEY}",
        "openai": "${OPENAI_API_KEY}",
    }


@for_each(
    "config",
    [{}, {"targets": [1, None, {}]}, {"targets": [{"virtual_key": "mine"}]}, {"strategy": 1}],
)
def test_what_names_no_model_at_a_provider_is_told(config: dict[str, Any]) -> None:
    made = draft_of(config, "c", {})

    assert made.deployments == {}
    assert made.notes
