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

GITLEAKS_RULES = Path(__file__).parent / "rules" / "gitleaks.toml"
BETTERLEAKS_RULES = GITLEAKS_RULES.with_name("betterleaks.toml")
OWN_RULES = GITLEAKS_RULES.with_name("own.toml")
VALUE_START = r"(?:\b|\\[nrt])"  # the second letter of an escaped line feed is a letter of a word
VALUE_END = r"(?:[^\w+=(-]|$)"  # no character of a key; a parenthesis would make it a function call
MAX_REPEAT = 600
NEAR_BYTES = 300
MIN_SECRET_LENGTH = 6  # characters; a shorter group is a repeated part of the shape

# The lead of a rule for a value that is assigned to a name; the names are the first group.
OPTIONAL_LEAD = re.compile(r"\[\\w\.-\]\{0,50\}\?")
CURL_SPACE = r"[ \t\n\r]"
ASSIGNMENT_LEAD = re.compile(
    rf"^(?:\(\?i\))?(?:{OPTIONAL_LEAD.pattern})?(?:\(\?i:)?{OPTIONAL_LEAD.pattern}"
    r"(\(.+?\))\(\?:\[ \\t\\w\.-\]\{0,20\}\)"
)
# The end of a match in source code.
GITLEAKS_END = r"""(?:[\x60'"\s;]|\\[nr]|$)"""
LEADING_BOUNDARY = re.compile(r"(\(\?i\))?\\b")
CAPTURING_GROUP = re.compile(r"(?<!\\)\((?!\?[^P])")
FOUR_LETTER_PREFIXES = ("gh", "(?:gh")  # prefixes of four letters, which also occur in base64
# Rules that also match without a distinctive prefix, such as any digest or method.
RULES_WITHOUT_PREFIX = frozenset({"sourcegraph-access-token", "vault-service-token"})

# Rules with a keyword that may be outside of the match.
RULES_WITH_DISTANT_KEYWORD = frozenset(
    {"airtable-personnal-access-token", "cloudflare-origin-ca-key", "curl-auth-header",
     "curl-auth-user", "curl-password", "facebook-access-token",
     "slack-config-access-token", "sourcegraph-access-token"}
)  # fmt: skip


MIN_ENTROPY = 3.7
# Adjacent characters of different classes, as a share of all characters. Names written in camel
# case, with versions or with dates stay below both, and random characters are above one of them.
MIN_DIGIT_CHANGES, MIN_CHANGES = 0.17, 0.36

# Bytes of a token or a path before a match; bytes of a name before it.
MAX_TOKEN_BYTES, MAX_NAME_BYTES = 256, 40

_HEX = re.compile(rb"(?i)[0-9a-f]+(?:[_-][0-9a-f]+)*")
_UUID = re.compile(rb"(?i)[0-9a-z]{8}(?:-[0-9a-z]{4}){3}-[0-9a-z]{12}")
_TECHNICAL_TERM = re.compile(
    rb"(?i)(?:base|utf|iso|sha|md|rfc|u?int|x|win|ipv|oauth|http|bcrypt|argon|pbkdf|hmac|aes|str)"
    rb"[-_]?[0-9].*|[0-9.,]+(?:-?[a-z]{1,12}|[-/][0-9]+.*)|v?[0-9]+(?:\.[0-9]+)+.*"
)
_EXPRESSION = re.compile(rb"[(\[{$%\\/]|^[a-z_]\w*(?:\.[a-z_]\w*)+|::|->|=>|&#|@.*\.")
_PREFIX = re.compile(rb"(?:(?:[a-z]+|[A-Z]+|[A-Z][a-z]+)[_.-])+")
_LONG_RUN = re.compile(rb"[A-Za-z0-9]{11,}")
_DIGIT_CHANGE = re.compile(rb"(?=[A-Za-z][0-9]|[0-9][A-Za-z])")
_CASE_CHANGE = re.compile(rb"(?=[a-z][A-Z]|[A-Z][a-z])")
# Prefixes of objects that APIs, logs and traces name by a random identifier.
_OBJECT_PREFIX = re.compile(
    rb"(?i)(?:^|[_.-])(?:id|uid|call|chatcmpl|cmpl|msg|message|resp|response|req|request|run|step"
    rb"|thread|asst|assistant|file|batch|org|proj|project|item|evt|event|trace|span|job|task|node"
    rb"|user|usr|cus|customer|acct|account|sub|price|prod|order|invoice|charge|session|conv|chat"
    rb"|toolu|tool|image|img|doc|page|block|chunk|commit|build|rev|sha|md5|hash|etag|nonce)[_.-]$"
)
# A name that declares an identifier or a digest, or a separator.
_ID_NAME_BEFORE = re.compile(
    rb"(?i)(?:id|sha-?[0-9]{0,3}|md5|hash|digest|checksum|fingerprint|integrity|etag|cursor|marker"
    rb"|next_?token)[\"']?[ \t]{0,2}[:=][ \t]{0,2}[\"']?$|[\\#+]$"
)
_PATH_BEFORE = re.compile(rb"(?:^|[^\w:/.-])(?:\w:)?[\w./@~-]*/$")  # not part of a URL

