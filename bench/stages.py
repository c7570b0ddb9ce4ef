"""``python -m bench.stages``: CPU time of a policy decision, guards and limits by themselves.

All figures are microseconds, with the ratio to parsing the JSON of the call.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
import timeit
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from bench.bodies import KEY, prose
from proxy.guards.engine import Engine
from proxy.guards.text.documents import collect_request_texts
from proxy.limits.claims import estimate_claims
from proxy.limits.kinds import KINDS
from proxy.limits.stores.memory import MemoryStore
from proxy.money.usage import Price
from proxy.policy.decide import ActivePolicy
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.review.sample_call import build_sample_call
from proxy.policy.store import read_folder
from proxy.types import Call, ModelCall, Plan, ScopedLimit, Secret, Target, Upstream
from proxy.types.limit import Limit
from proxy.types.windows import Calendar

REPETITIONS, ROUNDS = 1000, 7
BODY = {"model": "chat", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 100}
MAX_AMOUNT = 10**9
TARGET = Target(
    Upstream("up", "openai", "http://127.0.0.1:9"), "m", prices=(Price(Decimal(1), Decimal(2)),)
)
LIMITS = (
    ScopedLimit(Limit("calls", KINDS["requests"], MAX_AMOUNT, 86_400), ("key",)),
    ScopedLimit(Limit("burst", KINDS["requests"], MAX_AMOUNT, 60), ()),
    ScopedLimit(Limit("tokens", KINDS["tokens"], MAX_AMOUNT, 86_400), ("tag.team",)),
    ScopedLimit(Limit("user", KINDS["tokens"], MAX_AMOUNT, 86_400), ("user",)),
    ScopedLimit(Limit("concurrent", KINDS["concurrency"], MAX_AMOUNT), ("deployment",)),
    ScopedLimit(Limit("month", KINDS["usd"], MAX_AMOUNT, Calendar("month")), ("tag.team",)),
)
USAGE = [1, 1, 8, 8, 0, 11]
GUARDS: list[dict[str, Any]] = [
    {"guard": "keywords", "words": ["hippo", "rhino", "project meridian"], "action": "flag"},
    {"guard": "pii", "action": "flag"},
    {"guard": "secrets", "action": "flag"},
    {"guard": "injection"},
]


def microseconds(work: Callable[[], object]) -> float:
    return min(timeit.repeat(work, number=REPETITIONS, repeat=ROUNDS)) / REPETITIONS * 1e6


def rules(team: str) -> list[dict[str, Any]]:
    """Return 20 rules by key, tag, model, endpoint and header. Six apply to team ``support``."""
    cap = {"cap": {"max_tokens": 500}}
    effects: list[dict[str, Any]] = [{"when": {"key": ["nightly", "reports"]}, **cap}] * 6
    effects += [{"when": {"tag": {"team": team}}, **cap}] * 4
    effects += [{"when": {"model": {"glob": "gpt-9*"}}, **cap}] * 4
    effects += [{"when": {"stream": True, "endpoint": "chat"}, **cap}] * 2
    effects += [{"when": {"header": {"x-region": "eu"}}, "refuse": "Not there."}] * 2
    effects += [{"when": {"not": {"endpoint": "embeddings"}}, "set": {"temperature": 0}}] * 2
    return [{"name": f"rule-{number}", **effect} for number, effect in enumerate(effects)]


def snapshot(**policy: object) -> Snapshot:
    def key(text: str) -> dict[str, Any]:
        return {"sha256": hashlib.sha256(text.encode()).hexdigest(), "deployments": ["chat"]}

    widget = {**key(KEY), "tags": {"team": "support"}}
    document = {
        "upstreams": {"one": {"dialect": "openai", "base_url": "https://one.test"}},
        "tags": {"team": ["support", "search"]},
        "keys": {"widget": widget, "nightly": key("nightly"), "reports": key("reports")},
        "deployments": {"chat": {"targets": [{"upstream": "one", "model": "m"}]}},
        "policies": {"default": {"match": "all", **policy}},
    }
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "policies.yaml").write_text(json.dumps(document))
        return read_folder(Path(folder), None)


def new_call() -> Call:
    call = build_sample_call(BODY, {"user-agent": "bench"}, datetime(2026, 1, 1, tzinfo=UTC))
    return replace(call, head=replace(call.head, digest=Secret(KEY).digest))


def measure_decision(policy_rules: list[dict[str, Any]]) -> float:
    """Include the lookup of the key."""
    active, call = ActivePolicy(snapshot(rules=policy_rules)), new_call()
    return microseconds(lambda: active.identify(call.head).decide(call))


def measure_guards(guards: list[dict[str, Any]]) -> float:
    """Inspect 1 KB of prose in the event loop."""
    stage = snapshot(input=guards).deployments["chat"].guards.input
    engine, body = Engine(time.monotonic), {"messages": [{"role": "user", "content": prose(1024)}]}
    return microseconds(lambda: run_sync(engine.inspect(stage, collect_request_texts(body).texts)))


def run_sync(work: Coroutine[Any, Any, object]) -> None:
    """Run a coroutine that does not wait."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise AssertionError("the coroutine waits")


def measure_limits() -> float:
    """Admit and settle a call with six limits in the memory store."""
    store = MemoryStore(time.monotonic, lambda: datetime.now(UTC).timestamp())
    models = (ModelCall("m", (TARGET,)),)
    plan = Plan("1", "widget", "chat", {"team": "support"}, models, limits=LIMITS)
    claims = estimate_claims(plan, new_call())

    def admit_and_settle() -> None:
        for operation in (store.admit("call", claims), store.settle("call", USAGE)):
            with suppress(StopIteration):  # the memory store never waits
                operation.send(None)

    return microseconds(admit_and_settle)


def main() -> None:
    reference = microseconds(partial(orjson.loads, orjson.dumps(BODY)))
    for name, cost in (
        ("decision, 2 of 20 rules apply", measure_decision(rules("search"))),
        ("decision, 6 of 20 rules apply", measure_decision(rules("support"))),
        *((f"guard {guard['guard']}", measure_guards([guard])) for guard in GUARDS),
        ("all four guards", measure_guards(GUARDS)),
        ("six limits in memory", measure_limits()),
    ):
        print(f"{name:34}{cost:>12.1f}{cost / reference:>21.1f}", flush=True)


if __name__ == "__main__":
    main()
