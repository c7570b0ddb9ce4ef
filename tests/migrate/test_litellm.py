"""A configuration of LiteLLM, part by part."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.migrate.draft import Draft
from proxy.migrate.litellm import draft_of


def draft(*models: dict[str, Any], **sections: Any) -> Draft:
    items = [{"model_name": "m", "litellm_params": params} for params in models]
    return draft_of({"model_list": items, **sections}, "config")


def test_equal_targets_share_an_upstream_and_others_get_their_own() -> None:
    made = draft(
        {"model": "openai/a", "api_key": "os.environ/ONE"},
        {"model": "openai/b", "api_key": "os.environ/ONE"},
        {"model": "c", "api_key": "os.environ/TWO", "timeout": 1.5},
    )

    assert {name: each["api_key"] for name, each in made.upstreams.items()} == {
        "openai": "${ONE}",
        "openai-2": "${TWO}",
    }
    assert made.upstreams["openai-2"]["timeouts"] == {"total": "1500ms"}
    targets = made.deployments["m"]["targets"]
    assert [(each["upstream"], each["model"], each["weight"]) for each in targets] == [
        ("openai", "a", 1),
        ("openai", "b", 1),
        ("openai-2", "c", 1),
    ]


def test_an_order_is_a_fallback() -> None:
    made = draft({"model": "openai/b", "order": 2}, {"model": "openai/a", "order": 1})
    alone = draft({"model": "openai/b", "order": 2})

    assert [each["model"] for each in made.deployments["m"]["targets"]] == ["a"]
    assert [each["model"] for each in made.deployments["m"]["fallback"]] == ["b"]
    assert [each["model"] for each in alone.deployments["m"]["targets"]] == ["b"]


def test_prices_are_of_a_million_tokens() -> None:
    made = draft(
        {"model": "openai/a", "input_cost_per_token": 1.5e-7, "output_cost_per_token": "6e-7"}
    )

    assert made.deployments["m"]["targets"][0]["price"] == {"input": 0.15, "output": 0.6}


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"model_list": {}},
        {"model_list": [None, 1, [], {"model_name": 1, "litellm_params": []}]},
        {"model_list": "x", "litellm_settings": [], "router_settings": 7, "guardrails": [{}]},
        {"model_list": [{"model_name": {}, "litellm_params": {"model": ["a"]}}]},
        {"router_settings": {"fallbacks": [{"a": "b"}, 1], "model_group_alias": {"a": None}}},
    ],
)
def test_a_configuration_of_odd_shapes_makes_no_target_and_no_bug(config: Any) -> None:
    assert draft_of(config, "config").deployments == {}


def test_other_names_of_a_model_are_names_of_its_deployment() -> None:
    items = [
        {"model_name": name, "litellm_params": {"model": "openai/a"}} for name in ("Big One", "b")
    ]
    aliases = {"gpt-4": "b", "four": {"model": "b"}, "Big One": "b", "none": "c"}

    made = draft_of({"model_list": items, "router_settings": {"model_group_alias": aliases}}, "c")

    names = {name: each.get("also_known_as") for name, each in made.deployments.items()}
    assert names == {"big-one": ["Big One"], "b": ["gpt-4", "four"]}
    assert [note.partition(":")[0] for note in made.notes] == [
        "router_settings.model_group_alias.Big One",
        "router_settings.model_group_alias.none",
    ]


def test_what_is_more_than_a_policy_takes_is_as_much_as_it_takes() -> None:
    made = draft(
        {"model": "openai/a", "weight": 1e9, "api_base": "https://me:sk-1@a.test/v1?key=sk-2"},
        router_settings={"allowed_fails": 1e9},
    )

    [upstream] = made.upstreams.values()
    assert (upstream["base_url"], upstream["breaker"]["failures"]) == ("https://a.test/v1", 10_000)
    assert made.deployments["m"]["targets"][0]["weight"] == 1_000_000
    assert any("api_base" in note for note in made.notes)
