"""The `secrets` guard: finds credentials by the rules of gitleaks, by randomness, or by context.

A credential has a known format, or is random behind a prefix, or follows a name or a phrase such as
"the password is". Three automata select the rules that may match a text. Passwords without a digit
in a sentence, and split, encoded or reversed values, are not found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Annotated

from pydantic import Field

from proxy.config.scalars import Section
from proxy.dialects.findings import count_details
from proxy.guards.guard_kind import GuardKind
from proxy.guards.matching import gitleaks
from proxy.guards.matching.gitleaks import START, SecretRule
from proxy.guards.matching.partial_match import Holds, Shape, Shapes, beginnings
from proxy.guards.matching.re2set import (
    Characters,
    Pattern,
    PatternSet,
    Span,
    compiling,
    encoded,
    prefilter,
)
from proxy.runtime.frozen import frozen
from proxy.types.detections import DetectionFormat
from proxy.types.guard import Finding

# An RSA key of 4096 bits, and the longest match of a rule with a bounded length.
REACH, LEAST_REACH = 4096, 1200
MOST_SHARED = 4  # detectors with different lookbacks; each has automata of megabytes
ASSIGNED_BYTES = 800  # searched for a value behind its name
HEAD_BYTES = 10  # of the value, which may be the next name

PEM = r"-----BEGIN[ A-Z0-9_-]{0,100}PRIVATE KEY(?: BLOCK)?-----"
PEM_LINE = r"(?:\s|\\[nrt]|[\"'+,>#*])*[A-Za-z0-9+/=]{16,}"
PEM_TEXT = r"[A-Za-z0-9+/=\s\\\"'+,:;.()<>@_#*-]*?"
PEM_BODY = rf"{PEM_TEXT}[A-Za-z0-9+/]{{16}}{PEM_TEXT}"
PEM_END = r"-----END[ A-Z0-9_-]{0,100}KEY(?: BLOCK)?-----"
PEM_HEADER = r"\s*[A-Z-]{1,30}: [^\n]{0,100}"
JWT_PART = r"[A-Za-z0-9/\\_-]"


@frozen
class Long:
    """A secret with a distinctive beginning, and any length up to the lookback."""

    kind: str
    opening: Pattern
    whole: Pattern


class Secrets:
    """Detector of secrets. The kind of a finding is the id of its rule.

    ``reach`` is the lookback, at least 1,200 characters. Longer secrets (private keys, JWTs) are
    found up to that length.
    """

    __slots__ = (
        "_assigned", "_assignment", "_key_begun", "_known", "_long", "_names", "_own", "groups",
        "hold", "kinds", "lookback", "may_find",
    )  # fmt: skip

    def __init__(self, reach: int = REACH) -> None:
        self.lookback = max(reach, LEAST_REACH)
        self._long = [
            Long(kind, Pattern(OPENINGS[kind], late=True), Pattern(WHOLES[kind], late=True))
            for kind in OPENINGS
        ]
        rules = [rule for rule in gitleaks.all_rules() if rule.kind not in OPENINGS]
        self._assigned = [rule for rule in rules if rule.names]
        self._known = [rule for rule in rules if not rule.names]
        self._own = gitleaks.rules(gitleaks.OWN_RULES)
        names = [rule.names for rule in rules if rule.names]
        assignment = gitleaks.assignments(names)
        self._key_begun = Pattern(beginnings(WHOLES["private-key"]) or "", late=True)
        self._names = PatternSet(f"(?i){name}" for name in names)
        self._assignment = Pattern(assignment, late=True)
        # One automaton for all groups would have a state for each combination of their states.
        self.groups = (
            Shapes(
                [Shape(assignment), *map(Shape, OPENINGS.values())],
                opened={0: self._open_value, 1: self._open_key},
            ),
            Shapes([*map(_shape, self._known)]),
            Shapes([*map(_shape, self._own)]),
        )
        self.hold = Holds(self.groups)
        self.may_find = prefilter([group.found for group in self.groups])
        self.kinds = frozenset(OPENINGS) | {rule.kind for rule in self._rules}

    @property
    def _rules(self) -> Sequence[SecretRule]:
        return (*self._known, *self._own, *self._assigned)

    def prepare(self) -> None:
        """Compile the sets for streams, and the patterns that take more than 10 ms to compile."""
        self.hold.prepare()
        for rule in self._known:
            if rule.kind in DEAR:
                rule.found.prepare()

    def load_rest(self) -> Iterator[None]:
        """Compile the patterns of single rules, one per step."""
        yield from compiling((self._assignment, self._key_begun))
        yield from compiling(chain.from_iterable((each.opening, each.whole) for each in self._long))
        yield from compiling(chain.from_iterable(rule.patterns for rule in self._rules))
        yield from self.hold.load_rest()

    def find(self, text: str) -> Sequence[Finding]:
        data = encoded(text)
        places = [*self._found(data)]
        if not places:
            return ()
        characters = Characters(text, data)
        return [
            characters.finding(start, end, kind, score)
            for start, end, kind, score in _apart(places, self.lookback)
        ]

    def _found(self, data: bytes) -> Iterator[Place]:
        first, known, own = self.groups
        for hit in first.found.hits(data):
            yield from self._lasting(self._long[hit - 1], data) if hit else self._given(data)
        for group, rules in ((known, self._known), (own, self._own)):
            for rule in (rules[hit] for hit in group.found.hits(data)):
                for spans in rule.found.every(data):
                    if place := rule.secret(data, spans):
                        end = min(place[1], place[0] + self.lookback)
                        yield place[0], end, rule.kind, rule.score

    def _lasting(self, long: Long, data: bytes) -> Iterator[Place]:
        start = 0
        while opened := long.opening.search(data, start):
            start, end = opened[-1]
            if whole := long.whole.match(data[start : start + self.lookback]):
                end = start + whole[1]
                yield start, end, long.kind, 1.0
            start = end

    def _given(self, data: bytes) -> Iterator[Place]:
        """Yield the secrets that only the name before them identifies."""
        for rule, begin, spans in self._values(data, 0):
            limit = begin + ASSIGNED_BYTES
            if spans[0][1] == limit < len(data):  # the value may continue there
                continue
            if place := rule.secret(data, spans):
                yield *place, rule.kind, rule.score

    def _values(self, data: bytes, start: int) -> Iterator[tuple[SecretRule, int, Sequence[Span]]]:
        """Yield the rule, the start of the name and the spans for each value behind a name."""
        while match := self._assignment.search(data, start):
            begin, end = match[0]
            for rule in (self._assigned[index] for index in self._names.hits(data[begin:end])):
                spans = rule.found.search(data, begin, min(begin + ASSIGNED_BYTES, len(data)))
                if spans is not None:
                    yield rule, begin, spans
            start = max(end - HEAD_BYTES, begin + 1)

    def _open_value(self, data: bytes, start: int) -> int:
        """Return the offset of a value that an allowlist may cover when more text arrives."""
        for rule, begin, spans in self._values(data, start):
            if rule.may_be_allowed(data, spans[0]):
                return begin
        return len(data)

    def _open_key(self, data: bytes, start: int) -> int:
        """Return the offset of a private key that may continue."""
        long = self._long[0]
        while opened := long.opening.search(data, start):
            begin, start = opened[-1]
            rest = data[begin : begin + self.lookback]
            whole = long.whole.match(rest)
            if whole is not None and rest[: whole[1]].endswith(b"-----"):
                continue
            spans = self._key_begun.search(rest)
            if begin + self.lookback > len(data) and spans is not None and not spans[0][0]:
                return begin
        return len(data)


DEAR = frozenset({"curl-auth-header", "curl-auth-user"})
"""Kinds whose pattern takes more than 10 ms to compile."""
Place = tuple[int, int, str, float]


def _shape(rule: SecretRule) -> Shape:
    after = gitleaks.NEAR_BYTES if rule.looks_behind else 0
    if rule.kind not in SIGNS:
        return Shape(rule.pattern, after, shared=rule.found)
    return Shape(
        rule.pattern, after, sign=SIGNS[rule.kind], signs=BEGUN[rule.kind], shared=rule.found
    )


def _apart(found: Sequence[Place], reach: int) -> list[Place]:
    """Merge overlapping places. The kind is that of the highest score, then of the longest
    place."""
    result: list[Place] = []
    for place in sorted(set(found)):
        if not result or place[0] >= result[-1][1]:
            result.append(place)
            continue
        last = result[-1]
        _, _, kind, score = max(last, place, key=lambda each: (each[3], each[1] - each[0]))
        result[-1] = (last[0], min(max(last[1], place[1]), last[0] + reach), kind, score)
    return result


# For patterns that make the shared automaton large: a part of all their matches.
SIGNS = {
    "kubernetes-secret-yaml": r"(?i)\bkind:[ \t]*[\"']?secret\b",
}
# Parts of all their partial matches.
BEGUN = {
    "kubernetes-secret-yaml": (
        r"(?i)\bkind:[ \t]*[\"']?secret\b",
        r"(?i)\bkind:[ \t]+\z",
        r"(?i)\bdata:",
    )
}

OPENINGS = {
    "private-key": rf"(?i){PEM}",
    "jwt": rf"{START}(ey[A-Za-z0-9_-]{{17,{gitleaks.RUN}}}\.ey{JWT_PART}{{17}})",
}


WHOLES = {
    # A key without a line of its body is a mention of keys.
    "private-key": rf"(?i){PEM}(?:{PEM_BODY}{PEM_END}|(?:{PEM_HEADER})*(?:{PEM_LINE})+)",
    "jwt": rf"ey[A-Za-z0-9_-]+\.ey{JWT_PART}+(?:\.{JWT_PART}*={{0,2}})?",
}


class SecretsConfig(Section):
    """Credentials: by the rules of gitleaks and betterleaks, as a prefix with random characters,
    and by context (connection strings, URLs, commands, headers, "the password is")."""

    reach: Annotated[int, Field(ge=LEAST_REACH, le=65536)] = REACH
    """Maximum length of a credential in a stream, in characters. Up to this many characters may be
    withheld."""


@lru_cache(maxsize=MOST_SHARED)
def shared(reach: int = REACH) -> Secrets:
    """Return the shared detector of all policies, because parsing the rules is the slowest part
    of a reload."""
    return Secrets(reach)


KIND = GuardKind(
    SecretsConfig,
    lambda keys, context: shared(keys.reach),
    detections=(DetectionFormat("pii", "pii", count_details("secrets")),),
)
