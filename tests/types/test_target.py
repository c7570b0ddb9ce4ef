"""References to provider state, and their compatibility."""

from __future__ import annotations

import pytest

from proxy.types import StateRef, Target, Upstream
from tests.for_each import for_each


def of_target(target: str, deployment: str = "support-chat") -> StateRef:
    """Return a reference to the state of one target."""
    return StateRef("sealed", deployment, target, "resp_1")


def of_upstream(upstream: str, deployment: str = "support-chat") -> StateRef:
    """Return a reference to the state of an upstream."""
    return StateRef("sealed", deployment, upstream, "conv_1", is_conversation=True)


@for_each(
    ("ref", "other_ref", "is_beside"),
    [
        pytest.param(of_target("openai/gpt"), of_target("openai/gpt"), True, id="a target twice"),
        pytest.param(
            of_target("openai/gpt"), of_target("openai/gpt-4o"), False, id="a longer model"
        ),
        pytest.param(of_target("openai/gpt"), of_target("openai/gpt/4"), False, id="a model below"),
        pytest.param(of_upstream("openai"), of_upstream("openai"), True, id="an upstream twice"),
        pytest.param(
            of_upstream("openai"), of_upstream("openai-eu"), False, id="a longer upstream"
        ),
        pytest.param(
            of_upstream("openai"), of_target("openai/gpt"), True, id="a target of the upstream"
        ),
        pytest.param(
            of_upstream("openai"), of_target("openai/eu/gpt"), True, id="whose model has a slash"
        ),
        pytest.param(
            of_upstream("openai"), of_target("openai-eu/gpt"), False, id="a target of a longer ref"
        ),
        pytest.param(
            of_upstream("openai"), of_target("openai.eu/gpt"), False, id="of ref with a dot"
        ),
        pytest.param(
            of_upstream("eu"), of_target("openai/eu/gpt"), False, id="a word within a model"
        ),
        pytest.param(
            of_upstream("openai"), of_target("openai/gpt", "search"), False, id="another deployment"
        ),
    ],
)
def test_states_of_one_target_are_compatible(
    ref: StateRef, other_ref: StateRef, is_beside: bool
) -> None:
    assert ref.is_beside(other_ref) is other_ref.is_beside(ref) is is_beside


def test_state_matches_target_or_upstream() -> None:
    openai, eu = (
        Upstream(name, "openai", "http://127.0.0.1:9") for name in ("openai", "openai-eu")
    )
    targets = [Target(openai, "gpt"), Target(openai, "gpt-4o"), Target(eu, "gpt")]

    assert [of_target("openai/gpt").matches(target) for target in targets] == [True, False, False]
    assert [of_upstream("openai").matches(target) for target in targets] == [True, True, False]
