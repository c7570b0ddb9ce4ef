"""Results of guards where two messages of one role meet: cut values and false alarms.

A false alarm is a finding that neither message has alone, or that spans both.
"""

from __future__ import annotations

import random
import string
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product

from proxy.guards.findings import RuleTally
from proxy.guards.text.documents import collect_request_texts
from proxy.guards.whole.text_batches import RuleInspection, split_into_batches
from proxy.types.guard import GuardRule
from tools import measure
from tools.generated_texts import CREDENTIALS, ENTITIES, Generator, draw, harmless_texts

HARMLESS_PAIRS = 50  # per kind
VALUES = 2  # per entity or maker
GUARDS = ("pii", "secrets")
KEY = "a key of "
CUT_SECTION = """
## Where two messages meet

Guards read the end of a message and the beginning of the next one of the same role as one text.
Identifiers and keys cut in two at each of their characters, and the share found:
"""
ALARMS_SECTION = """
False alarms: findings that only the two messages together have. Pairs of the harmless texts above,
and each of {ends} ends of a message with each of {begins} beginnings:
"""

Pair = tuple[str, str]

ENDS = (
    "It costs 19.99", "I have 12", "42", "Order 1732345678", "order 12", "since 2019", "at 10:30",
    "We run version 3.2.", "I took vue@3.2.", "0.25", "room 555", "192.168.0.1", "2026-11-23",
    "until 23.11.2026", "1732345678", "12345678", "4111", "3", "Ask the team", "the total is -7.5",
    "[18, 20, 22, 25", '{"count": 17}', "temperature: 21.5", "lines 100-120", "7 of 9", "id 20931",
    "3, 1, 4, 1, 5", "$1,250.00", "90%", "8080", "route 66", "step 2:", "2.71828 3.14159", "EUR 40",
    "0049", "555-0100", "Q3", "chapter 11", "00:41:07", "12 345",
)  # fmt: skip
BEGINS = (
    "8080 is the port", "12 of them", "42", "2026-11-23", "23.11.2026 at noon", "19.99", "0.5, 1",
    "1732345678", "12345678", "1111", "555 rooms", "192.168.0.1 is down", "3 more", "100,000 users",
    "10:30 would do", "-7.5 degrees", "2019 and 2020", "7/9 are done", "20931", "ada@mill.example",
    "@ada.dev can help", "Then it broke.", "6.2 is out", "30 901 20", "1111 1111 1111 are mine",
    '{"count": 17}', "[18, 20, 22]", "400 euros", "2nd try", "90%", "1,250.00", "404 again",
    "+1 for that", "(12)", "0049", "00 is the prefix", "17 18 19 20", "66", "1e9", "5x faster",
)  # fmt: skip


def _generators() -> dict[str, Generator]:
    return {
        **ENTITIES,
        "national phone number": lambda c: f"phone 030 {draw(c, 6, string.digits)}",
        **{f"{KEY}{name}": CREDENTIALS[name] for name in ("GitHub", "AWS", "Groq")},
    }


def cut_pairs() -> dict[str, list[Pair]]:
    """Generate values and cut each at every position, by kind of value."""
    chance = random.Random(11)  # noqa: S311  # they open nothing
    return {
        name: [
            (f"Mine is {value[:position]}", f"{value[position:]}, I think.")
            for value in [generate(chance) for _ in range(VALUES)]
            for position in range(1, len(value))
        ]
        for name, generate in _generators().items()
    }


def harmless_pairs() -> dict[str, list[Pair]]:
    chance = random.Random(4)  # noqa: S311  # a draw that repeats
    pairs = {
        kind: [(chance.choice(texts), chance.choice(texts)) for _ in range(HARMLESS_PAIRS)]
        for kind, texts in harmless_texts().items()
    }
    return {**pairs, "ends and beginnings": [*product(ENDS, BEGINS)]}


@dataclass(frozen=True, slots=True)
class Inspector:
    """Counts the findings of guards in messages."""

    rules: Sequence[GuardRule]
    _single_counts: dict[str, list[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, *guards: str) -> Inspector:
        rule = partial(GuardRule, action="mask", cased=True, deadline_s=99)
        return cls([rule(guard, measure.detector(guard)) for guard in guards])

    def counts(self, *contents: str) -> list[int]:
        """Return the number of findings of each guard."""
        body = {"messages": [{"role": "user", "content": content} for content in contents]}
        inspections = [
            RuleInspection(RuleTally(rule, time.monotonic), index)
            for index, rule in enumerate(self.rules)
        ]
        for batch in split_into_batches(collect_request_texts(body).texts, inspections):
            for inspection in inspections:
                inspection.inspect(batch)
        return [len(inspection.matches) for inspection in inspections]

    def has_alarm(self, pair: Pair) -> list[bool]:
        """Return for each guard whether both messages have more findings than each separately."""
        for content in pair:
            if content not in self._single_counts:
                self._single_counts[content] = self.counts(content)
        single_counts = (self._single_counts[content] for content in pair)
        columns = zip(self.counts(*pair), *single_counts, strict=True)
        return [
            joined > first_count + second_count for joined, first_count, second_count in columns
        ]


def cut_table() -> Iterator[str]:
    """Yield a row per kind of value that is missed, and one for all other kinds."""
    inspectors = {name: Inspector.of(name) for name in GUARDS}
    rows, complete, total = [], list[str](), 0
    for name, pairs in cut_pairs().items():
        inspector = inspectors["secrets" if name.startswith(KEY) else "pii"]
        hits = sum(inspector.counts(*pair) > [0] for pair in pairs)
        if hits < len(pairs):
            rows.append((name, measure.wilson(hits, len(pairs))))
        else:
            complete.append(name)
            total += hits
    rows.append((", ".join(complete), measure.wilson(total, total)))
    yield from measure.table(["cut in two", "found"], rows)


def alarm_table() -> Iterator[str]:
    inspector, rows = Inspector.of(*GUARDS), []
    for kind, pairs in harmless_pairs().items():
        counts = [sum(column) for column in zip(*map(inspector.has_alarm, pairs), strict=True)]
        rows.append([kind, *(measure.wilson(count, len(pairs)) for count in counts)])
    head = ["harmless pairs of", *(f"`{name}`" for name in GUARDS)]
    yield from measure.table(head, measure.merge_rows(rows))


BLOCKS = {"cut": cut_table, "met": alarm_table}


def section() -> Iterator[str]:
    yield CUT_SECTION
    yield from measure.generated("cut", cut_table())
    yield ALARMS_SECTION.format(ends=len(ENDS), begins=len(BEGINS))
    yield from measure.generated("met", alarm_table())
