"""Engine: rules applied to texts and streams, blocks, deadlines and threads."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.guards.engine import Engine, Inspection
from proxy.guards.text.documents import (
    VALUES_PER_STEP,
    collect_request_texts,
    collect_texts_in_steps,
)
from proxy.guards.text.replace import replace_texts
from proxy.guards.text.walk import walk_request
from proxy.types.guard import Finding, GuardRule
from tests.for_each import for_each
from tests.guards.doubles import Broken, Ticks, rule, stream_inspector
from tests.guards.stream import frames as made

BODY: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "never tell the secret"},
        {"role": "user", "content": "\uff53ecret, or s e c r e t?"},
        {"role": "assistant",
            "tool_calls": [{"function": {"name": "f", "arguments": '{"a": "a secret", "n": 12}'}}]},
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as threads:
        yield threads


async def inspected(*rules: GuardRule, body: dict[str, Any] = BODY, **keys: Any) -> Inspection:
    return await Engine(Ticks(), **keys).inspect(rules, collect_request_texts(body).texts)


async def test_block_has_the_message_of_its_rule() -> None:
    inspection = await inspected(rule("tell", action="block", name="quiet", message="Hush."))

    blocked = inspection.blocked
    assert blocked is not None
    assert (blocked.message, blocked.guard, blocked.kind) == ("Hush.", "quiet", "word")
    assert inspection.changes == {}


async def test_first_blocking_rule_is_named() -> None:
    rules = [rule("absent", name="one"), rule("secret", name="two"), rule("tell", name="three")]
    inspection = await inspected(*rules)

    assert [result.verdict for result in inspection.results] == ["passed", "blocked", "blocked"]
    assert inspection.blocked is not None
    assert inspection.blocked.guard == "two"


async def test_rule_without_texts_is_not_applicable() -> None:
    by_role = rule("secret", roles=frozenset({"tool"}))
    by_field = rule("secret", fields=frozenset({"suffix"}))

    for result in (await inspected(by_role, by_field)).results:
        assert (result.verdict, result.bytes, result.fields) == ("not_applicable", 0, 0)


@for_each(
    ("keys", "stops"),
    [
        ({}, True),
        ({"on_error": "open"}, False),
        ({"shadow": True}, False),
        ({"action": "flag"}, False),
    ],
)
async def test_failed_rule_blocks_if_it_enforces(keys: dict[str, Any], stops: bool) -> None:
    broken = GuardRule("broken", Broken(), **keys)
    inspection = await inspected(broken, rule("secret", action="mask"))

    assert (inspection.blocked is not None) is stops
    assert (inspection.results[0].verdict, inspection.results[0].bytes) == ("failed", 0)
    assert inspection.results[1].verdict == "masked"


async def test_deadline_covers_all_texts() -> None:
    engine = Engine(Ticks(step=0.3))
    delayed = rule("absent", deadline_s=0.8)

    inspection = await engine.inspect([delayed], collect_request_texts(BODY).texts)

    assert inspection.results[0].error == "deadline"
    assert inspection.blocked is not None


@dataclass(frozen=True, slots=True)
class Slow:
    """Uses CPU time and records its thread."""

    seconds: float
    threads: list[str]
    lookback: int | None = 8

    def find(self, text: str) -> Sequence[Finding]:
        self.threads.append(threading.current_thread().name)
        deadline = time.thread_time() + self.seconds
        while time.thread_time() < deadline:
            pass
        return ()


async def test_body_of_many_small_texts_yields_to_others(pool: ThreadPoolExecutor) -> None:
    texts = ["x"] * 15_000 + ["s"] * 5_000
    body = {"messages": [{"role": "user", "content": text} for text in texts]}
    threads: list[str] = []
    engine = Engine(time.monotonic, pool)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.ensure_future(others())
    read = await collect_texts_in_steps(walk_request(body))
    read_turns = turns
    slow = GuardRule("slow", Slow(0, threads), deadline_s=600)
    rules = [slow, rule("s", action="mask", deadline_s=600)]
    inspection = await engine.inspect(rules, read)
    changed = await engine.run_or_offload(
        len(inspection.changes), partial(replace_texts, body, inspection.changes), "somebody"
    )
    task.cancel()

    assert read_turns > 20_000 // VALUES_PER_STEP
    assert turns > read_turns + 10
    assert threading.current_thread().name not in threads
    assert changed["messages"][-1]["content"] == "[WORD]"


async def test_late_reading_fails_all_rules(pool: ThreadPoolExecutor) -> None:
    body = {"messages": [{"role": "user", "content": "\uff41" * 100}] * 50}
    engine = Engine(Ticks(step=1), pool, max_loop_weight=100)

    inspection = await engine.inspect([rule("absent")], collect_request_texts(body).texts)

    assert inspection.results[0].error == "deadline"
    assert inspection.blocked is not None


async def test_short_texts_are_inspected_on_the_event_loop(pool: ThreadPoolExecutor) -> None:
    threads: list[str] = []
    await inspected(GuardRule("here", Slow(0, threads)), pool=pool)

    assert set(threads) == {threading.current_thread().name}


@given(st.text(alphabet="secrt \uff53\u200b", max_size=40))
async def test_masked_text_has_no_finding(text: str) -> None:
    masking = rule("secret", "cr", action="mask", kind="x")
    inspection = await inspected(masking, body={"prompt": text})
    body = replace_texts({"prompt": text}, inspection.changes)

    repeated = await inspected(rule("secret", action="flag"), body=body)

    assert repeated.results[0].findings == {}


async def test_heavy_chunk_obeys_the_deadline() -> None:
    clock, looks = Ticks(), 0

    class Slowly:
        lookback: int | None = 8

        def find(self, text: str) -> Sequence[Finding]:
            nonlocal looks
            looks += 1
            clock.now += 0.4
            return ()

    engine = Engine(clock)
    slow = GuardRule("slow", Slowly(), "flag", deadline_s=1.0)
    watching = stream_inspector(slow, engine=engine)
    names = {f"name {number}": 1 for number in range(100)}

    documents: list[dict[str, Any]] = [{"more": more, "choices": []} for more in (1, names)]
    light_frame, heavy_frame, *_ = made.read(*documents)
    await watching.inspect(light_frame)
    light, looks = looks, 0
    await watching.inspect(heavy_frame)

    assert light == 1
    assert looks == 3
    assert [result.error for result in watching.get_results()] == ["deadline"]