# Continuations of a token: a host name, an address, base64, or a call.
_CONTINUATION = re.compile(rb"[+=(@]|\.[\w-]")


def shannon_entropy(data: bytes) -> float:
    """Return the Shannon entropy in bits per byte, or 0 for no data."""
    size = len(data)
    return -sum(n / size * math.log2(n / size) for n in Counter(data).values())


def is_prefixed_random_token(data: bytes, span: Span) -> bool:
    """Return True if a word prefix is followed by random characters that are not an identifier."""
    start, end = span
    token, lead = data[start:end], _PREFIX.match(data, start, end)
    if lead is None or len(token) > MAX_TOKEN_BYTES or _CONTINUATION.match(data, end):
        return False
    if _OBJECT_PREFIX.search(lead[0]) or _UUID.search(token):
        return False
    if _ID_NAME_BEFORE.search(data, max(0, start - MAX_NAME_BYTES), start):
        return False
    if data[start - 1 : start] == b"/" and _PATH_BEFORE.search(
        data, max(0, start - MAX_TOKEN_BYTES), start
    ):
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
    is_word = not re.search(rb"[0-9]", value)
    if is_word or _TECHNICAL_TERM.fullmatch(value) or _EXPRESSION.search(value):
        return False
    return value.isdigit() or re.search(rb"[A-Za-z]", value) is not None


def is_basic_credential(data: bytes, span: Span) -> bool:
    """Return True if a value is the base64 of a user and a password."""
    try:
        user, colon, password = b64decode(data[slice(*span)], validate=True).decode().partition(":")
    except (Error, ValueError):
        return False
    return bool(colon and password) and (user + password).isprintable()


def is_literal_value(data: bytes, span: Span) -> bool:
    """Return True unless a value is an expression of a program or a template."""
    return not _EXPRESSION.search(data[slice(*span)])


VALUE_CHECKS = {
    "basic_credential": is_basic_credential,
    "generated_token": is_prefixed_random_token,
    "literal": is_literal_value,
    "password": is_password,
}
"""Properties of values, by their name in a rule file."""


@frozen
class Allowlist:
    """Patterns that make a rule's match harmless if they match its secret, all of it or its line.

    They must begin before the rule's match ends. ``partial_patterns`` find partial matches.
    """

    target: Literal["secret", "match", "line"]
    patterns: Sequence[Pattern]
    partial_patterns: Sequence[Pattern] = ()

    def covers(self, data: bytes, match: Span, secret: Span) -> bool:
        span = self._get_target_span(data, match, secret)
        return _has_match_starting_before(self.patterns, data, span, match[1])

    def may_cover(self, data: bytes, match: Span) -> bool:
        """Return True if the allowlist may cover a match when more text arrives."""
        span = self._get_target_span(data, match, match)
        return span[1] >= len(data) and _has_match_starting_before(
            self.partial_patterns, data, span, match[1]
        )

    def _get_target_span(self, data: bytes, match: Span, secret: Span) -> Span:
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


