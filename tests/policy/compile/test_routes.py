"""Which targets take calls: those of weight 0 take none, and `check` names those that cannot."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.errors import InvalidField
from proxy.policy.compile.targets import compile_routes
from proxy.policy.decide import decide
from proxy.policy.decide.snapshot import Deployment, Snapshot
from proxy.policy.review.check import check_folder
from proxy.policy.review.explain import explain
from proxy.policy.review.sample_call import chat_body, sample_call
from proxy.policy.store import read_folder
from proxy.types import Json, Target, Upstream

NOW = datetime(2026, 6, 1, tzinfo=UTC)
UPSTREAMS: Json = {
    "a": {"dialect": "openai", "base_url": "https://a.test"},
    "b": {"dialect": "openai", "base_url": "https://b.test", "provider": "a"},
}
NAMES = ("chat", "batch", "m")  # the last one is also the name of a model
TARGET = st.builds(
    lambda upstream, model: {"upstream": upstream, "model": model, "weight": 1},
    st.sampled_from(sorted(UPSTREAMS)),
    st.sampled_from(["m", "n"]),
)
DEPLOYMENT = st.fixed_dictionaries({"targets": st.lists(TARGET, min_size=1, max_size=3)})
FOLDER = st.builds(
    lambda deployments: {
        "upstreams": UPSTREAMS,
        "deployments": deployments,
        "keys": {"widget": {"sha256": "0" * 64, "deployments": sorted(deployments)}},
    },
    st.dictionaries(st.sampled_from(NAMES), DEPLOYMENT, min_size=1),
)


def drained(folder: Json) -> Iterator[tuple[str, Json]]:
    """Yield the folder with each target drained in turn, if another one can take its calls."""
    for name, deployment in folder["deployments"].items():
        for index in range(len(deployment["targets"]) if len(deployment["targets"]) > 1 else 0):
            changed = deepcopy(folder)
            changed["deployments"][name]["targets"][index]["weight"] = 0
            yield name, changed


def targets_of(snapshot: Snapshot, name: str) -> tuple[str | None, set[str]]:
    """Return the deployment and the targets of a call for a name; none if several serve it."""
    key, call = snapshot.keys["widget"], sample_call(chat_body(name), {}, NOW)
    assert explain(snapshot, key, call).decisions
    try:
        plan = decide(snapshot, key, call)
    except InvalidField:
        return None, set()
    return plan.deployment, {target.id for target in plan.model_calls[0].targets}


@given(FOLDER)
@settings(max_examples=40, deadline=None)
def test_drained_target_leaves_folder_usable(folder: Json) -> None:
    for name, changed in drained(folder):
        with tempfile.TemporaryDirectory() as directory:
            (Path(directory) / "p.yaml").write_text(json.dumps(changed))
            assert check_folder(Path(directory), None).errors == (), changed
            snapshot = read_folder(Path(directory), None)

        used = {
            title
            for listed in snapshot.keys["widget"].models
            for deployment, titles in [targets_of(snapshot, listed)]
            for title in titles
            if deployment == name
        }
        other_items = [item for item in changed["deployments"][name]["targets"] if item["weight"]]
        assert used <= {f"{item['upstream']}/{item['model']}" for item in other_items}, changed


@given(DEPLOYMENT, st.sampled_from(NAMES), st.booleans())
@settings(max_examples=60, deadline=None)
def test_check_lists_unreachable_targets(deployment: Json, name: str, weighted: bool) -> None:
    targets = [dict(target) for target in deployment["targets"]]
    for target in targets if not weighted else ():
        del target["weight"]
    folder = {"upstreams": UPSTREAMS, "deployments": {name: {"targets": targets}}}
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "p.yaml").write_text(json.dumps(folder))
        errors = check_folder(Path(directory), None).errors
        placed = {error.path for error in errors}

    models = {name, "unknown", *(word for item in targets for word in target_of(item).names)}
    routes = compile_routes([(target_of(item), item.get("weight")) for item in targets], False)
    deployment_item = Deployment(
        name=name, names=frozenset({name}), tags={}, routes=routes, fallback=()
    )
    reached = {
        id(target)
        for model in models
        for target in deployment_item.candidates(model).order
        or deployment_item.candidates(model).active
    }
    assert placed == {
        f"deployments.{name}.targets[{index}]"
        for index, target in enumerate(routes.targets)
        if id(target) not in reached
    }


def target_of(config: Json) -> Target:
    upstream = UPSTREAMS[config["upstream"]]
    provider = upstream.get("provider", "openai")
    return Target(Upstream(config["upstream"], "openai", "", provider=provider), config["model"])
