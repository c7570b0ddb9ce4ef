"""What a decision costs: a deployment with 20 rules, for calls of which few rules hold, or many."""

from __future__ import annotations

import hashlib
import json
import tempfile
import timeit
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from proxy.policy.decide import ActivePolicy
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.review.sample_call import sample_call
from proxy.policy.store import read_folder
from proxy.types import Call, Secret

KEY = "hr-bench-key"
TIMES, ROUNDS = 10_000, 7
BODY = {"model": "chat", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 100}


def rules(team: str) -> list[dict[str, Any]]:
    """Twenty rules as people write them: by key, tag, model, endpoint, header and streaming."""
    cap = {"cap": {"max_tokens": 500}}
    said: list[dict[str, Any]] = [{"when": {"key": ["nightly", "reports"]}, **cap}] * 6
    said += [{"when": {"tag": {"team": team}}, **cap}] * 4
    said += [{"when": {"model": {"glob": "gpt-9*"}}, **cap}] * 4
    said += [{"when": {"stream": True, "endpoint": "chat"}, **cap}] * 2
    said += [{"when": {"header": {"x-region": "eu"}}, "refuse": "Not there."}] * 2
    said += [{"when": {"not": {"endpoint": "embeddings"}}, "set": {"temperature": 0}}] * 2
    return [{"name": f"rule-{number}", **each} for number, each in enumerate(said)]


def snapshot(said: list[dict[str, Any]]) -> Snapshot:
    digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("nightly", "reports")}
    others = {name: {"sha256": each, "deployments": ["chat"]} for name, each in digests.items()}
    own = {"sha256": hashlib.sha256(KEY.encode()).hexdigest(), "deployments": ["chat"]}
    policies: dict[str, Any] = {
        "upstreams": {"one": {"dialect": "openai", "base_url": "https://one.test"}},
        "tags": {"team": ["support", "search"]},
        "keys": {"widget": {**own, "tags": {"team": "support"}}, **others},
        "deployments": {"chat": {"targets": [{"upstream": "one", "model": "m"}]}},
    }
    if said:
        policies["policies"] = {"default": {"match": "all", "rules": said}}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "policies.yaml").write_text(json.dumps(policies))
        return read_folder(Path(folder), None)


def asked() -> Call:
    call = sample_call(BODY, {"user-agent": "bench"}, datetime(2026, 1, 1, tzinfo=UTC))
    return replace(call, head=replace(call.head, digest=Secret(KEY).digest))


def microseconds(work: Callable[[], object]) -> float:
    return min(timeit.repeat(work, number=TIMES, repeat=ROUNDS)) / TIMES * 1e6


def report() -> None:
    """Print what a decision costs, the lookup of its key included, beside reading its JSON."""
    call, written = asked(), orjson.dumps(BODY)
    reference = microseconds(lambda: orjson.loads(written))
    print("\na decision with the lookup of its key, us; the ratio is to reading the call's JSON\n")
    for name, said in (
        ("no rules", []),
        ("20 rules, 2 of them apply", rules("search")),
        ("20 rules, 6 of them apply", rules("support")),
    ):
        policies = ActivePolicy(snapshot(said))
        spent = microseconds(lambda policies=policies: policies.identify(call.head).decide(call))  # type: ignore[misc]
        print(f"{name:34}{spent:>12.1f}{spent / reference:>21.1f}")
