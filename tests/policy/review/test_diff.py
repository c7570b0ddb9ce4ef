"""Differences between two policy folders, in text and for recorded calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner

from proxy.cli import main
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.files.load import load_policies
from proxy.policy.review.compare import MAX_CHANGES, Difference
from proxy.policy.review.diff import NO_CALL, UNKNOWN_KEY, ReplayResult, list_changes, replay_calls
from proxy.policy.store import read_folder
from proxy.telemetry.log import build_call_line
from tests.conftest import Proxy, policies_for
from tests.for_each import for_each
from tests.test_pipeline import BEARER

POLICIES = """\
upstreams:
  one: {dialect: openai, base_url: 'https://one.example.test', timeouts: {connect: 2s}}
tags: {team: [support]}
keys: {widget: {sha256: AAAA, deployments: [chat], tags: {team: support}}}
policies:
  public:
    match: all
    rules:
      - {name: short, cap: {max_tokens: 9}}
      - {name: calm, set: {temperature: 0}}
deployments:
  chat: {policy: public, targets: [{upstream: one, model: m}, {upstream: one, model: n}]}
  spare: {targets: [{upstream: one, model: s}]}
""".replace("AAAA", "0" * 64)


CALL = {"event": "call", "time": "2026-01-01T00:00:00+00:00", "endpoint": "chat"}


def pair(folder: Path, old: str, new: str) -> list[Path]:
    folders = [folder / "a", folder / "b"]
    for item, text in zip(folders, (old, new), strict=True):
        item.mkdir()
        (item / "p.yaml").write_text(text)
    return folders


def read(folder: Path, old: str, new: str) -> list[Snapshot]:
    return [read_folder(item, None) for item in pair(folder, old, new)]


def calls_by_change(result: ReplayResult) -> dict[tuple[str, str], int]:
    return {change: count.calls for change, count in result.tally.by_change.items()}


@for_each(
    ("old", "new", "text"),
    [
        ("", "", []),
        ("max_tokens: 9", "max_tokens: 8", ["deployment chat", "    policy public changed",
            "policy public", "    rules.short.cap.max_tokens: 8 (was 9)"]),
        ("connect: 2s", "connect: 3s", ["deployment chat", "    upstream one changed",
            "deployment spare", "    upstream one changed", "upstream one",
            "    timeouts.connect: 3.0 (was 2.0)"]),
        ("[{upstream: one, model: m}, {upstream: one, model: n}]",
            "[{upstream: one, model: n}, {upstream: one, model: m}]",
            ["deployment chat", "    targets: new order one/n, one/m"]),
        ("  spare: {targets: [{upstream: one, model: s}]}\n", "",
            ["deployment spare", "    removed"]),
        ("tags: {team: support}", "may: [refresh]", ["key widget",
            '    tags: {"team":"support"} (removed)', '    may: ["refresh"] (added)']),
        ("tags: {team: [support]}", "tags: {team: [support, search]}",
            ["tag team", "    values.search: search (added)"]),
        ("    match: all\n", "    match: all\n    limits:\n      - {name: a, usd: 40 per month}\n"
            "      - {name: b, tokens: 2k per 10 minutes}\n", ["deployment chat",
            "    policy public changed", "policy public",
            '    limits: [{"name":"a","usd":"40 per month"},'
            '{"name":"b","tokens":"2000 per 10 minutes"}] (added)']),
        ("keys:", "caller_tags: {otherwise: refuse}\nkeys:", ["otherwise: refuse (added)"]),
    ],
)  # fmt: skip
def test_relevant_change_is_reported(old: str, new: str, text: list[str], tmp_path: Path) -> None:
    folders = pair(tmp_path, POLICIES, POLICIES.replace(old, new))

    loaded = list(list_changes(*(load_policies(folder).policies for folder in folders)))

    assert [line.replace("caller_tags.", "") for line in loaded] == text


async def test_recorded_calls_are_replayed(proxy: Proxy, tmp_path: Path) -> None:
    tagged = {**BEARER, "x-headrace-tags": "feature=help"}
    target = {**BEARER, "x-headrace-deployment": "support-chat"}
    for headers, model in ((BEARER, "support-chat"), (tagged, "resilient"), (target, "anything")):
        assert (await proxy.complete(headers, model=model)).status == 200
    lines = [orjson.dumps(build_call_line(record)) for record in await proxy.sink.wait(3)]
    old = read_folder(proxy.policies, None)
    rules = """
policies:
  default:
    match: all
    rules:
      - {name: help, when: {tag: {feature: help}}, refuse: Please ask a person.}
      - {name: short, when: {model: anything}, cap: {max_tokens: 5}}
