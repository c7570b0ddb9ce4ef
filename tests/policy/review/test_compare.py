"""What two revisions decide otherwise, by kind and by rule."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.review.compare import Difference, compare, decide_call
from proxy.policy.review.sample_call import chat_body, sample_call
from proxy.policy.store import read_folder
from tests.for_each import for_each

POLICIES = """\
upstreams: {one: {dialect: openai, base_url: 'https://one.example.test'}}
tags: {team: [support, search]}
keys: {widget: {sha256: AAAA, deployments: [chat], tags: {team: support}}}
policies:
  public:
    match: all
    rules:
      - {name: short, cap: {max_tokens: 9}}
      - {name: spare, when: {stream: true}, targets: [{upstream: one, model: spare}]}
deployments:
  chat:
    policy: public
    targets: [{upstream: one, model: m}]
  spare: {targets: [{upstream: one, model: s}]}
""".replace("AAAA", "0" * 64)


LOWER = Difference("parameters", "max_tokens 9", "max_tokens 8", "public/short")
REFUSED = Difference("refusal", "allowed", "403 by rule", "public/no")
LIMITED = Difference("limits", "none", "each: 5 requests per minute, across all keys")


def read(folder: Path, text: str) -> Snapshot:
    folder.mkdir(exist_ok=True)
    (folder / "p.yaml").write_text(text)
    return read_folder(folder, None)


def compared(folder: Path, old: str, new: str, **body: Any) -> list[Difference]:
    old_snapshot, new_snapshot = (
        read(folder / "a", POLICIES),
        read(folder / "b", POLICIES.replace(old, new)),
    )
    call = sample_call({**chat_body("chat"), **body}, {}, datetime(2026, 1, 1, tzinfo=UTC))
    keys = [snapshot.key_named("widget") for snapshot in (old_snapshot, new_snapshot)]
    assert keys[0] is not None
    assert keys[1] is not None
    return compare(
        call, decide_call(old_snapshot, keys[0], call), decide_call(new_snapshot, keys[1], call)
    )


def test_the_same_policies_decide_the_same(tmp_path: Path) -> None:
    assert compared(tmp_path, "", "") == []


@for_each(
    ("old", "new", "body", "difference"),
    [
        (
            "  - {name: short",
            "  - {name: no, refuse: Not today.}\n      - {name: short",
            {},
            REFUSED,
        ),
        (
            "name: spare, when: {stream: true}, targets: [{upstream: one, model: spare}]",
            "name: no, when: {stream: true}, refuse: Not today.",
            {"stream": True},
            REFUSED,
        ),
        (
            "deployments: [chat]",
            "deployments: [spare]",
            {},
            Difference("refusal", "allowed", "404 model_not_found"),
        ),
        ("team: support", "team: search", {}, Difference("tags", "team=support", "team=search")),
        ("model: m}", "model: n}", {}, Difference("targets", "one/m", "one/n")),
        (
            "stream: true",
            "stream: false",
            {},
            Difference("targets", "one/m", "one/spare", "public/spare"),
        ),
        ("max_tokens: 9", "max_tokens: 8", {}, LOWER),
        (
            "policy: public",
            "retry: {times: 2}",
            {},
            Difference("routing", "no retries, no hedge", "2 retries, no hedge"),
        ),
        ("max_tokens: 9", "max_tokens: 8", {"max_tokens": 20}, LOWER),
        (
            "  - {name: short, cap: {max_tokens: 9}}",
            "  - {name: calm, set: {temperature: 0}}\n      - {name: short, cap: {max_tokens: 9}}",
            {"temperature": 1},
            Difference("parameters", "temperature 1", "temperature 0.0", "public/calm"),
        ),
        (
            "    match: all\n",
            "    match: all\n    limits: [{name: each, requests: 5 per minute}]\n",
            {},
            LIMITED,
        ),
        (
            "{name: short,",
            "{name: short, limits: [{name: each, requests: 5 per minute}],",
            {},
            replace(LIMITED, rule="public/short"),
        ),
    ],
)
def test_a_change_is_told_by_its_kind_and_its_rule(
    old: str, new: str, body: dict[str, Any], difference: Difference, tmp_path: Path
) -> None:
    assert difference in compared(tmp_path, old, new, **body)


@for_each(
    ("now", "text"),
    [
        ("usd: 4 per month, per: key", "4 USD per month, per key"),
        ("usd: 5 per day, per: key", "5 USD per day, per key"),
        ("usd: 5 per month", "5 USD per month, across all keys"),
        ("usd: 5 per month, per: key, mode: shadow", "5 USD per month, per key, shadow mode"),
    ],
)
def test_limit_is_printed_with_unit_and_scope(now: str, text: str, tmp_path: Path) -> None:
    limit = "{name: money, unpriced: allow, usd: 5 per month, per: key}"
    was = POLICIES.replace("match: all\n", f"match: all\n    limits: [{limit}]\n")
    snapshots = [
        read(tmp_path / "a", was),
        read(tmp_path / "b", was.replace("usd: 5 per month, per: key", now)),
    ]
    call = sample_call(chat_body("chat"), {}, datetime(2026, 1, 1, tzinfo=UTC))
    plans = [decide_call(snapshot, snapshot.keys["widget"], call) for snapshot in snapshots]

    [result] = compare(call, *plans)

    assert (result.kind, result.before) == ("limits", "money: 5 USD per month, per key")
    assert result.after == f"money: {text}"


@pytest.mark.parametrize("parameters", [{"max_tokens": 1}, {"max_tokens": 8}])
def test_unreached_cap_changes_nothing(parameters: dict[str, int], tmp_path: Path) -> None:
    assert compared(tmp_path, "max_tokens: 9", "max_tokens: 8", **parameters) == []


def test_of_several_rules_each_is_named_by_what_it_changes(tmp_path: Path) -> None:
    fields = """  - {name: first, set: {seed: 1}}
      - {name: second, targets: [{upstream: one, model: other}]}
      - {name: short,"""

    result = compared(tmp_path, "  - {name: short,", fields)

    assert {item.kind: item.rule for item in result} == {
        "parameters": "public/first",
        "targets": "public/second",
    }


def test_a_clients_own_text_is_in_no_comparison(tmp_path: Path) -> None:
    rule = "{name: hard, set: {reasoning_effort: high}}\n      - {name: short,"

    [result] = compared(tmp_path, "{name: short,", rule, reasoning_effort="a secret")

    assert (result.before, result.after) == (
        "reasoning_effort as requested",
        "reasoning_effort high",
    )
