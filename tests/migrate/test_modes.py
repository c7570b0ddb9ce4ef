"""The modes of models: paths that a policy takes, for clients of those endpoints."""

from __future__ import annotations

from proxy.migrate.modes import ENDPOINTS, FORMS, PATHS, SERVED, passed_paths
from proxy.policy.schema.deployments import PassedPathConfig
from tests.for_each import for_each


@for_each("provider", ["openai", "cohere"])
@for_each("mode", PATHS)
def test_paths_of_a_mode_are_ones_that_a_policy_may_list(mode: str, provider: str) -> None:
    listed = [PassedPathConfig.model_validate(path) for path in passed_paths(mode, provider)]

    assert tuple(path.path for path in listed) == PATHS[mode]


def test_a_mode_is_served_or_passed_on() -> None:
    assert SERVED.isdisjoint(PATHS)
    assert ENDPOINTS.keys() <= SERVED
    assert PATHS.keys() >= FORMS
    assert [passed_paths(mode, "openai") for mode in SERVED] == [[]] * len(SERVED)
