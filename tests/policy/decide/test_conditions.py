"""When a rule holds, and in which words it is told that it does not."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from proxy.policy.decide.conditions import ALWAYS, Facts, find_mismatch
from proxy.policy.decide.rules import PolicyRules
from proxy.policy.store import read_folder
from tests.for_each import for_each

FACTS = Facts(
    key="widget",
    dialect="openai",
    endpoint="chat",
    names=frozenset({"gpt-4o-mini"}),
    stream=False,
    tags={"team": "support"},
    headers={"x-canary": "yes"},
    received_at=datetime(2026, 11, 20, 23, 30, tzinfo=UTC),  # a Friday
)
BASE_FOLDER = """
upstreams: {up: {dialect: openai, base_url: 'https://api.example.test'}}
tags: {team: [support, search], env: [prod]}
keys:
  widget: {sha256: 'AAAA', deployments: [support-chat]}
  batch: {sha256: 'BBBB', deployments: [support-chat]}
deployments:
  support-chat: {targets: [{upstream: up, model: m}], policy: public}
""".replace("AAAA", "0" * 64).replace("BBBB", "1" * 64)


def section(folder: Path, *rules: dict[str, Any], **policy: Any) -> PolicyRules:
    config = {"public": {"rules": list(rules), "match": "all", **policy}}
    (folder / "around.yaml").write_text(BASE_FOLDER)
    (folder / "rules.yaml").write_text(yaml.safe_dump({"policies": config}))
    [snapshot] = read_folder(folder, {}).deployments["support-chat"].sections
    return snapshot


def friday(text: str, zone: str = "UTC", **fields: Any) -> dict[str, Any]:
    return {"time": {"between": text, "zone": zone, **fields}}


@for_each(
    "when",
    [
        {"key": "widget"},
        {"key": ["batch", "widget"]},
        {"dialect": {"in": ["openai", "scale"]}},
        {"endpoint": {"equals": "chat"}},
        {"model": {"glob": "gpt-4?-*"}},
        {"model": {"glob": "gpt*", "in": ["gpt-4o-mini", "smol"]}},
        {"stream": False},
        {"tag": {"team": "support"}},
        {"header": {"x-canary": {"glob": "?es"}}},
        {"key": "widget", "tag": {"team": ["support", "search"]}},
        {"all": [{"key": "widget"}, {"stream": False}]},
        {"any": [{"key": "batch"}, {"dialect": "openai"}]},
        {"not": {"stream": True}},
        {"not": {"tag": {"env": {"glob": "*"}}}},
        friday("23:00-24:00"),
        friday("22:00-06:00", days=["fri"]),
        friday("00:00-01:00", zone="Europe/Berlin", days=["sat"]),
        friday("23:30-23:31"),
        {"time": {"days": ["fri"]}},
    ],
    ids=str,
)
def test_a_condition_holds_for_what_it_describes(when: dict[str, Any], tmp_path: Path) -> None:
    [rule] = section(tmp_path, {"name": "r", "when": when, "refuse": "no"}).rules

    assert rule.when.matcher()(FACTS)
    assert find_mismatch(rule.when, FACTS) is None


@for_each(
    ("when", "why"),
    [
        ({"key": "batch"}, "key is widget, expected batch"),
        ({"dialect": ["scale", "enkrypt"]}, "dialect is openai, expected enkrypt or scale"),
        ({"model": {"glob": "gpt-3*"}}, "model is gpt-4o-mini, expected gpt-3*"),
        (
            {"model": {"glob": "gpt*", "in": ["gpt-4", "smol"]}},
            "model is gpt-4o-mini, expected gpt-4 or smol and gpt*",
        ),
        ({"stream": True}, "the call is not streamed"),
        ({"tag": {"env": "prod"}}, "tag env is not set"),
        ({"tag": {"team": "search"}}, "tag team is support, expected search"),
        ({"header": {"x-plan": "free"}}, "header x-plan is not set"),
        ({"header": {"x-canary": "no"}}, "header x-canary has another value, expected no"),
        ({"key": "widget", "stream": True}, "the call is not streamed"),
        (
            {"any": [{"key": "batch"}, {"stream": True}]},
            "no alternative matches: key is widget, expected batch; the call is not streamed",
        ),
        ({"not": {"key": "widget"}}, "an excluded condition matches: {key: widget}"),
        (friday("00:00-23:30"), "the call arrived at Fri 23:30, expected {between: 00:00-23:30}"),
        (
            friday("22:00-06:00", days=["thu", "sat"]),
            "the call arrived at Fri 23:30, expected {between: 22:00-06:00, days: [thu, sat]}",
        ),
        (
            friday("22:00-06:00", zone="Asia/Tokyo"),
            "the call arrived at Sat 08:30, expected {between: 22:00-06:00, zone: Asia/Tokyo}",
        ),
    ],
    ids=str,
)
def test_a_condition_that_misses_says_why(when: dict[str, Any], why: str, tmp_path: Path) -> None:
    [rule] = section(tmp_path, {"name": "r", "when": when, "refuse": "no"}).rules

    assert not rule.when.matcher()(FACTS)
    assert find_mismatch(rule.when, FACTS) == why


def test_a_night_belongs_to_the_day_on_which_it_begins(tmp_path: Path) -> None:
    when = friday("22:00-06:00", days=["thu"])
    [rule] = section(tmp_path, {"name": "r", "when": when, "refuse": "no"}).rules
    thursday_night = datetime(2026, 11, 20, 5, 59, tzinfo=UTC)

    assert rule.when.matcher()(FACTS._replace(received_at=thursday_night))
    assert not rule.when.matcher()(
        FACTS._replace(received_at=thursday_night.replace(hour=6, minute=0))
    )


def test_a_rule_without_a_condition_always_holds(tmp_path: Path) -> None:
    [rule] = section(tmp_path, {"name": "r", "refuse": "no"}).rules

    assert rule.when is ALWAYS
    assert rule.when.matcher()(FACTS)


def test_a_value_with_line_breaks_matches_a_glob_as_a_whole_only(tmp_path: Path) -> None:
    when = {"header": {"x-canary": {"glob": "y*s"}}}
    [rule] = section(tmp_path, {"name": "r", "when": when, "refuse": "no"}).rules

    assert rule.when.matcher()(FACTS._replace(headers={"x-canary": "y\ns"}))
    assert not rule.when.matcher()(FACTS._replace(headers={"x-canary": "yes\n"}))
