"""The generated part of the page of quality on what is hidden: the hard disguises, counted."""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Iterator, Mapping, Sequence

from proxy.guards.guard_kind import NO_CONTEXT, MostCost
from proxy.guards.kinds.table import KINDS
from proxy.guards.text.documents import request_texts
from proxy.guards.text.normalize import variants
from proxy.guards.whole.joined_parts import message_boundaries
from proxy.types import Json
from proxy.types.guard import Detector, is_detector
from tools.disguises import HARD, Disguise

WORDS = ("hippo", "Größenwahn", "project zebra", "internationalization", "Qdrant-7")
HEAD = """
## Disguised values

Tests cover the disguises that guards promise to read: case, escapes, invisible characters,
look-alikes, full width, entities, percent encoding, spaced letters, marks and tags within a word,
and separate base64 or hex. The table has others: the share found of five words by `keywords`, and
of five makers' keys by `secrets`, in four sentences each.
"""
Split = Callable[[str, str], Json]
SPLITS: Mapping[str, Split] = {
    "two messages": lambda one, two: {
        "messages": [{"role": "user", "content": one}, {"role": "user", "content": two}]
    },
    "two messages, an answer between": lambda one, two: {
        "messages": [
            {"role": "user", "content": one},
            {"role": "assistant", "content": "Go on."},
            {"role": "user", "content": two},
        ]
    },
}
AROUND = ("{}", "Please look at {} today.", "{} is what I mean, thank you.", "It is called {}")


def credentials(chance: random.Random) -> list[str]:
    """Draw keys of five makers: shaped like theirs, so that none has to be written down."""

    def drawn(size: int, of: str = string.ascii_letters + string.digits) -> str:
        return "".join(chance.choices(of, k=size))

    return [
        f"ghp_{drawn(36)}",
        f"glpat-{drawn(20)}",
        f"npm_{drawn(36, string.ascii_lowercase + string.digits)}",
        f"AKIA{drawn(16, string.ascii_uppercase + '234567')}",
        f"xoxb-{drawn(12, string.digits)}-{drawn(12, string.digits)}-{drawn(24)}",
    ]


def detector(kind: str, **options: object) -> Detector:
    made = KINDS[kind].make(KINDS[kind].Keys(**options), NO_CONTEXT)
    assert not isinstance(made, MostCost)  # noqa: S101  # for the type
    assert is_detector(made)  # noqa: S101  # for the type
    return made


def found(look: Detector, text: str, *, cased: bool) -> bool:
    """Say whether a guard finds anything in any reading of a text."""
    views = variants(text, escaped=False)
    return any(look.find(view.cased if cased else view.folded) for view in views)


def rate(look: Detector, planted: Sequence[str], disguise: Disguise, *, cased: bool) -> str:
    texts = [around.format(disguise(each)) for each in planted for around in AROUND]
    return f"{sum(found(look, text, cased=cased) for text in texts) / len(texts):.2f}"


def table() -> Iterator[str]:
    keys = credentials(random.Random(7))  # noqa: S311  # they open nothing
    look = detector("keywords", words=[*WORDS])
    secrets = detector("secrets")
    yield "| hidden as | words found | credentials found |"
    yield "|---|---|---|"
    for name, disguise in HARD.items():
        words = rate(look, WORDS, disguise, cased=False)
        yield f"| {name} | {words} | {rate(secrets, keys, disguise, cased=True)} |"
    for name, split in SPLITS.items():
        words = apart_rate(look, WORDS, split, cased=False)
        yield f"| {name} | {words} | {apart_rate(secrets, keys, split, cased=True)} |"


def apart_rate(look: Detector, planted: Sequence[str], split: Split, *, cased: bool) -> str:
    bodies = [split(each[: len(each) // 2], each[len(each) // 2 :]) for each in planted]
    every = [[*_read(body)] for body in bodies]
    hits = [any(found(look, text, cased=cased) for text in texts) for texts in every]
    return f"{sum(hits) / len(hits):.2f}"


def _read(body: Json) -> Iterator[str]:
    """Return the texts of a request, and what is read as one."""
    texts = request_texts(body).texts
    yield from (text.text for text in texts)
    yield from (joined.text.text for joined in message_boundaries(texts))


def section() -> Iterator[str]:
    yield HEAD
    yield "<!-- generated: hidden -->"
    yield from table()
    yield "<!-- end: hidden -->"
