"""Parses rule files in the format of gitleaks and adapts the rules from files to texts.

- Unbounded repeats are limited to 600 characters, and an optional lead of a match is dropped, so
  that rules have a bounded length and take linear time.
- A keyword must be near the match, not anywhere in a file.
- A secret with a distinctive prefix may occur in a sentence, in marks or in a URL, not only in
  quotes.
"""

from __future__ import annotations

import math
import re
import tomllib
from base64 import b64decode
from binascii import Error
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from proxy.guards.matching.partial_match import build_partial_pattern
from proxy.guards.matching.re2set import Pattern, Span
from proxy.runtime.frozen import frozen

RULES = Path(__file__).parent / "rules" / "gitleaks.toml"
NEWER_RULES = RULES.with_name("betterleaks.toml")
OWN_RULES = RULES.with_name("own.toml")
START = r"(?:\b|\\[nrt])"  # the second letter of an escaped line feed is a letter of a word
END = r"(?:[^\w+=(-]|$)"  # no character of a key; a parenthesis would make it a function call
MAX_REPEAT = 600
NEAR_BYTES = 300
MIN_SECRET_LENGTH = 6  # characters; a shorter group is a repeated part of the shape

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


MIN_ENTROPY = 3.7
# Adjacent characters of different classes, as a share of all characters. Names written in camel
# case, with versions or with dates stay below both, and random characters are above one of them.
MIN_DIGIT_CHANGES, MIN_CHANGES = 0.17, 0.36

# Bytes of a token or a path before a match; bytes of a name before it.
MAX_BYTES, NAME_BYTES = 256, 40

_HEX = re.compile(rb"(?i)[0-9a-f]+(?:[_-][0-9a-f]+)*")
_UUID = re.compile(rb"(?i)[0-9a-z]{8}(?:-[0-9a-z]{4}){3}-[0-9a-z]{12}")
_TERM = re.compile(
    rb"(?i)(?:base|utf|iso|sha|md|rfc|u?int|x|win|ipv|oauth|http|bcrypt|argon|pbkdf|hmac|aes|str)"
    rb"[-_]?[0-9].*|[0-9.,]+(?:-?[a-z]{1,12}|[-/][0-9]+.*)|v?[0-9]+(?:\.[0-9]+)+.*"
)
_CODE = re.compile(rb"[(\[{$%\\/]|^[a-z_]\w*(?:\.[a-z_]\w*)+|::|->|=>|&#|@.*\.")
_PREFIX = re.compile(rb"(?:(?:[a-z]+|[A-Z]+|[A-Z][a-z]+)[_.-])+")
_LONG_RUN = re.compile(rb"[A-Za-z0-9]{11,}")
_DIGIT_CHANGE = re.compile(rb"(?=[A-Za-z][0-9]|[0-9][A-Za-z])")
_CASE_CHANGE = re.compile(rb"(?=[a-z][A-Z]|[A-Z][a-z])")
# Prefixes of objects that APIs, logs and traces name by a random identifier.
_OBJECTS = re.compile(
    rb"(?i)(?:^|[_.-])(?:id|uid|call|chatcmpl|cmpl|msg|message|resp|response|req|request|run|step"
    rb"|thread|asst|assistant|file|batch|org|proj|project|item|evt|event|trace|span|job|task|node"
    rb"|user|usr|cus|customer|acct|account|sub|price|prod|order|invoice|charge|session|conv|chat"
    rb"|toolu|tool|image|img|doc|page|block|chunk|commit|build|rev|sha|md5|hash|etag|nonce)[_.-]$"
)
# A name that declares an identifier or a digest, or a separator.
_ID_NAME = re.compile(
    rb"(?i)(?:id|sha-?[0-9]{0,3}|md5|hash|digest|checksum|fingerprint|integrity|etag|cursor|marker"
    rb"|next_?token)[\"']?[ \t]{0,2}[:=][ \t]{0,2}[\"']?$|[\\#+]$"
)
_PATH = re.compile(rb"(?:^|[^\w:/.-])(?:\w:)?[\w./@~-]*/$")  # not part of a URL

# Continuations of a token: a host name, an address, base64, or a call.
_CONTINUATION = re.compile(rb"[+=(@]|\.[\w-]")


def shannon_entropy(data: bytes) -> float:
    """Return the Shannon entropy in bits per byte, or 0 for no data."""
    size = len(data)
    return -sum(n / size * math.log2(n / size) for n in Counter(data).values())


def is_generated_token(data: bytes, span: Span) -> bool:
    """Return True if a word prefix is followed by random characters that are not an identifier."""
    start, end = span
    token, lead = data[start:end], _PREFIX.match(data, start, end)
    if lead is None or len(token) > MAX_BYTES or _CONTINUATION.match(data, end):
        return False
    if _OBJECTS.search(lead[0]) or _UUID.search(token):
        return False
    if _ID_NAME.search(data, max(0, start - NAME_BYTES), start):
        return False
    if data[start - 1 : start] == b"/" and _PATH.search(data, max(0, start - MAX_BYTES), start):
        return False
    body = data[lead.end() : end]
    return not _HEX.fullmatch(body) and shannon_entropy(body) >= MIN_ENTROPY and _is_random(body)