def _has_match_starting_before(
    patterns: Sequence[Pattern], data: bytes, span: Span, limit: int
) -> bool:
    """Return True if one of the patterns matches in a span, from a start before ``limit``."""
    matches = (pattern.search(data[slice(*span)]) for pattern in patterns)
    return any(spans is not None and span[0] + spans[0][0] < limit for spans in matches)


@frozen
class SecretRule:
    """Rule for one kind of secret.

    ``name_pattern`` matches the names that the secret is assigned to. It is None for a secret with
    a distinctive format. ``is_secret_value`` checks the span of the secret in the data.
    """

    kind: str
    pattern: str
    compiled: Pattern
    keywords: Sequence[bytes] = ()
    min_entropy: float = 0.0
    group: int | None = None
    name_pattern: str | None = None
    allowlists: Sequence[Allowlist] = ()
    score: float = 1.0
    is_secret_value: Callable[[bytes, Span], bool] | None = None

    @property
    def patterns(self) -> Iterator[Pattern]:
        """All patterns of the rule, which are compiled when a text first needs them."""
        yield self.compiled
        for allowlist in self.allowlists:
            yield from (*allowlist.patterns, *allowlist.partial_patterns)

    def may_be_allowed(self, data: bytes, match: Span) -> bool:
        return any(allowlist.may_cover(data, match) for allowlist in self.allowlists)

    def find_secret(self, data: bytes, spans: Sequence[Span]) -> Span | None:
        """Return the span of the secret in a match, or None if the match is not a secret."""
        match, secret = spans[0], self._get_secret_span(spans)
        if self.keywords:
            context = data[max(0, match[0] - NEAR_BYTES) : match[1] + NEAR_BYTES].lower()
            if not any(keyword in context for keyword in self.keywords):
                return None
        if self.min_entropy and shannon_entropy(data[slice(*secret)]) <= self.min_entropy:
            return None
        if self.is_secret_value is not None and not self.is_secret_value(data, secret):
            return None
        is_allowed = any(allowlist.covers(data, match, secret) for allowlist in self.allowlists)
        return None if is_allowed else secret

    def _get_secret_span(self, spans: Sequence[Span]) -> Span:
        if self.group is not None:
            return spans[self.group]
        if self.compiled.has_named_groups:
            return spans[0]
        group_span = next((span for span in spans[1:] if span[0] >= 0), spans[0])
        return group_span if group_span[1] - group_span[0] >= MIN_SECRET_LENGTH else spans[0]


_lazy = partial(Pattern, lazy=True)  # compiled when a text first needs them

# Values of a name such as ``key`` that are no secrets: a constant, a member, a file, a digest.
GENERIC_KEY_ALLOWLISTS = (
    Allowlist("secret", [_lazy(r"^[A-Z][A-Z0-9]*(?:_+[A-Z0-9]+)+$|^_*[a-z]+(?:_[a-z0-9]+){2,}$")]),
    Allowlist("secret", [_lazy(r"^_?[a-z][a-z0-9_-]{0,20}\.(?:[A-Z][A-Za-z]+|[a-z]{1,5})$")]),
    Allowlist("match", [_lazy(r"(?i)sha[_-]?(?:1|256|384|512)|md5|digest|checksum|fingerprint")]),
)


def read_rule_file(path: Path = GITLEAKS_RULES) -> Sequence[SecretRule]:
    """Return the rules of a file. Their patterns are compiled later."""
    document = tomllib.loads(path.read_text())
    global_allowlists = [*_parse_allowlists([document.get("allowlist", {})])]
    return [
        _parse_rule(entry, global_allowlists) for entry in document["rules"] if "regex" in entry
    ]


