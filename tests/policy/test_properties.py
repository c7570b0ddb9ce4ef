"""Decisions are total and deterministic, and explanations agree with them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.errors import RequestError
from proxy.policy.decide import PLAN_FIELDS, KeyCaller, decide
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.review.explain import explain
from proxy.policy.review.sample_call import build_sample_call
from proxy.policy.store import read_folder
from proxy.policytest.cases import Given
from proxy.policytest.harness import run_case, run_with_simulated_clock
from proxy.types import Call, Json, Plan

MODELS = ("small", "large", "smol", "spare")
UPSTREAMS = ("one", "two")
WORDS = st.sampled_from(["small", "large", "chat", "widget", "x", "s*", "?", ""])
MATCHES = st.one_of(
    WORDS,
    st.lists(WORDS, min_size=1, max_size=3),
    st.fixed_dictionaries({"glob": WORDS.filter(bool)}),
)
TARGET = st.builds(
    lambda upstream, model: {"upstream": upstream, "model": model},
    st.sampled_from(UPSTREAMS),
    st.sampled_from(MODELS),
)
HOURS = st.sampled_from(["00:00-12:00", "22:00-06:00", "11:00-24:00"])


def field(name: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    return values.map(lambda value: {name: value})


LEAF = st.one_of(
    field("model", MATCHES),
    field("key", st.sampled_from(["widget", "box", ["widget", "box"]])),
    field("endpoint", st.sampled_from(["chat", "completions"])),
    field("dialect", st.sampled_from(["openai", "scale", ["openai", "scale"]])),
    field("stream", st.booleans()),
    field("tag", st.sampled_from([{"team": "support"}, {"beta": True}])),
    field("header", MATCHES.map(lambda match: {"x-region": match})),
    field("time", HOURS.map(lambda hours: {"between": hours})),
)
WHEN: st.SearchStrategy[Json] = st.recursive(
    LEAF,
    lambda inner: st.one_of(
        field("not", inner),
        field("any", st.lists(inner, min_size=1, max_size=3)),
        field("all", st.lists(inner, min_size=1, max_size=3)),
        st.tuples(LEAF, inner).map(lambda both: {**both[0], **both[1]}),
    ),
    max_leaves=5,
)
EFFECT = st.one_of(
    st.fixed_dictionaries({"targets": st.lists(TARGET, min_size=1, max_size=2, unique_by=str)}),
    st.fixed_dictionaries({"fallback": st.lists(TARGET, max_size=2)}),
    st.fixed_dictionaries({"model": st.sampled_from(MODELS)}),
    st.fixed_dictionaries({"cap": st.just({"max_tokens": 7})}),
    st.fixed_dictionaries({"set": st.just({"temperature": 0})}),
    st.fixed_dictionaries({"refuse": st.just("No.")}),
)
RULE = st.tuples(
    st.one_of(st.just({}), field("when", WHEN)), EFFECT, st.sampled_from([{}, {"mode": "shadow"}])
).map(lambda parts: {**parts[0], **parts[1], **parts[2]})


def policy(rules: list[Json], match: str) -> Json:
    target = [{"name": f"r{i}", **rule} for i, rule in enumerate(rules)]
    return {"match": match, "rules": target}


POLICY = st.builds(
    policy, st.lists(RULE, min_size=1, max_size=6), st.sampled_from(["first", "all"])
)
WORLD: Json = {
    "upstreams": {
        name: {"dialect": "openai", "base_url": f"https://{name}.test"} for name in UPSTREAMS
    },
    "tags": {"team": ["support"], "beta": {"flag": True, "caller": True}},
    "keys": {
        name: {"sha256": digit * 64, "deployments": ["chat", "split"], "tags": {"team": "support"}}
        for name, digit in (("widget", "1"), ("box", "2"))
    },
    "deployments": {
        "chat": {
            "policy": "own",
            "targets": [
                {"upstream": "one", "model": "small"},
                {"upstream": "two", "model": "large"},
            ],
            "fallback": [{"upstream": "two", "model": "spare"}],
        },
        "split": {
            "policy": "base",
            "sticky": "user",
            "targets": [
                {"upstream": "one", "model": "smol", "weight": 1},
                {"upstream": "two", "model": "smol", "weight": 2},
            ],
        },
    },
}


@st.composite
def snapshots(draw: Callable[[Any], Any]) -> Snapshot:
    config = {
        **WORLD,
        "policies": {"own": {**draw(POLICY), "extends": "base"}, "base": draw(POLICY)},
    }
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "p.yaml").write_text(json.dumps(config))
        return read_folder(Path(folder), None)


@st.composite
def calls(draw: Callable[[Any], Any]) -> Given:
    model = draw(st.sampled_from(["chat", "split", "small", "smol", "nobody", "two/large"]))
    text = draw(
        st.sampled_from([{"prompt": "Hi"}, {"messages": [{"role": "user", "content": "Hi"}]}])
    )
    fields = draw(st.sampled_from([{}, {"stream": True}, {"user": "u"}, {"max_tokens": 99}]))
    headers = draw(
        st.sampled_from([{}, {"x-region": "x"}, {"x-headrace-tags": "beta"}, {"x-region": "small"}])
    )
    return Given(
        key=draw(st.sampled_from(["widget", "box"])),
        headers=headers,
        body={"model": model, **text, **fields},
        at=datetime(2026, 1, 5, draw(st.integers(0, 23)), tzinfo=UTC),
    )


@given(snapshots(), calls())
@settings(max_examples=150, deadline=None)
def test_decisions_are_total_and_deterministic(snapshot: Snapshot, config: Given) -> None:
    key = snapshot.keys[config.key]
    call = build_sample_call(config.body or {}, config.headers, config.at)

    outcomes: list[Plan | tuple[int, str]] = []
    for _ in range(2):
        try:
            outcomes.append(decide(snapshot, key, call))
        except RequestError as refused:
            outcomes.append((refused.status, refused.message))

    assert outcomes[0] == outcomes[1]


def outcome(decided: Callable[[Call], Plan], call: Call) -> Json | tuple[int, str]:
    """Return the content of a plan, or the error of a refused call."""
    try:
        plan = decided(call)
    except RequestError as refused:
        return refused.status, refused.message
    return {name: getattr(plan, name) for name in PLAN_FIELDS}


@given(snapshots(), st.lists(calls(), min_size=2, max_size=8))
@settings(max_examples=150, deadline=None)
def test_shared_plan_equals_own_plan(snapshot: Snapshot, series: list[Given]) -> None:
    for item in [*series, *series]:
        key = snapshot.keys[item.key]
        call = build_sample_call(item.body or {}, item.headers, item.at)

        shared = outcome(KeyCaller(snapshot, key).decide, call)

        assert shared == outcome(partial(decide, snapshot, key), call)


@given(snapshots(), calls())
@settings(max_examples=150, deadline=None)
def test_explanation_equals_the_decision(snapshot: Snapshot, config: Given) -> None:
    key = snapshot.keys[config.key]
    explanation = explain(
        snapshot, key, build_sample_call(config.body or {}, config.headers, config.at)
    )
    last_item = explanation.decisions[-1]

    played = run_with_simulated_clock(run_case(snapshot, config))
    plan = played.record.plan

    if last_item.result.startswith("rejected with"):
        assert last_item.result.split()[2] == str(played.status)
        if plan is not None and plan.refusal is not None:
            assert last_item.result.endswith(f" by rule {plan.refusal.rule}")
        assert played.requests == []
    else:
        [served] = played.record.attempts
        name = f"{served.target.upstream.name}/{served.target.model}"
        assert last_item.result == f"route to {name}"
        parts = [part for reason in explanation.decisions for part in reason.parts]
        applied = [part.result for part in parts if part.result.endswith(" applies")]
        assert applied == [f"{rule} applies" for rule in (plan.rules if plan else ())]
        for part in parts:
            if part.subject == "parameter":
                parameter, _, value = part.result.partition(": ")
                assert str(played.requests[0].body.get(parameter)) == value
