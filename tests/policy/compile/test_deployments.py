"""Passthrough paths of deployments, conflicts between names, and drained targets."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator
from copy import deepcopy
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.dialects import ROUTES, RequestContext, parse_request_head
from proxy.errors import InvalidField
from proxy.policy.compile import compile_policies
from proxy.policy.compile.targets import route_by_weight
from proxy.policy.decide import decide
from proxy.policy.decide.snapshot import Deployment, Snapshot
from proxy.policy.files.load import load_policies_with_problems
from proxy.policy.files.source import PolicyError
from proxy.policy.review.check import check_folder
from proxy.policy.review.explain import explain
from proxy.policy.review.sample_call import build_sample_call, make_chat_body
from proxy.policy.schema.deployments import Method
from proxy.policy.store import read_folder
from proxy.types import ABOUT_STATE, Endpoint, Json, Target, Upstream
from proxy.types.passthrough import make_sample_request
from tests.for_each import for_each

POLICIES = """
upstreams:
  openai: {dialect: openai, base_url: 'https://api.openai.com/v1'}
deployments:
  support-files:
    targets: [{upstream: openai, model: files}]
    passthrough: [%s]
"""


def compiled(folder: Path, listed: str) -> list[str]:
    (folder / "policies.yaml").write_text(POLICIES % listed)
    try:
        snapshot = compile_policies(load_policies_with_problems(folder), None)
    except PolicyError as error:
        return [problem.message for problem in error.problems]
    paths = snapshot.deployments["support-files"].passthrough
    assert paths == snapshot.passthrough
    return [] if paths is None else [path.route for path in paths.paths]


def test_path_is_listed_as_text_or_object(tmp_path: Path) -> None:
    listed = "/v1/rerank, {path: '/v1/files/{id}', methods: [GET, DELETE]}"

    assert compiled(tmp_path, listed) == ["/v1/rerank", "/v1/files/{id}"]


def test_tiny_cost_bound_is_rounded_up(tmp_path: Path) -> None:
    listed = "{path: /v1/rerank, most_usd: 0.0000000004}"
    (tmp_path / "policies.yaml").write_text(POLICIES % listed)

    paths = compile_policies(load_policies_with_problems(tmp_path), None).passthrough

    assert paths is not None
    assert paths.paths[0].max_cost == 1  # nano-USD


@for_each(
    "path",
    [
        *("v1/rerank", "/", "/v1/", "/v1//x", "/v1/../x", "/v1/./x", "/v1/%2e", "/v1/a b"),
        *("/{id}", "/v1/{Id}", "/v1/{id}x", "/v1/{id", "/v1/x?y", "/v1/*", "https://x/y"),
    ],
)
def test_invalid_path_is_refused(path: str, tmp_path: Path) -> None:
    [problem] = compiled(tmp_path, f"'{path}'")

    assert "must be a path such as" in problem


ENDPOINTS: dict[str, set[Endpoint]] = {
    route: {endpoint for (_, path), (_, endpoint) in ROUTES.items() if path == route}
    for _, route in ROUTES
}
LISTED = [(method, route) for method in get_args(Method) for route in ENDPOINTS]


def is_own_route(method: str, route: str) -> bool:
    return (method, route) in ROUTES or bool(ENDPOINTS[route] & ABOUT_STATE)


def batches(pairs: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    remaining = iter(pairs)
    while batch := list(islice(remaining, 100)):
        yield batch


def yaml_items(pairs: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{{path: '{route}', methods: [{method}]}}" for method, route in pairs)


def test_own_routes_cannot_be_listed(tmp_path: Path) -> None:
    fields = [("GET", "/health"), ("POST", "/v1/{name}"), ("POST", "/v1/{a}/{b}")]
    for batch in batches([*(pair for pair in LISTED if is_own_route(*pair)), *fields]):
        problems = compiled(tmp_path, yaml_items(batch))

        assert [
            problem for problem in problems if "because Headrace itself serves it" not in problem
        ] == []
        assert len(problems) == len(batch)


def test_other_method_of_own_path_is_passed_through(tmp_path: Path) -> None:
    for batch in batches(pair for pair in LISTED if not is_own_route(*pair)):
        (tmp_path / "policies.yaml").write_text(POLICIES % yaml_items(batch))
        paths = compile_policies(load_policies_with_problems(tmp_path), None).passthrough

        for method, route in batch:
            path = make_sample_request(route).path
            received = RequestContext("req_1", get_passthrough_paths=lambda: paths)  # noqa: B023  # used at once
            assert parse_request_head(method, path, {}, received).endpoint == "passthrough", (
                method,
                path,
            )


@for_each(
    ("listed", "problem"),
    [
        ("/v1/a, {path: /v1/a, methods: [GET, POST]}", "repeats POST /v1/a. Remove"),
        ("'/v1/a/{id}', '/v1/a/{file}'", "repeats POST /v1/a/{id}. Remove"),
        ("{path: '/v1/a/{id}', to: '/b/{other}'}", "contains a name in braces that is not in path"),
        ("'/v1/a/{id}/{id}'", "must use each path parameter, such as {id}, only once"),
        ("{path: /v1/a, methods: [HEAD]}", "must be"),
        ("{path: /v1/a, query: [api_key]}", "must be a parameter name"),
    ],
)
def test_contradictory_paths_are_reported(listed: str, problem: str, tmp_path: Path) -> None:
    assert any(problem in item for item in compiled(tmp_path, listed))


NOW = datetime(2026, 6, 1, tzinfo=UTC)
UPSTREAMS: Json = {
    "a": {"dialect": "openai", "base_url": "https://a.test"},
    "b": {"dialect": "openai", "base_url": "https://b.test", "provider": "a"},
}
NAMES = ("chat", "batch", "m")  # "m" is also the name of a model
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


def drained_folders(folder: Json) -> Iterator[tuple[str, Json]]:
    """Yield the folder with each target drained in turn, if another one can take its calls."""
    for name, deployment in folder["deployments"].items():
        for index in range(len(deployment["targets"]) if len(deployment["targets"]) > 1 else 0):
            changed = deepcopy(folder)
            changed["deployments"][name]["targets"][index]["weight"] = 0
            yield name, changed


def targets_of(snapshot: Snapshot, name: str) -> tuple[str | None, set[str]]:
    """Return the deployment and the targets of a call for a name; none if several serve it."""
    key, call = snapshot.keys["widget"], build_sample_call(make_chat_body(name), {}, NOW)
    assert explain(snapshot, key, call).decisions
    try:
        plan = decide(snapshot, key, call)
    except InvalidField:
        return None, set()
    return plan.deployment, {target.id for target in plan.model_calls[0].targets}


@given(FOLDER)
@settings(max_examples=40, deadline=None)
def test_drained_target_leaves_folder_usable(folder: Json) -> None:
    for name, changed in drained_folders(folder):
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
    routes = route_by_weight([(target_of(item), item.get("weight")) for item in targets], False)
    deployment_item = Deployment(
        name=name, names=frozenset({name}), tags={}, routes=routes, fallback=()
    )
    reached = {
        id(target)
        for model in models
        for target in deployment_item.get_candidates(model).order
        or deployment_item.get_candidates(model).active_targets
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
