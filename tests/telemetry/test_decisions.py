"""Decision log: one line per decision, without texts, and handling of disk errors."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from proxy.call.record import new_record
from proxy.settings import LogSettings
from proxy.telemetry.chain import InvalidChain, verify_chain
from proxy.telemetry.decisions import MAX_ENTRIES, DecisionLog
from tests.conftest import policies_for, running_proxy
from tests.doubles import ScriptedUpstream
from tests.fakes import EventLog
from tests.for_each import for_each
from tests.servers import eventually
from tests.telemetry.test_log import Drops, raising
from tests.test_pipeline import BEARER, ROUTES

ROUTE = ROUTES["openai-chat"]


def nothing() -> None: ...


def entries(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def guarded(upstream: ScriptedUpstream) -> str:
    return (
        policies_for(upstream.url)
        + """
policies:
  default:
    input: [{guard: keywords, words: [forbidden], action: block}]
    limits: [{name: per-key, requests: 2 per hour, per: key}]
"""
    )


async def test_each_decision_has_reason(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    path = tmp_path / "decisions.log"
    how = {"log": LogSettings(decisions=path)}
    async with running_proxy(tmp_path / "policies", guarded(upstream), **how) as proxy:
        await proxy.complete()
        await proxy.complete(messages=[{"role": "user", "content": "a forbidden word"}])
        await proxy.complete()
        await proxy.sink.wait(3)

    policy, *calls = entries(path)
    assert (policy["event"], policy["result"]) == ("policy", "in_force")
    assert {call["policy"] for call in calls} == {policy["policy"]}
    assert [call["outcome"] for call in calls] == ["success", "blocked", "limited"]
    assert [call["key"] for call in calls] == ["support-widget"] * 3
    assert [item["verdict"] for item in calls[1]["guards"]] == ["blocked"]
    decided = [item["decision"] for call in calls for item in call["limits"]]
    assert decided == ["allow", "allow", "deny"]
    assert "forbidden" not in path.read_text()
    assert (verify_chain(path).lines, verify_chain(path).first_invalid) == (4, None)


async def test_rejected_reload_is_a_decision(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    path = tmp_path / "decisions.log"
    how = {"log": LogSettings(decisions=path)}
    async with running_proxy(tmp_path / "policies", policies_for(upstream.url), **how) as proxy:
        (proxy.policies / "policies.yaml").write_text("keys: 1")
        reply = await proxy.complete({**BEARER, "x-headrace-refresh-cache": "true"})
        assert reply.status == 200
        await proxy.sink.wait(1)

    assert [e["result"] for e in entries(path) if e["event"] == "policy"] == [
        "in_force",
        "rejected",
    ]


def test_last_hash_is_logged_on_close(tmp_path: Path) -> None:
    log, path = EventLog(), tmp_path / "decisions.log"
    decisions = DecisionLog(path, Drops(), raising, nothing, log)

    decisions.add_policy_entry("in_force", "abc")
    decisions.close()

    assert log.entries[-1] == ("decisions.end", {"seq": 1, "hash": verify_chain(path).last_hash})


@for_each("content", ['{"my": "notes"}\n', "notes\n", "notes", "\n", "SQLite \0"])
def test_other_file_is_not_changed(content: str, tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text(content)

    with pytest.raises(InvalidChain):
        DecisionLog(path, Drops(), raising, nothing, EventLog())

    assert path.read_text() == content


@pytest.mark.parametrize("how", ["moved", "deleted"])
async def test_deleted_file_is_reported_and_recreated(how: str, tmp_path: Path) -> None:
    path, moved, log, replaced = tmp_path / "d.log", tmp_path / "moved", EventLog(), list[int]()
    decisions = DecisionLog(path, Drops(), raising, lambda: replaced.append(1), log)
    decisions.add_policy_entry("in_force", "abc")
    await eventually(lambda: path.stat().st_size > 0)
    head = verify_chain(path).last_hash
    path.rename(moved)
    if how == "deleted":
        moved.unlink()

    decisions.add_policy_entry("in_force", "def")
    decisions.close()

    assert [entry["policy"] for entry in entries(path)] == ["def"]
    assert verify_chain(path).first_invalid is None
    started = ("decisions.begun_anew", {"file": str(path), "seq": 1, "hash": head})
    assert [line for line in log.entries if "anew" in line[0]] == [started]
    assert replaced == [1]


def test_lines_lost_on_a_full_disk_are_counted(tmp_path: Path) -> None:
    full = tmp_path / "full"
    os.symlink("/dev/full", full)
    drops, log = Drops(), EventLog()
    decisions = DecisionLog(full, drops, raising, nothing, log)

    for _ in range(MAX_ENTRIES + 5):
        decisions.emit(ended())
    decisions.close()

    assert drops.counts["queue_full"] >= 5 - 1
    assert drops.counts["queue_full"] + drops.counts["shutdown"] == MAX_ENTRIES + 5
    assert ("decisions.failing", {}) in log.entries


def test_unserializable_decision_is_counted_and_skipped(tmp_path: Path) -> None:
    drops, failures, path = Drops(), list[Exception](), tmp_path / "decisions.log"
    decisions = DecisionLog(path, drops, failures.append, nothing, EventLog())

    decisions.add_policy_entry("in_force", "abc")
    decisions.enqueue({"event": object()})
    decisions.add_policy_entry("in_force", "def")
    decisions.close()

    assert [entry["policy"] for entry in entries(path)] == ["abc", "def"]
    assert entries(path)[1]["missing"] == 1
    assert verify_chain(path).first_invalid is None
    assert (drops.counts["invalid"], len(failures)) == (1, 1)


def ended() -> Any:
    record = new_record()
    record.ended = record.started
    return record
