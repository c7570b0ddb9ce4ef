"""Configurations of LiteLLM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from proxy.migrate.draft import Draft
from proxy.migrate.litellm import (
    ENDPOINT_BY_MODE,
    FORM_UPLOAD_MODES,
    MODE_PATHS,
    SUPPORTED_MODES,
    convert_config,
    list_passthrough_paths,
)
from proxy.policy.schema.deployments import PassthroughPathConfig
from tests.for_each import for_each


def draft(
    *models: dict[str, Any],
    info: dict[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    **sections: Any,
) -> Draft:
    """Convert models, each of which is named ``m`` or by its member ``name``."""
    items = [
        {
            "model_name": params.get("name", "m"),
            "litellm_params": {key: params[key] for key in params if key != "name"},
            "model_info": info or {},
        }
        for params in models
    ]
    return convert_config({"model_list": items, **sections}, "config", environ or {})


def test_equal_targets_share_an_upstream() -> None:
    converted = draft(
        {"model": "openai/a", "api_key": "os.environ/ONE"},
        {"model": "openai/b", "api_key": "os.environ/ONE"},
        {"model": "c", "api_key": "os.environ/TWO", "timeout": 1.5},
    )

    assert {name: item["api_key"] for name, item in converted.upstreams.items()} == {
        "openai": "${ONE}",
        "openai-2": "${TWO}",
    }
    assert converted.upstreams["openai-2"]["timeouts"] == {"total": "1500ms"}
    targets = converted.deployments["m"]["targets"]
    assert [(item["upstream"], item["model"], item["weight"]) for item in targets] == [
        ("openai", "a", 1),
        ("openai", "b", 1),
        ("openai-2", "c", 1),
    ]


def test_order_becomes_a_fallback() -> None:
    converted = draft({"model": "openai/b", "order": 2}, {"model": "openai/a", "order": 1})
    alone = draft({"model": "openai/b", "order": 2})

    assert [deployment["model"] for deployment in converted.deployments["m"]["targets"]] == ["a"]
    assert [deployment["model"] for deployment in converted.deployments["m"]["fallback"]] == ["b"]
    assert [deployment["model"] for deployment in alone.deployments["m"]["targets"]] == ["b"]


@for_each(
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
def test_malformed_configuration_has_no_target(config: Any) -> None:
    assert convert_config(config, "config", {}).deployments == {}


def test_aliases_become_deployment_names() -> None:
    models = [{"model": "openai/a", "name": name} for name in ("Big One", "b")]
    aliases = {"gpt-4": "b", "four": {"model": "b"}, "Big One": "b", "none": "c"}

    converted = draft(*models, router_settings={"model_group_alias": aliases})

    names = {name: item.get("also_known_as") for name, item in converted.deployments.items()}
    assert names == {"big-one": ["Big One"], "b": ["gpt-4", "four"]}
    assert [note.partition(":")[0] for note in converted.notes] == [
        "router_settings.model_group_alias.Big One",
        "router_settings.model_group_alias.none",
    ]


def test_values_are_capped() -> None:
    converted = draft(
        {"model": "openai/a", "weight": 1e9, "api_base": "https://me:sk-1@a.test/v1?key=sk-2"},
        router_settings={"allowed_fails": 1e9},
    )

    [upstream] = converted.upstreams.values()
    assert (upstream["base_url"], upstream["breaker"]["failures"]) == ("https://a.test/v1", 10_000)
    assert converted.deployments["m"]["targets"][0]["weight"] == 1_000_000
    assert any("api_base" in note for note in converted.notes)


def keys_of(result: Draft) -> list[str | None]:
    """Return the key of the upstream of each target."""
    targets = (deployment["targets"][0] for deployment in result.deployments.values())
    return [result.upstreams[target["upstream"]].get("api_key") for target in targets]


@for_each(
    ("keys", "variables"),
    [
        (["sk-a", "sk-b", "sk-a"], ["OPENAI_API_KEY", "OPENAI_2_API_KEY", "OPENAI_API_KEY"]),
        (["sk-a", "os.environ/OPENAI_API_KEY"], ["OPENAI_2_API_KEY", "OPENAI_API_KEY"]),
        (["sk-a", None], ["OPENAI_2_API_KEY", "OPENAI_API_KEY"]),
        (["sk-a", "os.environ/OPENAI_2_API_KEY"], ["OPENAI_API_KEY", "OPENAI_2_API_KEY"]),
        ([7, True], ["OPENAI_API_KEY", "OPENAI_2_API_KEY"]),
    ],
)
def test_keys_have_separate_upstreams(keys: list[Any], variables: list[str]) -> None:
    models = [{"model": "gpt-4o", "api_key": key, "name": f"m{n}"} for n, key in enumerate(keys)]

    converted = draft(*models)

    assert keys_of(converted) == [f"${{{name}}}" for name in variables]
    assert list(converted.exports) == list(dict.fromkeys(variables))
    literal = [
        (f"model_list[{place}].litellm_params.api_key", name)
        for place, (key, name) in enumerate(zip(keys, variables, strict=True))
        if key is not None and not str(key).startswith("os.environ/")
    ]
    assert converted.notes == [
        f"{position}: the secret is not copied. Set {name} to it." for position, name in literal
    ]
    assert len(converted.upstreams) == len(set(variables))


AZURE = {"model": "azure/mine", "api_base": "os.environ/AZURE_API_BASE", "api_key": "os.environ/K"}


def test_url_variables_are_resolved() -> None:
    environ = {"AZURE_API_BASE": "https://me:sk-1@eu.openai.azure.com/"}
    converted, incomplete = draft(AZURE, environ=environ), draft(AZURE)

    assert converted.upstreams["azure"] == {
        "dialect": "azure",
        "base_url": "https://eu.openai.azure.com",
        "api_key": "${K}",
    }
    assert (converted.skipped_count, incomplete.skipped_count, incomplete.deployments) == (0, 1, {})
    assert "AZURE_API_BASE is not set" in incomplete.notes[0]


@pytest.mark.parametrize("setup", ["os.environ/OUR_GATEWAY", "sk-live-1", "gateway.test/v1"])
def test_invalid_url_is_not_copied(setup: str) -> None:
    params = {"model": "openai/a", "api_base": setup}
    converted = draft(params, environ={"OUR_GATEWAY": "sk-live-2"})

    assert (converted.upstreams, converted.skipped_count) == ({}, 1)
    assert "not an http or https URL" in converted.notes[0]
    assert "sk-live" not in "".join(converted.notes)

    unset = draft(params)
    assert (unset.upstreams, unset.skipped_count) == ({}, 1)


@for_each(
    ("mode", "provider", "expected"),
    [
        ("chat", "openai", {}),
        ("embedding", "openai", {}),
        ("responses", "openai", {"endpoint": "responses"}),
        ("completion", "openai", {"endpoint": "completions"}),
        ("image_generation", "openai", {"passthrough": ["/v1/images/generations"]}),
        (
            "rerank",
            "cohere",
            {"passthrough": [{"path": "/v1/rerank", "idempotent": True, "to": "/v2/rerank"}]},
        ),
    ],
)
def test_mode_becomes_endpoint_or_paths(mode: str, provider: str, expected: dict[str, Any]) -> None:
    converted = draft(*[{"model": f"{provider}/a"}] * 2, info={"mode": mode})

    [deployment] = converted.deployments.values()
    result = {**deployment["targets"][0], **deployment}
    assert {key: result[key] for key in ("endpoint", "passthrough") if key in result} == expected
    assert converted.notes == []


@pytest.mark.parametrize(
    ("mode", "words"),
    [("audio_transcription", "must send the model a"), ("realtime", "realtime is not supported")],
)
def test_mode_with_client_changes_is_noted(mode: str, words: str) -> None:
    converted = draft({"model": "openai/a"}, info={"mode": mode})

    assert [words in note for note in converted.notes] == [True]


def test_local_server_gets_no_key() -> None:
    converted = draft({"model": "hosted_vllm/a", "api_base": "http://127.0.0.1:8000/v1"})

    assert keys_of(converted) == [None]
    assert (converted.exports, "HOSTED_VLLM_API_KEY" in converted.notes[0]) == ({}, True)


def test_shared_cache_requires_its_setting() -> None:
    settings = {"cache": True, "cache_params": {"type": "redis"}}

    converted = draft({"model": "ollama/a"}, litellm_settings=settings)

    assert list(converted.exports) == ["HEADRACE_REDIS_URL", "HEADRACE_SECRET"]
    assert "HEADRACE_REDIS_URL and HEADRACE_SECRET" in converted.notes[0]


@for_each(
    ("model", "base_model", "output"),
    [
        ("azure/mine", "gpt-4o", 10),
        ("azure/mine", "azure/gpt-4o", 10),
        ("openai/mine", "gpt-4.1", 8),
        ("openai/gpt-4o", "gpt-4o", None),
        ("openai/mine", "ollama/gpt-4o", None),
        ("openai/mine", "nobody-s", None),
    ],
)
@for_each("part", ["model_info", "litellm_params"])
def test_base_model_sets_price(part: str, model: str, base_model: str, output: int | None) -> None:
    params, base = {"model": model, "api_base": "https://mine.example"}, {"base_model": base_model}
    in_info = part == "model_info"

    converted = draft(params if in_info else params | base, info=base if in_info else None)

    [target] = converted.deployments["m"]["targets"]
    assert target.get("price", {}).get("output") == output
    if output is not None:
        assert f"the price of {base_model} as of 20" in converted.notes[-1]
    elif base_model != "gpt-4o":
        assert f"model {base_model} has no known price" in converted.notes[-1]


def test_explicit_price_per_token_overrides_base_model() -> None:
    prices = {"input_cost_per_token": 1.5e-7, "output_cost_per_token": "6e-7"}
    converted = draft({"model": "openai/mine", "base_model": "gpt-4o", **prices})

    assert converted.notes == []
    assert converted.deployments["m"]["targets"][0]["price"] == {"input": 0.15, "output": 0.6}


@for_each("provider", ["openai", "cohere"])
@for_each("mode", MODE_PATHS)
def test_mode_paths_are_valid(mode: str, provider: str) -> None:
    listed = [
        PassthroughPathConfig.model_validate(path)
        for path in list_passthrough_paths(mode, provider)
    ]

    assert tuple(path.path for path in listed) == MODE_PATHS[mode]


def test_each_mode_is_handled() -> None:
    assert SUPPORTED_MODES.isdisjoint(MODE_PATHS)
    assert ENDPOINT_BY_MODE.keys() <= SUPPORTED_MODES
    assert MODE_PATHS.keys() >= FORM_UPLOAD_MODES
    assert not any(list_passthrough_paths(mode, "openai") for mode in SUPPORTED_MODES)