"""
    (tmp_path / "new").mkdir()
    text = (proxy.policies / "policies.yaml").read_text()
    (tmp_path / "new" / "p.yaml").write_text(text + rules)
    new = read_folder(tmp_path / "new", None)

    report = replay_calls(old, old, lines)
    results = replay_calls(old, new, [*lines, b"", b"{", b'{"event": "listening"}'])

    assert (report.calls, report.changed) == (3, 0)
    assert (results.calls, results.changed, results.skipped) == (3, 2, {NO_CALL: 2})
    assert calls_by_change(results) == {
        ("refusal", "default/help"): 1,
        ("parameters", "default/short"): 1,
    }
    assert "2 of 3 calls would have another result" in list(results.format_lines())


def test_removed_key_diverges_and_unknown_key_does_not(tmp_path: Path) -> None:
    text = policies_for("http://127.0.0.1:9")
    old, new = read(tmp_path, text, text.replace("search-box:", "other-box:"))
    calls = [{**CALL, "models": ["smol"], "key": key} for key in ("search-box", "nobody")]
    lines = [orjson.dumps(call) for call in calls]

    report = replay_calls(old, new, lines)

    assert (report.calls, report.changed, report.skipped) == (1, 1, {UNKNOWN_KEY: 1})
    assert calls_by_change(report) == {("key", ""): 1}


def differences(folder: Path, old: str, new: str) -> list[str]:
    result = CliRunner().invoke(main, ["diff", *map(str, pair(folder, old, new))])
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return result.stdout.splitlines()


def test_guards_are_matched_by_name_or_kind(tmp_path: Path) -> None:
    guards = "[{guard: code, name: other}, {guard: secrets, mode: shadow}, {guard: code}]"
    old = POLICIES.replace("  public:\n", f"  guarded: {{input: {guards}}}\n  public:\n")
    new = old.replace(", mode: shadow", "").replace("{guard: code}", "{guard: code, action: flag}")

    assert differences(tmp_path, old, new) == [
        "policy guarded",
        "    input.secrets.mode: shadow (removed)",
        "    input.code.action: flag (added)",
    ]


def test_new_deployment_is_reported_without_its_parts(tmp_path: Path) -> None:
    new = POLICIES.replace("connect: 2s", "connect: 3s")
    deployment = "  other: {targets: [{upstream: one, model: s}]}\n"

    result = differences(tmp_path, POLICIES, new + deployment)

    assert result[result.index("deployment other") + 1] == "    added"
    assert result[result.index("deployment other") + 2] == "deployment spare"


def test_change_of_extended_policy_is_reported(tmp_path: Path) -> None:
    extended = """  private:
    extends: [stricter]
  stricter:
    extends: [public]
    rules: [{name: away, targets: [{upstream: two, model: n}]}]
