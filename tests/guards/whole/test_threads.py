"""Late guards stop after their current batch."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from proxy.errors import GuardUnavailable
from proxy.guards.engine import Engine, Inspection
from proxy.guards.text.documents import BATCH_CHARS, collect_request_texts
from proxy.runtime.fair_queue import FairSemaphore
from proxy.types.guard import Finding, GuardRule
from tests.guards.doubles import Ticks, rule

TIMES = 40
BODY = {"messages": [{"role": "user", "content": "word " * (BATCH_CHARS * TIMES // 5)}]}


@dataclass
class Counting:
    """Records the size of each text. Each inspection advances a clock by ``seconds``."""

    clock: Ticks
    seconds: float = 0.0
    sizes: list[int] = field(default_factory=list)
    lookback: int | None = 8

    def find(self, text: str) -> Sequence[Finding]:
        self.sizes.append(len(text))
        self.clock.now += self.seconds
        return ()


async def inspected(
    clock: Ticks, *rules: GuardRule, threads: int = 2, **options: Any
) -> Inspection:
    with ThreadPoolExecutor(threads) as pool:
        engine = Engine(clock, pool, **options)
        return await engine.inspect(rules, collect_request_texts(BODY).texts)


def errors(inspection: Inspection) -> list[str | None]:
    return [result.error for result in inspection.results]


async def test_late_rule_stops_without_others() -> None:
    clock = Ticks()
    counting, patient = Counting(clock, seconds=0.4), Counting(clock)
    rules = [
        GuardRule("late", counting, deadline_s=1.0),
        GuardRule("patient", patient, deadline_s=1000.0),
    ]

    assert errors(await inspected(clock, *rules)) == ["deadline", None]
    assert len(counting.sizes) <= 4
    assert len(patient.sizes) >= TIMES


async def test_no_batch_is_read_after_all_deadlines() -> None:
    counting = Counting(clock := Ticks(), seconds=0.7)
    rules = [GuardRule("late", counting), GuardRule("later", counting)]

    assert errors(await inspected(clock, *rules)) == ["deadline", "deadline"]
    assert len(counting.sizes) <= 4
    assert max(counting.sizes) <= 2 * BATCH_CHARS


async def test_wait_for_a_slot_is_bounded() -> None:
    """Waiting does not use up the deadline of a rule."""
    late = rule("word", deadline_s=0.01)
    inspection = await inspected(Ticks(), late, slots=FairSemaphore(0), max_wait_s=0.01)

    assert errors(inspection) == ["busy"]
    assert isinstance(inspection.blocked, GuardUnavailable)


async def test_late_rule_releases_its_slot() -> None:
    clock, slots = Ticks(), FairSemaphore(1)
    await inspected(clock, GuardRule("late", Counting(clock, seconds=9)), slots=slots)
    flagging = rule("word", action="flag", deadline_s=60)

    assert (await inspected(clock, flagging, slots=slots)).results[0].verdict == "flagged"


async def test_slow_rule_makes_no_other_late() -> None:
    clock = Ticks()
    slow = Counting(clock, seconds=0.4)
    rules = [rule("unfindable", deadline_s=1.0), GuardRule("slow", slow, deadline_s=1000.0)]

    # One thread: the fast rule runs first.
    assert errors(await inspected(clock, *rules, threads=1)) == [None, None]