def _is_random(body: bytes) -> bool:
    """Return True if a value has a long alphanumeric run and changes its character class often."""
    size = len(body)
    digits = len(_DIGIT_CHANGE.findall(body))
    changes = digits + len(_CASE_CHANGE.findall(body))
    return _LONG_RUN.search(body) is not None and (
        digits >= MIN_DIGIT_CHANGES * size or (digits > 0 and changes >= MIN_CHANGES * size)
    )


def is_password(data: bytes, span: Span) -> bool:
    """Return True if a value after "the password is" looks like a password.

    It has letters and digits, or only digits.
    """
    value = data[slice(*span)]
    if not re.search(rb"[0-9]", value) or _TERM.fullmatch(value) or _CODE.search(value):
        return False
    return value.isdigit() or re.search(rb"[A-Za-z]", value) is not None


def is_basic_credential(data: bytes, span: Span) -> bool:
    """Return True if a value is the base64 of a user and a password."""
    try:
        user, colon, password = b64decode(data[slice(*span)], validate=True).decode().partition(":")
    except (Error, ValueError):
        return False
    return bool(colon and password) and (user + password).isprintable()


def is_literal(data: bytes, span: Span) -> bool:
    """Return True unless a value is an expression of a program or a template."""
    return not _CODE.search(data[slice(*span)])


PROPERTIES = {
    "basic_credential": is_basic_credential,
    "generated_token": is_generated_token,
    "literal": is_literal,
    "password": is_password,
}
"""Properties of values, by their name in a rule file."""


@frozen
class Allowlist:
    """An allowlist of a rule.

    In the line of a secret, a match must start before the secret ends.

    ``partial_patterns`` find partial matches of the patterns.
    """

    target: Literal["secret", "match", "line"]
    patterns: Sequence[Pattern]
    partial_patterns: Sequence[Pattern] = ()

    def covers(self, data: bytes, match: Span, secret: Span) -> bool:
        return self._matches_before_end(
            self.patterns, data, match, self._target_span(data, match, secret)
        )

    def may_cover(self, data: bytes, match: Span) -> bool:
        start, end = self._target_span(data, match, match)
        return end >= len(data) and self._matches_before_end(
            self.partial_patterns, data, match, (start, end)
        )

    def _matches_before_end(
        self, patterns: Sequence[Pattern], data: bytes, match: Span, bounds: Span
    ) -> bool:
        start, end = bounds
        matches = (pattern.search(data[start:end]) for pattern in patterns)
        return any(spans is not None and start + spans[0][0] < match[1] for spans in matches)

    def _target_span(self, data: bytes, match: Span, secret: Span) -> Span:
        if self.target == "secret":
            return secret
        start, end = match
        prefix = data[max(0, start - NEAR_BYTES) : start]
        if self.target == "match":
            word = re.search(rb"[\w.-]{0,50}\Z", prefix)
            return start - len(word[0] if word else b""), end
        chars_before = len(prefix) - prefix.rfind(b"\n") - 1
        chars_after = data[end : end + NEAR_BYTES].find(b"\n")
        return start - chars_before, end + (NEAR_BYTES if chars_after < 0 else chars_after)


@frozen
class SecretRule:
    """Rule for one kind of secret.

    ``names`` is a pattern of the names that the secret is assigned to, or None for a secret with a
    distinctive format. ``accepts`` checks the span of the secret in the data.
    """

    kind: str
    pattern: str
    compiled: Pattern
    keywords: Sequence[bytes] = ()
    least_entropy: float = 0.0
    group: int | None = None
    names: str | None = None
    allowed: Sequence[Allowlist] = ()
    score: float = 1.0
    accepts: Callable[[bytes, Span], bool] | None = None

    @property
    def patterns(self) -> Iterator[Pattern]:
        yield self.compiled
        for allowed in self.allowed:
            yield from (*allowed.patterns, *allowed.partial_patterns)

    def may_be_allowed(self, data: bytes, match: Span) -> bool:
        return any(entry.may_cover(data, match) for entry in self.allowed if entry.partial_patterns)

    def find_secret(self, data: bytes, spans: Sequence[Span]) -> Span | None:
        """Return the span of the secret in a match, or None if the match is not a secret."""
        match, secret = spans[0], self._secret_span(spans)
        start, end = match
        if self.keywords:
            context = data[max(0, start - NEAR_BYTES) : end + NEAR_BYTES].lower()
            if not any(keyword in context for keyword in self.keywords):
                return None
        if self.least_entropy and shannon_entropy(data[slice(*secret)]) <= self.least_entropy:
            return None
        if self.accepts is not None and not self.accepts(data, secret):
            return None
        if any(allowed.covers(data, match, secret) for allowed in self.allowed):
            return None
        return secret

    def _secret_span(self, spans: Sequence[Span]) -> Span:
        if self.group is not None:
            return spans[self.group]
        if self.compiled.has_named_groups:
            return spans[0]
        group_span = next((span for span in spans[1:] if span[0] >= 0), spans[0])
        return group_span if group_span[1] - group_span[0] >= MIN_SECRET_LENGTH else spans[0]