"""
    old = POLICIES.replace("policy: public", "policy: private").replace(
        "deployments:\n  chat", f"{extended}deployments:\n  chat"
    )
    two = "  two: {dialect: openai, base_url: 'https://two.example.test'}\n"
    old = old.replace("tags: {team: [s", f"{two}tags: {{team: [s")

    rule = differences(tmp_path, old, old.replace("max_tokens: 9", "max_tokens: 8"))
    (tmp_path / "other").mkdir()
    upstream = differences(tmp_path / "other", old, old.replace("two.ex", "three.ex"))

    assert rule[:2] == ["deployment chat", "    policy public changed (policy private extends it)"]
    assert upstream[:2] == ["deployment chat", "    upstream two changed"]


def test_price_of_new_model_is_reported_completely(tmp_path: Path) -> None:
    tier = "{above: 200000, input: 2.5, cached_input: 0.625, cache_write: 3.125, output: 15}"
    price = f"{{input: 1.25, cached_input: 0.3125, output: 10.00, tiers: [{tier}]}}"
    table = f"prices:\n  one:\n    m: {price}\n"

    initial = f"{POLICIES}prices: {{one: {{n: {{input: 1}}}}}}\n"
    of_model = differences(tmp_path, initial, POLICIES + table)

    [line] = [line for line in of_model if " m: " in line]
    assert "(added)" in line
    assert '"output":10.0' in line
    assert '"output":15}' in line


def test_cap_above_all_recorded_calls_changes_none(tmp_path: Path) -> None:
    old, new = read(tmp_path, POLICIES, POLICIES.replace("max_tokens: 9", "max_tokens: 8"))
    call = {**CALL, "models": ["m"], "key": "widget", "deployment": "chat"}
    text = [{"max_tokens": 5}, {"max_tokens": 8}, {"max_tokens": 9}, None]
    lines = [orjson.dumps({**call, **({"parameters": item} if item else {})}) for item in text]

    report = replay_calls(old, new, lines)

    assert (report.calls, report.changed, report.without_parameters) == (4, 1, 1)
    assert calls_by_change(report) == {("parameters", "public/short"): 1}
    assert "1 line has no parameters" in "\n".join(report.format_lines())


def test_dropped_changes_are_mentioned() -> None:
    report, note = ReplayResult(), f"only the last {MAX_CHANGES} changes are shown"
    for number in range(MAX_CHANGES + 1):
        assert note not in "\n".join(report.format_lines())
        report.tally.count_changes("r", [Difference("guards", "none", "a", f"public/{number}")])

    assert note in "\n".join(report.format_lines())


LINE: dict[str, Any] = {
    **CALL,
    "request_id": "r",
    "key": "widget",
    "dialect": "openai",
    "route": "/v1/chat/completions",
    "models": ["m"],
    "stream": False,
    "deployment": "chat",
    "tags": {"team": "support"},
    "headers": {"x-region": "eu"},
    "parameters": {"max_tokens": 9},
    "body": {"max_tokens": 9, "messages": []},
}
ODD: tuple[Any, ...] = (
    *(None, 0, -1, 2**70, 0.5, True, "", "x", [], ["x"], [1], [None], {}, {"x": 1}, {"x": {}}),
    *({"": []}, [[]], "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00", "2026-01-01"),
    *(
        {name: [] for name in ("max_tokens", "n")},
        {"max_tokens": "9"},
        {"reasoning": {"effort": 1}},
    ),
    *({"max_tokens": 2**70}, {"stream_options": 5}, {"messages": [5]}, {"model": []}),
)


@pytest.fixture(scope="module")
def snapshots(tmp_path_factory: pytest.TempPathFactory) -> list[Snapshot]:
    lower_cap = POLICIES.replace("max_tokens: 9", "max_tokens: 8")
    return read(tmp_path_factory.mktemp("diff"), POLICIES, lower_cap)


@for_each("field", LINE)
@for_each("value", [*ODD, "missing"])
def test_line_of_invalid_types_is_replayed_or_skipped(
    field: str, value: Any, snapshots: list[Snapshot]
) -> None:
    line = {**LINE, field: value}
    if value == "missing":
        del line[field]

    old, new = snapshots
    result = replay_calls(old, new, [orjson.dumps(LINE), json.dumps(line).encode()])

    assert result.calls + result.skipped.total() == 2
    assert list(result.format_lines())


async def test_unauthorized_calls_are_skipped(proxy: Proxy, tmp_path: Path) -> None:
    unknown = {"authorization": "Bearer nobody"}
    assert (await proxy.complete(unknown)).status == 401
    [record] = await proxy.sink.wait(1)
    (tmp_path / "calls.jsonl").write_bytes(orjson.dumps(build_call_line(record)) + b"\n")
    policies, calls = str(proxy.policies), str(tmp_path / "calls.jsonl")

    results = CliRunner().invoke(main, ["diff", policies, policies, "--calls", calls])

    assert results.exit_code == 0
    assert results.output.splitlines() == [
        "no changes",
        "0 of 0 calls would have another result",
        "1 line was skipped: the log has no model, or an endpoint other than "
        "chat, completions, responses, embeddings",
    ]


def test_problems_of_both_folders_are_reported(tmp_path: Path) -> None:
    folders = pair(tmp_path, "tags: {team: 5}\n", POLICIES.replace("[chat", "[chats"))

    result = CliRunner().invoke(main, ["diff", *map(str, folders)])

    assert result.exit_code == 1
    assert "a/p.yaml:1:8: tags.team: must be" in result.output
    assert 'deployment "chats" does not exist' in result.output


def test_command_prints_changes_and_divergences(tmp_path: Path) -> None:
    other_item = POLICIES.replace("model: s", "model: t")
    folders = [str(folder) for folder in pair(tmp_path, POLICIES, other_item)]
    (tmp_path / "calls.jsonl").write_bytes(b"[]\n")

    result = CliRunner().invoke(main, ["diff", folders[0], folders[0]])
    changed = CliRunner().invoke(main, ["diff", *folders, "--calls", str(tmp_path / "calls.jsonl")])

    assert result.output == "no changes\n"
    assert changed.output.splitlines() == [
        "deployment spare",
        '    targets.one/s: {"upstream":"one","model":"s"} (removed)',
        '    targets.one/t: {"upstream":"one","model":"t"} (added)',
        "0 of 0 calls would have another result",
        "1 line was skipped: not a call",
        f"Error: {tmp_path / 'calls.jsonl'} contains no calls; it must be a call log in JSON lines",
    ]
    assert (result.exit_code, changed.exit_code) == (0, 1)
