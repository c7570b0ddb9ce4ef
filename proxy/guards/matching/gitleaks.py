"""Parses rule files in the format of gitleaks and adapts the rules from files to texts.

- Unbounded repeats are limited to 600 characters, and an optional lead of a match is dropped, so
  that rules have a bounded length and take linear time.
- A keyword must be near the match, not anywhere in a file.
- A secret with a distinctive prefix may occur in a sentence, in marks or in a URL, not only in
  quotes.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from proxy.guards.matching.credential_values import PROPERTIES, entropy
from proxy.guards.matching.partial_match import beginnings
from proxy.guards.matching.re2set import Pattern, Span
from proxy.runtime.frozen import frozen

RULES = Path(__file__).parent / "rules" / "gitleaks.toml"
NEWER_RULES = RULES.with_name("betterleaks.toml")
OWN_RULES = RULES.with_name("own.toml")
START = r"(?:\b|\\[nrt])"  # the second letter of an escaped line feed is a letter of a word
END = r"(?:[^\w+=(-]|$)"  # no character of a key; a parenthesis would make it a function call
RUN = 600
NEAR_BYTES = 300
LEAST_SECRET = 6  # characters; a shorter group is a repeated part of the shape

# The lead of a rule for a value that is assigned to a name; the names are the first group.
LEAD = re.compile(r"\[\\w\.-\]\{0,50\}\?")
CURL = r"[ \t\n\r]"
ASSIGNED = re.compile(
    rf"^(?:\(\?i\))?(?:{LEAD.pattern})?(?:\(\?i:)?{LEAD.pattern}"
    r"(\(.+?\))\(\?:\[ \\t\\w\.-\]\{0,20\}\)"
)
# The end of a match in source code.
IN_CODE = r"""(?:[\x60'"\s;]|\\[nr]|$)"""
BY_ITSELF = re.compile(r"(\(\?i\))?\\b")
GROUP = re.compile(r"(?<!\\)\((?!\?[^P])")
SHORT = ("gh", "(?:gh")  # prefixes of four letters, which also occur in base64
# Rules that also match without a distinctive prefix, such as any digest or method.
WITHOUT_PREFIX = frozenset({"sourcegraph-access-token", "vault-service-token"})

# Rules with a keyword that may be outside of the match.
KEYWORD_APART = frozenset(
    {"airtable-personnal-access-token", "cloudflare-origin-ca-key", "curl-auth-header",
     "curl-auth-user", "curl-password", "facebook-access-token",
     "slack-config-access-token", "sourcegraph-access-token"}
)  # fmt: skip


@frozen
class Allowed:
    """An allowlist entry. A match of a pattern in the line of a secret must start before the
    secret ends.

    ``begun`` contains the partial matches of the patterns.
    """

    target: Literal["secret", "match", "line"]
    patterns: Sequence[Pattern]
    begun: Sequence[Pattern] = ()

    def covers(self, data: bytes, match: Span, secret: Span) -> bool:
        return self._begins(self.patterns, data, match, self._span(data, match, secret))

    def may_cover(self, data: bytes, match: Span) -> bool:
        """Return True if text after the data may allow a match."""
        start, end = self._span(data, match, match)
        return end >= len(data) and self._begins(self.begun, data, match, (start, end))

    def _begins(self, patterns: Sequence[Pattern], data: bytes, match: Span, within: Span) -> bool:
        start, end = within
        found = (pattern.search(data[start:end]) for pattern in patterns)
        return any(spans is not None and start + spans[0][0] < match[1] for spans in found)

    def _span(self, data: bytes, match: Span, secret: Span) -> Span:
        if self.target == "secret":
            return secret
        start, end = match
        prefix = data[max(0, start - NEAR_BYTES) : start]
        if self.target == "match":
            word = re.search(rb"[\w.-]{0,50}\Z", prefix)
            return start - len(word[0] if word else b""), end
        before = len(prefix) - prefix.rfind(b"\n") - 1
        after = data[end : end + NEAR_BYTES].find(b"\n")
        return start - before, end + (NEAR_BYTES if after < 0 else after)


@frozen
class SecretRule:
    """Rule for one kind of secret.

    ``names`` is a pattern of the names that the secret is assigned to, or None for a secret with a
    distinctive format. ``accepts`` checks the span of the secret in the data.
    """

    kind: str
    pattern: str
    found: Pattern
    keywords: Sequence[bytes] = ()
    least_entropy: float = 0.0
    group: int | None = None
    names: str | None = None
    allowed: Sequence[Allowed] = ()
    score: float = 1.0
    accepts: Callable[[bytes, Span], bool] | None = None

    @property
    def patterns(self) -> Iterator[Pattern]:
        yield self.found
        for allowed in self.allowed:
            yield from (*allowed.patterns, *allowed.begun)

    @property
    def looks_behind(self) -> bool:
        """True if a keyword behind a match may be required."""
        return self.kind in KEYWORD_APART

    def may_be_allowed(self, data: bytes, match: Span) -> bool:
        """Return True if text after the data may allow a match."""
        return any(each.may_cover(data, match) for each in self.allowed if each.begun)

    def secret(self, data: bytes, spans: Sequence[Span]) -> Span | None:
        """Return the span of the secret in a match, or None if the match is not a secret."""
        match, secret = spans[0], self._place(spans)
        start, end = match
        if self.keywords:
            around = data[max(0, start - NEAR_BYTES) : end + NEAR_BYTES].lower()
            if not any(keyword in around for keyword in self.keywords):
                return None
        if self.least_entropy and entropy(data[slice(*secret)]) <= self.least_entropy:
            return None
        if self.accepts is not None and not self.accepts(data, secret):
            return None
        if any(allowed.covers(data, match, secret) for allowed in self.allowed):
            return None
        return secret

    def _place(self, spans: Sequence[Span]) -> Span:
        if self.group is not None:
            return spans[self.group]
        if self.found.names_groups:
            return spans[0]
        taken = next((span for span in spans[1:] if span[0] >= 0), spans[0])
        return taken if taken[1] - taken[0] >= LEAST_SECRET else spans[0]


_late = partial(Pattern, late=True)  # few texts need them

# Values of a name such as ``key`` that are no secrets: a constant, a member, a file, a digest.
NAMES = (
    Allowed("secret", [_late(r"^[A-Z][A-Z0-9]*(?:_+[A-Z0-9]+)+$|^_*[a-z]+(?:_[a-z0-9]+){2,}$")]),
    Allowed("secret", [_late(r"^_?[a-z][a-z0-9_-]{0,20}\.(?:[A-Z][A-Za-z]+|[a-z]{1,5})$")]),
    Allowed("match", [_late(r"(?i)sha[_-]?(?:1|256|384|512)|md5|digest|checksum|fingerprint")]),
)


def rules(path: Path = RULES) -> Sequence[SecretRule]:
    """Return the rules of a file. Their patterns are compiled later."""
    document = tomllib.loads(path.read_text())
    everywhere = _allowed([document.get("allowlist", {})])
    return [_rule(entry, everywhere) for entry in document["rules"] if "regex" in entry]


def all_rules() -> Sequence[SecretRule]:
    """Return the rules of gitleaks and betterleaks."""
    return [*rules(), *rules(NEWER_RULES)]


def assignments(names: Iterable[str]) -> str:
    """Return a pattern for a value that is assigned to one of the names, up to its first 10
    bytes."""
    return (
        rf"(?i)(?:{'|'.join(dict.fromkeys(names))})[ \t\w.-]{{0,20}}[\s'\"]{{0,3}}"
        r"(?:=|>|:{1,3}=|\|\||:|=>|\?=|,)[\x60'\"\s=]{0,5}[\w.=+/:-]{10}"
    )


def _rule(entry: Mapping[str, Any], everywhere: Sequence[Allowed]) -> SecretRule:
    regex = entry["regex"]
    # A rule that also matches the value without a name is searched by itself.
    named = None if r"|\b(" in regex else ASSIGNED.match(regex)
    pattern = LEAD.sub("", regex) if ASSIGNED.match(regex) else regex
    if regex.startswith(r"\bcurl\b"):
        pattern = CURL + regex.partition(CURL)[2]
    pattern = re.sub(r"\{(\d+),\}", rf"{{\1,{RUN}}}", pattern)
    group = entry.get("secretGroup")
    guessed = entry["id"] == "generic-api-key"  # recognized by its name only
    if named is None and entry["id"] not in WITHOUT_PREFIX:
        pattern, group = _in_prose(pattern, group)
    return SecretRule(
        kind=entry["id"],
        pattern=pattern,
        found=_late(pattern),
        keywords=[keyword.encode() for keyword in entry.get("keywords", ())],
        least_entropy=entry.get("entropy", 0.0),
        group=group,
        names=named[1] if named else None,
        allowed=[*_allowed(entry.get("allowlists", ())), *everywhere, *(NAMES if guessed else ())],
        score=0.5 if guessed else entry.get("score", 1.0),
        accepts=PROPERTIES[entry["accepts"]] if "accepts" in entry else None,
    )


def _in_prose(pattern: str, group: int | None) -> tuple[str, int | None]:
    """Return a pattern whose secret may occur in a sentence, and the number of the secret's
    group."""
    pattern = pattern.replace(IN_CODE, END)
    begun = BY_ITSELF.match(pattern)
    if begun is None:
        return (f"{START}({pattern})", 1) if pattern.startswith(SHORT) else (pattern, group)
    lead, rest = f"{begun[1] or ''}{START}", pattern[begun.end() :]
    return (lead + rest, group) if GROUP.search(rest) else (f"{lead}({rest})", 1)


def _allowed(entries: Iterable[Mapping[str, Any]]) -> list[Allowed]:
    """Parse allowlist entries. Entries that also require a path never apply."""
    lists = []
    for entry in entries:
        if entry.get("condition") == "AND" and "paths" in entry:
            continue
        if regexes := entry.get("regexes"):
            patterns = [_late(regex) for regex in regexes]
            target = entry.get("regexTarget", "secret")
            in_line = regexes if target == "line" else ()
            begun = (beginnings(regex, unspaced=end) for regex in in_line for end in (False, True))
            lists.append(Allowed(target, patterns, [_late(each) for each in begun if each]))
        if words := entry.get("stopwords"):
            one = _late(f"(?i){'|'.join(map(re.escape, words))}")
            lists.append(Allowed("secret", [one]))
    return lists
