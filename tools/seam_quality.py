"""The part of the page of quality on two messages of one role: what is cut there, and what is not.

Each machine counts the same. Two messages count as an alarm where there is a finding that neither
of them has by itself, or where a finding of one goes on in the other.
"""

from __future__ import annotations

import random
import string
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product

from proxy.guards.findings import RuleTally
from proxy.guards.text.documents import request_texts
from proxy.guards.whole.text_batches import RuleInspection, batches
from proxy.types.guard import GuardRule
from tools import confidence, made_quality
from tools.hidden import detector

PAIRS = 50  # of harmless texts of a kind
VALUES = 2  # of an entity or a maker
GUARDS = ("pii", "secrets")
KEY = "a key of "
HEAD = """
## Where two messages meet

Guards read the end of a message and the beginning of the next one of the same role as one text.
Identifiers and keys cut in two at each of their characters, and the share found:
"""
ALARMS = """
False alarms: findings that neither message has alone. Pairs of the harmless texts above, and each
of {ends} ends of a message with each of {begins} beginnings:
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


def cut_pairs() -> dict[str, list[Pair]]:
    """Draw values that are cut in two, by what they are: at each of their places."""
    chance = random.Random(11)  # noqa: S311  # they open nothing
    makers = {name: [make(chance) for _ in range(VALUES)] for name, make in _values().items()}
    return {
        name: [
            (f"Mine is {value[:at]}", f"{value[at:]}, I think.")
            for value in values
            for at in range(1, len(value))
        ]
        for name, values in makers.items()
    }


def _values() -> Mapping[str, made_quality.Make]:
    keys = ("GitHub", "AWS", "Groq")
    called: made_quality.Make = lambda c: f"phone 030 {made_quality.drawn(c, 6, string.digits)}"  # noqa: E731
    return {
        **made_quality.ENTITIES,
        "phone of a country, called so": called,
        **{f"{KEY}{name}": made_quality.MAKERS[name] for name in keys},
    }


def harmless_pairs() -> dict[str, list[Pair]]:
    """Draw pairs of harmless texts, by their kind."""
    chance = random.Random(4)  # noqa: S311  # a draw that repeats
    pairs = {
        kind: [(chance.choice(texts), chance.choice(texts)) for _ in range(PAIRS)]
        for kind, texts in made_quality.harmless_texts().items()
    }
    return {**pairs, "ends and beginnings": [*product(ENDS, BEGINS)]}


@dataclass(frozen=True, slots=True)
class Meeting:
    """Counts what guards find where two messages meet, and what they find in each of them."""

    rules: Sequence[GuardRule]
    _alone: dict[str, list[int]] = field(default_factory=dict)

    @classmethod
    def under(cls, *guards: str) -> Meeting:
        masks = partial(GuardRule, action="mask", cased=True, deadline_s=99)
        return cls([masks(guard, detector(guard)) for guard in guards])

    def counts(self, *contents: str) -> list[int]:
        """Return how many findings of each guard there are in messages."""
        body = {"messages": [{"role": "user", "content": content} for content in contents]}
        looks = [
            RuleInspection(RuleTally(rule, time.monotonic), n) for n, rule in enumerate(self.rules)
        ]
        for sheet in batches(request_texts(body).texts, looks):
            for look in looks:
                look.see(sheet)
        return [len(look.matches) for look in looks]

    def more(self, pair: Pair) -> list[bool]:
        """Return of each guard whether it finds what neither message has by itself."""
        for content in pair:
            if content not in self._alone:
                self._alone[content] = self.counts(content)
        one, two = (self._alone[content] for content in pair)
        return [both > a + b for both, a, b in zip(self.counts(*pair), one, two, strict=True)]


def table() -> Iterator[str]:
    guards = {name: Meeting.under(name) for name in GUARDS}
    yield "| cut in two | found |"
    yield "|---|---|"
    for name, pairs in cut_pairs().items():
        guard = guards["secrets" if name.startswith(KEY) else "pii"]
        hits = sum(guard.counts(*pair) > [0] for pair in pairs)
        yield f"| {name} | {confidence.wilson(hits, len(pairs))} |"


def alarms() -> Iterator[str]:
    meeting = Meeting.under(*GUARDS)
    yield "| harmless pairs of | " + " | ".join(f"`{name}`" for name in GUARDS) + " |"
    yield "|---" * (len(GUARDS) + 1) + "|"
    rows = []
    for kind, pairs in harmless_pairs().items():
        counts = [sum(column) for column in zip(*map(meeting.more, pairs), strict=True)]
        rows.append([kind, *(confidence.wilson(count, len(pairs)) for count in counts)])
    yield from confidence.merged(rows)


BLOCKS = {"cut": table, "met": alarms}


def section() -> Iterator[str]:
    heads = {"cut": HEAD, "met": ALARMS.format(ends=len(ENDS), begins=len(BEGINS))}
    for name, make in BLOCKS.items():
        yield heads[name]
        yield f"<!-- generated: {name} -->"
        yield from make()
        yield f"<!-- end: {name} -->"
