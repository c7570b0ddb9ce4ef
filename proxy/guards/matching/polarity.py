"""Finds contradictions between English clauses that share words.

Two such clauses contradict each other if one negates the other, contains the opposite of one of its
words, or counts the same things differently. Subjects and objects are not compared.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence

from proxy.guards.matching import word_overlap
from proxy.guards.matching.word_overlap import DATA
from proxy.runtime.frozen import frozen

ALIKE = 0.5  # minimum share of common stems of comparable clauses
SHARED = 2  # minimum shared stems, of which one may be an opposite
NEARLY = 0.6  # minimum share of common stems if no negation applies to one
SCOPE = 3  # content words behind a negation in its scope
LEAST = 2  # content words of a clause; shorter clauses are joined with the previous one

_BREAK = re.compile(
    r"[,;:()\u2013\u2014]+|\b(?:but|while|whereas|although|though|because|since|if|unless|when|once|until|"
    r"which|who|and|or|as long as|provided that)\b",
    re.IGNORECASE,
)
# Idioms with a negation that negate nothing.
_IDIOMS = re.compile(
    r"\b(?:not only|no (?:more|fewer|less|later) than|not (?:more|fewer|less|later) than|no matter|"
    r"no doubt|whether or not|nothing but|with or without|not least|no sooner)\b|\bno\. ?(?=\d)",
    re.IGNORECASE,
)
_DATA = tomllib.loads((DATA / "english.toml").read_text("utf-8"))
FOLLOWING, WHOLE, PRECEDING = (
    frozenset(_DATA["negations"][scope].split()) for scope in ("following", "whole", "preceding")
)
NEGATIONS = FOLLOWING | WHOLE | PRECEDING
_STEMS = frozenset(map(word_overlap.stem, NEGATIONS))
_PASSED_OVER = frozenset({"longer", "any", "anymore", "more"})  # no longer, not any more
CALENDAR = frozenset(_DATA["calendar"].split())
_PIECE = re.compile(r"\d+(?:[.,]\d+)*|[^\W\d_]+(?:['’][^\W\d_]{1,3})?")  # noqa: RUF001  # curly

NEGATIVE_PREFIXES = _DATA["negative_prefixes"].split()


def _read_opposites() -> Mapping[str, frozenset[str]]:
    """Return the opposites of each stem, from pairs such as ``rise/fall``."""
    found: dict[str, set[str]] = {}
    for pair in (DATA / "opposites_en.txt").read_text("utf-8").split():
        one, two = map(word_overlap.stem, pair.split("/"))
        if one != two:
            found.setdefault(one, set()).add(two)
            found.setdefault(two, set()).add(one)
    return {stem: frozenset(others) for stem, others in found.items()}


OPPOSITES = _read_opposites()


@frozen
class Clause:
    """The comparable facts of a part of a sentence."""

    stems: frozenset[str]
    heads: frozenset[str]  # first stems in the scope of its negations
    scope: frozenset[str]  # all stems in their scope
    odd: bool  # True for an odd number of negations
    sides: frozenset[str]  # stems with an opposite
    counts: frozenset[tuple[str, str]]  # numbers with the stem that they count
    days: frozenset[str]


def clauses(sentence: str) -> tuple[Clause, ...]:
    """Return the clauses of a sentence, and the whole sentence if there are several clauses."""
    parts = list(_parts(_IDIOMS.sub(" ", sentence)))
    read = [clause for part in parts if (clause := _clause(part)).stems]
    return tuple(read) if len(read) < 2 else (*read, _clause(" ".join(parts)))


def _parts(sentence: str) -> Iterator[str]:
    kept, held, start = "", 0, 0
    for end in [*(match.start() for match in _BREAK.finditer(sentence)), len(sentence)]:
        part = sentence[start:end]
        count = len(word_overlap.stems(part))
        if min(held, count) >= LEAST:
            yield kept
            kept, held = "", 0
        kept, held, start = kept + part, held + count, end
    if kept.strip():
        yield kept


def _clause(text: str) -> Clause:
    pieces = [match[0].lower().replace("’", "'") for match in _PIECE.finditer(text)]  # noqa: RUF001
    known = frozenset(word_overlap.stem(piece) for piece in pieces)
    stems = frozenset(word_overlap.stems(text)) - _STEMS
    heads, scope, odd = _negated(pieces, stems)
    return Clause(
        stems=stems, heads=heads, scope=scope, odd=odd, sides=known & OPPOSITES.keys(),
        counts=frozenset(_counts(pieces)), days=CALENDAR.intersection(pieces),
    )  # fmt: skip


def _negated(
    pieces: Sequence[str], stems: frozenset[str]
) -> tuple[frozenset[str], frozenset[str], bool]:
    """Return the heads and the scope of the negations, and True if their number is odd."""
    heads, scope, remaining, odd = set[str](), set[str](), 0, False
    for piece in pieces:
        if piece in NEGATIONS or piece.endswith("n't"):
            odd, remaining = not odd, SCOPE
            if piece in WHOLE or piece in PRECEDING:
                heads |= stems
                scope |= stems
                remaining = 0
        elif (
            remaining and piece not in _PASSED_OVER and (stem := word_overlap.stem(piece)) in stems
        ):
            if remaining == SCOPE:
                heads.add(stem)
            scope.add(stem)
            remaining -= 1
    return frozenset(heads), frozenset(scope), odd


def _counts(pieces: Sequence[str]) -> Iterator[tuple[str, str]]:
    for index, piece in enumerate(pieces[:-1]):
        for number in word_overlap.numbers(piece):
            unit = next((each for each in pieces[index + 1 : index + 3] if each[0].isalpha()), "")
            if unit and unit not in word_overlap.STOP:
                yield number, word_overlap.stem(unit)


def contradiction(answer: Sequence[Clause], known: Sequence[Clause]) -> str | None:
    """Return the kind of a contradiction between clauses and their nearest known clauses, or
    None.

    The kinds are ``number``, ``name`` and ``negation``.
    """
    results = []
    for clause in answer:
        nearest = max(known, key=lambda each: _likeness(clause, each), default=None)
        if nearest is None or _likeness(clause, nearest) < (ALIKE, 0):
            continue
        if len(clause.stems & nearest.stems) + _opposed(clause, nearest) >= SHARED:
            results.append(_against(clause, nearest))
    return next((each for each in results if each), None)


def _likeness(clause: Clause, other: Clause) -> tuple[float, float]:
    if not clause.stems or not other.stems:
        return (0.0, 0.0)
    both = len(clause.stems & other.stems)
    return (both / len(clause.stems), both / len(clause.stems | other.stems))


def _against(clause: Clause, other: Clause) -> str | None:
    units = {unit for _, unit in clause.counts} & {unit for _, unit in other.counts}
    for unit in units:
        if not _of(clause, unit) & _of(other, unit):
            return "number"
    if clause.days and other.days and not clause.days & other.days:
        return "name"
    return "negation" if _negates(clause, other) != _opposed(clause, other) else None


def _of(clause: Clause, unit: str) -> set[str]:
    return {number for number, counted in clause.counts if counted == unit}


def _negates(clause: Clause, other: Clause) -> bool:
    """Return True if one of two clauses negates the statement of both.

    Two negated clauses agree unless one negates a shared stem that the other affirms.
    """
    shared = (clause.stems & other.stems) | _opposites(clause, other) | _opposites(other, clause)
    if clause.odd == other.odd:
        ours, theirs = clause.heads & shared, other.heads & shared
        return bool(ours) > bool(ours & other.scope) or bool(theirs) > bool(theirs & clause.scope)
    if (clause.heads | other.heads) & shared:
        return True
    return len(shared) >= NEARLY * len(clause.stems | other.stems)


def _opposites(clause: Clause, other: Clause) -> frozenset[str]:
    """Return the stems of a clause for which the other clause contains an opposite instead."""
    theirs = other.sides - clause.sides
    return frozenset(side for side in clause.sides - other.sides if OPPOSITES[side] & theirs)


def _opposed(clause: Clause, other: Clause) -> bool:
    """Return True if one clause contains the opposite of a stem of the other, but not the stem
    itself."""
    if _opposites(clause, other):
        return True
    one, two = clause.stems - other.stems, other.stems - clause.stems
    return any(
        begun + stem in there
        for here, there in ((one, two), (two, one))
        for stem in here
        for begun in NEGATIVE_PREFIXES
    )