_lazy = partial(Pattern, lazy=True)  # compiled when a text first needs them

# Values of a name such as ``key`` that are no secrets: a constant, a member, a file, a digest.
NAMES = (
    Allowlist("secret", [_lazy(r"^[A-Z][A-Z0-9]*(?:_+[A-Z0-9]+)+$|^_*[a-z]+(?:_[a-z0-9]+){2,}$")]),
    Allowlist("secret", [_lazy(r"^_?[a-z][a-z0-9_-]{0,20}\.(?:[A-Z][A-Za-z]+|[a-z]{1,5})$")]),
    Allowlist("match", [_lazy(r"(?i)sha[_-]?(?:1|256|384|512)|md5|digest|checksum|fingerprint")]),
)


def read_rules(path: Path = RULES) -> Sequence[SecretRule]:
    """Return the rules of a file. Their patterns are compiled later."""
    document = tomllib.loads(path.read_text())
    everywhere = _parse_allowlists([document.get("allowlist", {})])
    return [_parse_rule(entry, everywhere) for entry in document["rules"] if "regex" in entry]


def read_all_rules() -> Sequence[SecretRule]:
    """Return the rules of gitleaks and betterleaks."""
    return [*read_rules(), *read_rules(NEWER_RULES)]


def build_assignment_pattern(names: Iterable[str]) -> str:
    """Return a pattern for a value assigned to one of the names, up to its first 10 bytes."""
    return (
        rf"(?i)(?:{'|'.join(dict.fromkeys(names))})[ \t\w.-]{{0,20}}[\s'\"]{{0,3}}"
        r"(?:=|>|:{1,3}=|\|\||:|=>|\?=|,)[\x60'\"\s=]{0,5}[\w.=+/:-]{10}"
    )


def _parse_rule(entry: Mapping[str, Any], everywhere: Sequence[Allowlist]) -> SecretRule:
    regex = entry["regex"]
    # A rule that also matches the value without a name is searched by itself.
    name_match = None if r"|\b(" in regex else ASSIGNED.match(regex)
    pattern = LEAD.sub("", regex) if ASSIGNED.match(regex) else regex
    if regex.startswith(r"\bcurl\b"):
        pattern = CURL + regex.partition(CURL)[2]
    pattern = re.sub(r"\{(\d+),\}", rf"{{\1,{MAX_REPEAT}}}", pattern)
    group = entry.get("secretGroup")
    is_generic = entry["id"] == "generic-api-key"  # recognized by its name only
    if name_match is None and entry["id"] not in WITHOUT_PREFIX:
        pattern, group = _adapt_pattern_to_prose(pattern, group)
    return SecretRule(
        kind=entry["id"],
        pattern=pattern,
        compiled=_lazy(pattern),
        keywords=[keyword.encode() for keyword in entry.get("keywords", ())],
        least_entropy=entry.get("entropy", 0.0),
        group=group,
        names=name_match[1] if name_match else None,
        allowed=[
            *_parse_allowlists(entry.get("allowlists", ())),
            *everywhere,
            *(NAMES if is_generic else ()),
        ],
        score=0.5 if is_generic else entry.get("score", 1.0),
        accepts=PROPERTIES[entry["accepts"]] if "accepts" in entry else None,
    )


def _adapt_pattern_to_prose(pattern: str, group: int | None) -> tuple[str, int | None]:
    """Return a pattern whose secret may be in a sentence, and the secret's group."""
    pattern = pattern.replace(IN_CODE, END)
    start = BY_ITSELF.match(pattern)
    if start is None:
        return (f"{START}({pattern})", 1) if pattern.startswith(SHORT) else (pattern, group)
    lead, tail = f"{start[1] or ''}{START}", pattern[start.end() :]
    return (lead + tail, group) if GROUP.search(tail) else (f"{lead}({tail})", 1)


def _parse_allowlists(entries: Iterable[Mapping[str, Any]]) -> list[Allowlist]:
    """Parse allowlist entries. Entries that also require a path never apply."""
    lists = []
    for entry in entries:
        if entry.get("condition") == "AND" and "paths" in entry:
            continue
        if regexes := entry.get("regexes"):
            patterns = [_lazy(regex) for regex in regexes]
            target = entry.get("regexTarget", "secret")
            in_line = regexes if target == "line" else ()
            partial_patterns = (
                build_partial_pattern(regex, unspaced=end)
                for regex in in_line
                for end in (False, True)
            )
            lists.append(
                Allowlist(
                    target, patterns, [_lazy(partial) for partial in partial_patterns if partial]
                )
            )
        if words := entry.get("stopwords"):
            stopwords = _lazy(f"(?i){'|'.join(map(re.escape, words))}")
            lists.append(Allowlist("secret", [stopwords]))
    return lists
