"""Label values of a counter, bounded by the names in the policies."""

from __future__ import annotations

from proxy.types.roster import LabelCatalog, ListedDeployment
from tests.for_each import for_each

ROSTER = LabelCatalog(
    keys=("batch",),
    deployments={"chat": ListedDeployment(tags=frozenset({("team", "search")}))},
    tags={"team": frozenset(), "env": frozenset({"prod"})},
)


@for_each(
    ("scope", "owners"),
    [
        ("", {}),
        ("key:batch", {"key": "batch"}),
        ("key:batch|deployment:chat", {"key": "batch", "deployment": "chat"}),
        ("tag.team:search|tag.env:prod", {"tag.team": "search", "tag.env": "prod"}),
        ("tag.team:anything", {}),
        ("tag.env:", {}),
        ("key:batch|user:alice", {"key": "batch"}),
        ("user:alice|key:batch", {}),  # a user name may contain a separator
        ("key:nobody", {}),
        ("model:never-heard-of", {}),
    ],
)
def test_only_names_of_policies_are_labels(scope: str, owners: dict[str, str]) -> None:
    assert ROSTER.owners(scope) == owners