def read_gitleaks_and_betterleaks_rules() -> Sequence[SecretRule]:
    """Return the rules of gitleaks and betterleaks."""
    return [*read_rule_file(), *read_rule_file(BETTERLEAKS_RULES)]


def build_assignment_pattern(name_patterns: Iterable[str]) -> str:
    """Return a pattern for a value assigned to one of the names, up to its first 10 bytes."""
    return (
        rf"(?i)(?:{'|'.join(dict.fromkeys(name_patterns))})[ \t\w.-]{{0,20}}[\s'\"]{{0,3}}"
        r"(?:=|>|:{1,3}=|\|\||:|=>|\?=|,)[\x60'\"\s=]{0,5}[\w.=+/:-]{10}"
    )


def _parse_rule(entry: Mapping[str, Any], global_allowlists: Sequence[Allowlist]) -> SecretRule:
    kind, regex, group = entry["id"], entry["regex"], entry.get("secretGroup")
    assignment = ASSIGNMENT_LEAD.match(regex)
    pattern = OPTIONAL_LEAD.sub("", regex) if assignment else regex
    # A rule that also matches the value without a name is searched by itself.
    name_pattern = None if assignment is None or r"|\b(" in regex else assignment[1]
    if regex.startswith(r"\bcurl\b"):
        pattern = CURL_SPACE + regex.partition(CURL_SPACE)[2]
    pattern = re.sub(r"\{(\d+),\}", rf"{{\1,{MAX_REPEAT}}}", pattern)
    if name_pattern is None and kind not in RULES_WITHOUT_PREFIX:
        pattern, group = _adapt_pattern_to_prose(pattern, group)
    is_generic = kind == "generic-api-key"  # recognized by its name only
    return SecretRule(
        kind=kind,
        pattern=pattern,
        compiled=_lazy(pattern),
        keywords=[keyword.encode() for keyword in entry.get("keywords", ())],
        min_entropy=entry.get("entropy", 0.0),
        group=group,
        name_pattern=name_pattern,
        allowlists=[
            *_parse_allowlists(entry.get("allowlists", ())),
            *global_allowlists,
            *(GENERIC_KEY_ALLOWLISTS if is_generic else ()),
        ],
        score=0.5 if is_generic else entry.get("score", 1.0),
        is_secret_value=VALUE_CHECKS[entry["accepts"]] if "accepts" in entry else None,
    )


def _adapt_pattern_to_prose(pattern: str, group: int | None) -> tuple[str, int | None]:
    """Return a pattern whose secret may be in a sentence, and the secret's group."""
    pattern = pattern.replace(GITLEAKS_END, VALUE_END)
    start = LEADING_BOUNDARY.match(pattern)
    if start is None:
        has_short_prefix = pattern.startswith(FOUR_LETTER_PREFIXES)
        return (f"{VALUE_START}({pattern})", 1) if has_short_prefix else (pattern, group)
    lead, tail = f"{start[1] or ''}{VALUE_START}", pattern[start.end() :]
    return (lead + tail, group) if CAPTURING_GROUP.search(tail) else (f"{lead}({tail})", 1)


def _parse_allowlists(entries: Iterable[Mapping[str, Any]]) -> Iterator[Allowlist]:
    """Parse allowlist entries. Entries that also require a path never apply."""
    for entry in entries:
        if entry.get("condition") == "AND" and "paths" in entry:
            continue
        if regexes := entry.get("regexes"):
            target = entry.get("regexTarget", "secret")
            ends = (False, True) if target == "line" else ()
            partials = [
                build_partial_pattern(each, unspaced=end) for each in regexes for end in ends
            ]
            yield Allowlist(target, [*map(_lazy, regexes)], [*map(_lazy, filter(None, partials))])
        if words := entry.get("stopwords"):
            yield Allowlist("secret", [_lazy(f"(?i){'|'.join(map(re.escape, words))}")])
