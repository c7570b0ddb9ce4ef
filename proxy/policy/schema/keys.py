"""Sections ``keys``, ``revoked``, ``cors``, ``tags`` and ``caller_tags``, and patterns of values.

Clients send values of tags and headers, so a backtracking engine could block the process. RE2 runs
in linear time and bounded memory. It does not support look-around and backreferences.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import field
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    WithJsonSchema,
    field_validator,
)

from proxy.config.scalars import (
    NAME_PATTERN,
    VISIBLE_PATTERN,
    Digest,
    ItemOrList,
    Moment,
    Name,
    Section,
    TagKey,
    make_pattern_annotations,
    require,
)
from proxy.config.shapes import Requirement, equals, is_not_null, one_of
from proxy.guards.matching.re2set import compile_pattern as compile_re2
from proxy.runtime.frozen import frozen


class CredentialConfig(Section):
    """One secret of a virtual key."""

    digest: Digest
    """SHA-256 of the secret."""
    until: Moment = None
    """End of validity: a day (inclusive, UTC) or a time. Default: no end."""

    SHORT_FORMS = ((str, "digest"),)
    FORM_MESSAGE = "must be text"


class KeyConfig(Section):
    """A virtual key, stored as the SHA-256 of its secrets."""

    sha256: Annotated[list[CredentialConfig], Field(min_length=1), ItemOrList()]
    """SHA-256 of the secret, created by `headrace key NAME`. Use a list during rotation, with plain
    digests or `{digest: ..., until: 2026-12-31}`."""
    expires: Moment = None
    """End of validity of the key and all its secrets."""
    deployments: Annotated[list[Name], Field(min_length=1)]
    """Deployments that the key may call."""
    description: str = ""
    """Description for readers."""
    tags: dict[TagKey, str] = Field(default_factory=dict)
    """Tags of its calls. They override tags of the deployment."""
    may: list[Literal["refresh", "trace"]] = Field(default_factory=list)
    """Additional permissions: `refresh` reloads the policies through a header, `trace` samples its
    calls as its `traceparent` header requests."""


REVOCATION_MESSAGE = "must be the name of a key or its SHA-256 in hex"


def is_revocation(value: Any) -> bool:
    """Return True if an entry can be the name or the digest of a key."""
    return isinstance(value, str) and re.fullmatch(NAME_PATTERN, value) is not None


Revocation = Annotated[str, *make_pattern_annotations(NAME_PATTERN, REVOCATION_MESSAGE, "widget")]
ORIGIN_PATTERN = r"\*|[a-z][a-z0-9+.-]*://[a-z0-9._-]+(?::[0-9]{1,5})?"
Origin = Annotated[
    str,
    *make_pattern_annotations(
        ORIGIN_PATTERN,
        "must be an origin in lower case without a path, such as https://app.example.com, or *",
        "https://app.example.com",
    ),
]


class CorsConfig(Section):
    """Web pages that may call from a browser and read responses."""

    origins: Annotated[list[Origin], Field(max_length=1000)] = Field(default_factory=list)
    """Allowed origins, or `*` for all. Cookies are never allowed."""


MAX_TAG_CHARS = 64
MAX_CACHED_MATCHES = 256
"""Maximum length of values whose match is cached, and maximum number of them."""


def is_valid_tag_value(value: str) -> bool:
    """Return True if a tag value is short, printable and in Unicode form NFC."""
    return (
        0 < len(value) <= MAX_TAG_CHARS
        and value.isprintable()
        and unicodedata.is_normalized("NFC", value)
    )


@frozen
class ValueSet:
    """Allowed values: the listed ``values``, or those that a pattern matches as a whole."""

    text: str
    matches: Callable[[str], bool] = field(repr=False, compare=False)
    values: frozenset[str] | None = None


def list_values(values: Iterable[str]) -> ValueSet:
    unique = frozenset(values)
    return ValueSet(" or ".join(sorted(unique)) or "no value", unique.__contains__, unique)


def compile_tag_pattern(text: str) -> ValueSet:
    """Compile an RE2 pattern of plain values. Raise ``ValueError`` if it is invalid."""
    try:
        matches = _compile_matcher(text)
    except ValueError as error:
        raise ValueError(f"is not a valid RE2 pattern: {error}") from None
    return ValueSet(text, lambda value: is_valid_tag_value(value) and matches(value))


def compile_glob(text: str) -> ValueSet:
    """Compile a glob: ``*`` matches any characters, ``?`` one. Every text is valid."""
    parts = {"*": "(?s:.*)", "?": "(?s:.)"}
    pattern = "".join(parts.get(char) or f"\\x{{{ord(char):x}}}" for char in text)
    return ValueSet(text, _compile_matcher(pattern))


def _compile_matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that matches whole values, and caches the results for short ones."""
    regex = compile_re2(pattern)

    def matches(value: str) -> bool:
        try:
            return regex.fullmatch(value.encode()) is not None
        except UnicodeEncodeError:  # half of a surrogate pair matches no pattern
            return False

    cached = lru_cache(MAX_CACHED_MATCHES)(matches)
    return lambda value: cached(value) if len(value) <= MAX_CACHED_MATCHES else matches(value)


TAG_VALUE_SCHEMA = {
    "type": "string",
    "minLength": 1,
    "maxLength": MAX_TAG_CHARS,
    "pattern": VISIBLE_PATTERN,
}


TAG_VALUE_MESSAGE = f"must be 1 to {MAX_TAG_CHARS} printable characters in Unicode form NFC"
TagValue = Annotated[
    str, require(is_valid_tag_value, TAG_VALUE_MESSAGE), WithJsonSchema(TAG_VALUE_SCHEMA)
]


class TagConfig(Section):
    """Allowed values of a tag: a list, a pattern, or ``flag`` for a tag without a value."""

    values: Annotated[list[TagValue], Field(min_length=1)] | None = None
    """Allowed values."""
    pattern: str | None = None
    """RE2 pattern that the whole value must match."""
    flag: bool = False
    """Whether the tag has no value: it is set or not set."""
    caller: bool = False
    """Whether clients may set the tag in a header."""

    SHORT_FORMS = ((list, "values"), ("flag", "flag"))
    REQUIREMENTS = (
        Requirement(
            one_of(is_not_null("values"), is_not_null("pattern"), equals("flag", True)),
            "must have exactly one of values, pattern and flag",
        ),
    )

    @field_validator("pattern")
    @classmethod
    def _check_pattern(cls, value: str | None) -> str | None:
        if value is not None:
            compile_tag_pattern(value)
        return value


class CallerTagsConfig(Section):
    """Handling of client tags that the policy does not allow."""

    otherwise: Literal["drop", "refuse"] = "drop"
    """`drop` removes the tag with a warning header; `refuse` rejects the call."""
