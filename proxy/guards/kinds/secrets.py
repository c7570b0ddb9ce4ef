"""The `secrets` guard: finds credentials by the rules of gitleaks, by randomness, or by context.

A credential has a known format, or is random behind a prefix, or follows a name or a phrase such as
"the password is". Three automata select the rules that may match a text. Passwords without a digit
in a sentence, and split, encoded or reversed values, are not found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from typing import Annotated

from pydantic import Field

from proxy.config.scalars import Section
from proxy.dialects.findings import make_counts_details
from proxy.guards.guard_kind import GuardKind
from proxy.guards.matching import gitleaks, partial_match, re2set
from proxy.guards.matching.gitleaks import VALUE_START, SecretRule
from proxy.types.detections import DetectionFormat
from proxy.types.guard import Finding

# An RSA key of 4096 bits, and the longest match of a rule with a bounded length.
DEFAULT_LOOKBACK, MIN_LOOKBACK = 4096, 1200
MAX_CACHED_DETECTORS = 4  # detectors with different lookbacks; each has automata of megabytes
MAX_ASSIGNMENT_BYTES = 800  # bytes behind a name that are searched for its value
VALUE_START_BYTES = 10  # start of the value, which may be the next name

PEM_BEGIN = r"-----BEGIN[ A-Z0-9_-]{0,100}PRIVATE KEY(?: BLOCK)?-----"
PEM_LINE = r"(?:\s|\\[nrt]|[\"'+,>#*])*[A-Za-z0-9+/=]{16,}"
PEM_TEXT = r"[A-Za-z0-9+/=\s\\\"'+,:;.()<>@_#*-]*?"
PEM_BODY = rf"{PEM_TEXT}[A-Za-z0-9+/]{{16}}{PEM_TEXT}"
PEM_END = r"-----END[ A-Z0-9_-]{0,100}KEY(?: BLOCK)?-----"
PEM_HEADER = r"\s*[A-Z-]{1,30}: [^\n]{0,100}"
JWT_PART = r"[A-Za-z0-9/\\_-]"


_LongSecret = tuple[str, re2set.Pattern, re2set.Pattern]
"""Kind, pattern of a distinctive beginning, and pattern of a secret of any length."""


class Secrets:
    """Detector of secrets. The kind of a finding is the id of its rule.

    ``lookback`` is at least 1,200 characters. Longer secrets (private keys, JWTs) are
    found up to that length.
    """

    def __init__(self, lookback: int = DEFAULT_LOOKBACK) -> None:
        self.lookback = max(lookback, MIN_LOOKBACK)
        compile_later = partial(re2set.Pattern, lazy=True)
        self._long: list[_LongSecret] = [
            (kind, compile_later(opening), compile_later(LONG_PATTERNS[kind]))
            for kind, opening in LONG_OPENINGS.items()
        ]
        known_rules = gitleaks.read_gitleaks_and_betterleaks_rules()
        rules = [rule for rule in known_rules if rule.kind not in LONG_OPENINGS]
        self._assigned = [rule for rule in rules if rule.name_pattern]
        known = [rule for rule in rules if not rule.name_pattern]
        own = gitleaks.read_rule_file(gitleaks.OWN_RULES)
        self._rules = [*known, *own, *self._assigned]
        names = [rule.name_pattern for rule in rules if rule.name_pattern]
        assignment = gitleaks.build_assignment_pattern(names)
        partial_key = partial_match.build_partial_pattern(LONG_PATTERNS["private-key"]) or ""
        self._partial_key = re2set.Pattern(partial_key, lazy=True)
        self._names = re2set.PatternSet(f"(?i){name}" for name in names)
        self._assignment = re2set.Pattern(assignment, lazy=True)
        # One automaton for all groups would have a state for each combination of their states.
        self._openings = partial_match.StreamPatternMatcher(
            [*map(partial_match.StreamPattern, (assignment, *LONG_OPENINGS.values()))],
            partial_finders={0: self._find_possibly_allowed_value, 1: self._find_partial_key},
        )
        patterns = [[*map(_build_stream_pattern, rules)] for rules in (known, own)]
        self._groups = [
            *zip((known, own), map(partial_match.StreamPatternMatcher, patterns), strict=True)
        ]
        groups = [self._openings, *(group for _, group in self._groups)]
        self.partial_matcher = partial_match.CombinedPartialMatcher(groups)
        self.prefilter = re2set.build_line_prefilter([group.pattern_set for group in groups])
        self.kinds = LONG_OPENINGS.keys() | {rule.kind for rule in self._rules}

    def prepare(self) -> None:
        """Compile the sets for streams, and the patterns that take more than 10 ms to compile."""
        self.partial_matcher.prepare()
        for rule in self._rules:
            if rule.kind in SLOW_TO_COMPILE:
                rule.compiled.prepare()

    def iter_loading_steps(self) -> Iterator[None]:
        patterns = [self._assignment, self._partial_key]
        patterns += [pattern for rule in self._rules for pattern in rule.patterns]
        patterns += [pattern for _, *pair in self._long for pattern in pair]
        yield from re2set.iter_compile_steps(patterns)
        yield from self.partial_matcher.iter_loading_steps()

    def find(self, text: str) -> Sequence[Finding]:
        data = re2set.encode_utf8(text)
        matches = [*self._find_matches(data)]
        if not matches:
            return ()
        characters = re2set.CharacterOffsets(text, data)
        return [characters.to_finding(*match) for match in _merge_overlaps(matches, self.lookback)]

    def _find_matches(self, data: bytes) -> Iterator[SecretMatch]:
        for index in self._openings.pattern_set.find_candidates(data):
            if index:
                yield from self._find_long_secrets(self._long[index - 1], data)
            else:
                yield from self._find_assigned_secrets(data)
        for rules, group in self._groups:
            for index, spans in group.find_all(data):
                if secret := rules[index].find_secret(data, spans):
                    end = min(secret[1], secret[0] + self.lookback)
                    yield secret[0], end, rules[index].kind, rules[index].score

    def _find_long_secrets(self, long: _LongSecret, data: bytes) -> Iterator[SecretMatch]:
        (kind, opening, full_pattern), start = long, 0
        while opened := opening.search(data, start):
            start, end = opened[-1]
            if span := full_pattern.match(data[start : start + self.lookback]):
                end = start + span[1]
                yield start, end, kind, 1.0
            start = end

    def _find_assigned_secrets(self, data: bytes) -> Iterator[SecretMatch]:
        for rule, begin, spans in self._find_assigned_values(data, 0):
            may_continue = spans[0][1] == begin + MAX_ASSIGNMENT_BYTES < len(data)
            if not may_continue and (secret := rule.find_secret(data, spans)):
                yield *secret, rule.kind, rule.score

    def _find_assigned_values(
        self, data: bytes, start: int
    ) -> Iterator[tuple[SecretRule, int, Sequence[re2set.Span]]]:
        """Yield the rule of each name, the start of the name and the spans of the match."""
        while match := self._assignment.search(data, start):
            begin, end = match[0]
            for index in self._names.find_candidates(data[begin:end]):
                rule, limit = self._assigned[index], min(begin + MAX_ASSIGNMENT_BYTES, len(data))
                spans = rule.compiled.search(data, begin, limit)
                if spans is not None:
                    yield rule, begin, spans
            start = max(end - VALUE_START_BYTES, begin + 1)

    def _find_possibly_allowed_value(self, data: bytes, start: int) -> int:
        """Return the offset of a value that an allowlist may cover when more text arrives."""
        for rule, begin, spans in self._find_assigned_values(data, start):
            if rule.may_be_allowed(data, spans[0]):
                return begin
        return len(data)

    def _find_partial_key(self, data: bytes, start: int) -> int:
        _, opening, full_pattern = self._long[0]
        while opened := opening.search(data, start):
            begin, start = opened[-1]
            tail = data[begin : begin + self.lookback]
            span = full_pattern.match(tail)
            if span is not None and tail[: span[1]].endswith(b"-----"):
                continue
            spans = self._partial_key.search(tail)
            if begin + self.lookback > len(data) and spans is not None and not spans[0][0]:
                return begin
        return len(data)


SLOW_TO_COMPILE = frozenset({"curl-auth-header", "curl-auth-user"})
"""Kinds whose pattern takes more than 10 ms to compile."""
SecretMatch = tuple[int, int, str, float]
"""Start, end, kind and score."""


def _build_stream_pattern(rule: SecretRule) -> partial_match.StreamPattern:
    is_large = rule.kind == "kubernetes-secret-yaml"  # makes the automaton too large
    return partial_match.StreamPattern(
        rule.pattern,
        chars_after=gitleaks.NEAR_BYTES if rule.kind in gitleaks.RULES_WITH_DISTANT_KEYWORD else 0,
        marker_pattern=KUBERNETES_MANIFEST if is_large else "",
        partial_marker_patterns=PARTIAL_MANIFEST if is_large else None,
        compiled=rule.compiled,
    )


def _merge_overlaps(matches: Sequence[SecretMatch], max_bytes: int) -> list[SecretMatch]:
    """Merge overlapping matches. The highest score decides the kind, then the greatest length."""
    result: list[SecretMatch] = []
    for match in sorted(set(matches)):
        if not result or match[0] >= result[-1][1]:
            result.append(match)
            continue
        start, end, _, _ = result[-1]
        _, _, kind, score = max(result[-1], match, key=lambda item: (item[3], item[1] - item[0]))
        result[-1] = (start, min(max(end, match[1]), start + max_bytes), kind, score)
    return result


KUBERNETES_MANIFEST = r"(?i)\bkind:[ \t]*[\"']?secret\b"
PARTIAL_MANIFEST = (KUBERNETES_MANIFEST, r"(?i)\bkind:[ \t]+\z", r"(?i)\bdata:")
LONG_OPENINGS = {
    "private-key": rf"(?i){PEM_BEGIN}",
    "jwt": rf"{VALUE_START}(ey[A-Za-z0-9_-]{{17,{gitleaks.MAX_REPEAT}}}\.ey{JWT_PART}{{17}})",
}
LONG_PATTERNS = {
    # A key without a line of its body is a mention of keys.
    "private-key": rf"(?i){PEM_BEGIN}(?:{PEM_BODY}{PEM_END}|(?:{PEM_HEADER})*(?:{PEM_LINE})+)",
    "jwt": rf"ey[A-Za-z0-9_-]+\.ey{JWT_PART}+(?:\.{JWT_PART}*={{0,2}})?",
}


class SecretsConfig(Section):
    """Credentials: known formats, prefixes with random characters, and values in context.

    Formats are the rules of gitleaks and betterleaks. Contexts are connection strings, URLs,
    commands, headers, and phrases such as "the password is".
    """

    reach: Annotated[int, Field(ge=MIN_LOOKBACK, le=65536)] = DEFAULT_LOOKBACK
    """Maximum length of a credential in a stream, in characters. Up to this many characters may be
    withheld."""


@lru_cache(maxsize=MAX_CACHED_DETECTORS)
def load_shared_detector(lookback: int = DEFAULT_LOOKBACK) -> Secrets:
    """Return the detector shared by all policies.

    Parsing its rules is the slowest part of a reload.
    """
    return Secrets(lookback)


KIND = GuardKind(
    SecretsConfig,
    lambda keys, context: load_shared_detector(keys.reach),
    detections=(DetectionFormat("pii", "pii", make_counts_details("secrets")),),
)
