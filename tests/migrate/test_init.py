"""Readers of all gateways."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.migrate import CONVERTERS
from proxy.policy.review.check import check_folder
from tests.for_each import for_each


@pytest.mark.parametrize("word", CONVERTERS)
def test_each_gateway_is_documented(word: str) -> None:
    page = Path(__file__).parents[2] / "docs/migrating.md"

    assert CONVERTERS[word]({}, "name", {}).deployments == {}
    assert f"headrace migrate {word} " in page.read_text()


NAMES = st.sampled_from(["gpt-4o", "GPT 4o", "gpt-4o-eu", "chat"])
MODELS = st.sampled_from(["gpt-4o", "openai/gpt-4o", "azure/gpt-4o-eu", "groq/gpt-4o", "gpt-4o-eu"])
LITELLM_ITEM = st.fixed_dictionaries(
    {
        "model_name": NAMES,
        "litellm_params": st.fixed_dictionaries(
            {"model": MODELS, "api_base": st.sampled_from(["https://a.test", "https://b.test"])},
            optional={
                "weight": st.sampled_from([0, 0.5, 1, 3]),
                "order": st.sampled_from([1, 2]),
                "api_key": st.just("os.environ/KEY"),
            },
        ),
    }
)
LITELLM = st.fixed_dictionaries(
    {"model_list": st.lists(LITELLM_ITEM, min_size=1, max_size=5)},
    optional={
        "router_settings": st.fixed_dictionaries(
            {"routing_strategy": st.sampled_from(["simple-shuffle", "least-busy", "latency"])},
            optional={
                "model_group_alias": st.dictionaries(NAMES, NAMES, max_size=2),
                "fallbacks": st.lists(
                    st.dictionaries(NAMES, st.lists(NAMES, max_size=2)), max_size=2
                ),
            },
        )
    },
)
PORTKEY_TARGET = st.fixed_dictionaries(
    {
        "provider": st.sampled_from(["openai", "groq"]),
        "override_params": st.fixed_dictionaries({"model": NAMES}),
    },
    optional={"weight": st.sampled_from([0, 0.5, 1])},
)
PORTKEY = st.fixed_dictionaries(
    {
        "strategy": st.fixed_dictionaries({"mode": st.sampled_from(["loadbalance", "fallback"])}),
        "targets": st.lists(PORTKEY_TARGET, min_size=1, max_size=4),
    }
)
CONFIGS = st.one_of(LITELLM.map(lambda c: ("litellm", c)), PORTKEY.map(lambda c: ("portkey", c)))


@given(CONFIGS)
@settings(max_examples=80, deadline=None)
def test_each_migrated_target_is_reachable(config: tuple[str, dict[str, Any]]) -> None:
    gateway, content = config
    draft = CONVERTERS[gateway](content, "gpt-4o", {})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in draft.render_files().items():
            (folder / file).write_text(text)
        report = check_folder(folder, None)

    assert report.errors == (), content
    paths = [warning.path for warning in report.warnings if "used only by calls" in warning.message]
    assert paths == [], content
    for deployment in draft.deployments.values():
        targets = deployment["targets"]
        assert len(targets) == 1 or "balance" in deployment or any(t["weight"] for t in targets)


WEIGHTS = [[0, 1], [0.0, 0.5], [0, 0], [0], [1, 0, 0.25], [0.000_1, 1]]


@for_each(
    ("gateway", "weights"), [(gateway, weights) for gateway in CONVERTERS for weights in WEIGHTS]
)
def test_drained_targets_stay_drained(gateway: str, weights: list[float]) -> None:
    """A weight of 0 stays 0, unless all weights are 0."""
    litellm: dict[str, Any] = {"model_list": []}
    portkey: dict[str, Any] = {"strategy": {"mode": "loadbalance"}, "targets": []}
    for number, weight in enumerate(weights):
        model, parameters = f"openai/gpt-{number}", {"model": f"gpt-{number}"}
        item = {"model_name": "m", "litellm_params": {"model": model, "weight": weight}}
        litellm["model_list"].append(item)
        target = {"provider": "openai", "override_params": parameters, "weight": weight}
        portkey["targets"].append(target)
    config = {"litellm": litellm, "portkey": portkey}[gateway]

    draft = CONVERTERS[gateway](config, "m", {})

    written = [deployment["weight"] for deployment in draft.deployments["m"]["targets"]]
    expected = [weight > 0 or not any(weights) for weight in weights]
    assert [weight > 0 for weight in written] == expected
    assert any("all weights are 0" in note for note in draft.notes) == (not any(weights))
