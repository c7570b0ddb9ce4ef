"""Where kept state is, and which states one target has together."""

from __future__ import annotations

import pytest

from proxy.types import StateRef, Target, Upstream
from tests.for_each import for_each


def at(target: str, deployment: str = "support-chat") -> StateRef:
    """State that one target has, by its title."""
    return StateRef("sealed", deployment, target, "resp_1")


def of(upstream: str, deployment: str = "support-chat") -> StateRef:
    """State that an upstream has, whichever of its models is asked."""
    return StateRef("sealed", deployment, upstream, "conv_1", is_conversation=True)


@for_each(
    ("ref", "other_ref", "is_beside"),
    [
        pytest.param(at("openai/gpt"), at("openai/gpt"), True, id="a target twice"),
        pytest.param(at("openai/gpt"), at("openai/gpt-4o"), False, id="a longer model"),
        pytest.param(at("openai/gpt"), at("openai/gpt/4"), False, id="a model below"),
        pytest.param(of("openai"), of("openai"), True, id="an upstream twice"),
        pytest.param(of("openai"), of("openai-eu"), False, id="a longer upstream"),
        pytest.param(of("openai"), at("openai/gpt"), True, id="a target of the upstream"),
        pytest.param(of("openai"), at("openai/eu/gpt"), True, id="whose model has a slash"),
        pytest.param(of("openai"), at("openai-eu/gpt"), False, id="a target of a longer ref"),
        pytest.param(of("openai"), at("openai.eu/gpt"), False, id="of ref with a dot"),
        pytest.param(of("eu"), at("openai/eu/gpt"), False, id="a word within a model"),
        pytest.param(of("openai"), at("openai/gpt", "search"), False, id="another deployment"),
    ],
)
def test_states_are_beside_each_other_where_one_target_has_both(
    ref: StateRef, other_ref: StateRef, is_beside: bool
) -> None:
    assert ref.is_beside(other_ref) is other_ref.is_beside(ref) is is_beside


def test_a_pin_reaches_its_target_or_all_of_its_upstream() -> None:
    openai, eu = (
        Upstream(name, "openai", "http://127.0.0.1:9") for name in ("openai", "openai-eu")
    )
    targets = [Target(openai, "gpt"), Target(openai, "gpt-4o"), Target(eu, "gpt")]

    assert [at("openai/gpt").matches(target) for target in targets] == [True, False, False]
    assert [of("openai").matches(target) for target in targets] == [True, True, False]
