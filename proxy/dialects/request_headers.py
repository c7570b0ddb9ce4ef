"""Reads request headers that are common to all dialects.

Headers never choose an upstream, a host or a price. A malformed header that affects the call is
refused. A malformed header that only informs is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace

from proxy.dialects.base import Headers, UpstreamDialect
from proxy.errors import BadRequest
from proxy.errors.words import MAX_NAME, MAX_WORDS
from proxy.types import Endpoint, RequestHead, Secret, TraceContext

GEMINI_KEY = "x-goog-api-key"
MAX_TIMEOUT_S = 86_400
REFRESH_IGNORED = "cache refresh ignored: this key may not refresh the cache"
Tag = tuple[str, str | None]
PREFIX = "\nx-headrace-"
"""Occurs in ``joined_names`` if a request has headers of the proxy."""
SETTINGS = re.compile(r"[A-Za-z0-9._=-]{1,64}(?:, ?[A-Za-z0-9._=-]{1,64}){0,31}")
"""Allowed values of client headers that are forwarded: short words."""
ACCOUNT_SUFFIX = "-id"
"""Ends the names of headers that choose a workspace or an organization."""
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_MARK = re.compile(r"\b[0-9a-f]{16}\b")
_TRUE = frozenset({"true", "1"})
_FALSE = frozenset({"false", "0", ""})


def joined_names(headers: Headers) -> str:
    """Return the names of headers, each after a newline, to search for prefixes."""
    return "\n".join(("", *headers))


def bad_header(name: str, problem: str) -> BadRequest:
    return BadRequest(f"{name}: {problem}", param=name)


def bearer(headers: Headers) -> Secret | None:
    """Read ``Authorization: Bearer …``. Other schemes are ignored."""
    header = headers.get("authorization", "")
    if header[:7] != "Bearer " and header[:7].lower() != "bearer ":
        return None
    token = header[7:].strip()
    return Secret(token) if token else None


def plain(name: str, headers: Headers) -> Secret | None:
    """Read a header whose whole value is the credential."""
    token = headers.get(name, "").strip()
    return Secret(token) if token else None


def gemini_key(endpoint: Endpoint, headers: Headers) -> Secret | None:
    """Return the credential of a Gemini client, which is valid for passthrough only."""
    return plain(GEMINI_KEY, headers) if endpoint == "passthrough" else None


def forwarded_headers(
    headers: Headers, server: UpstreamDialect, accepts: Collection[str]
) -> dict[str, str]:
    """Return the client headers for an upstream of the same dialect.

    A header that chooses an account is omitted, unless the upstream ``accepts`` it.
    """
    prefix = server.forwarded_prefix
    return {
        name: value
        for name, value in headers.items()
        if prefix is not None
        and name.startswith(prefix)
        and (name in accepts or not name.endswith(ACCOUNT_SUFFIX))
        and SETTINGS.fullmatch(value)
    }


def flag(name: str, headers: Headers) -> bool:
    """Read a boolean header. Raises ``BadRequest`` for other values."""
    value = headers.get(name, "").strip().lower()
    if value in _TRUE:
        return True
    if value in _FALSE:
        return False
    raise bad_header(name, "must be true or false")


def labels(name: str, headers: Headers) -> tuple[Tag, ...]:
    """Read ``k=v,k2=v2`` or labels without values. Raises ``BadRequest``."""
    pairs: list[Tag] = []
    for part in headers.get(name, "").split(","):
        key, equals, value = part.partition("=")
        if key.strip():
            pairs.append((key.strip(), value.strip() if equals else None))
    return checked_tags(name, pairs)


def checked_tags(name: str, pairs: Sequence[Tag]) -> tuple[Tag, ...]:
    """Return the tags of a header. Raises ``BadRequest`` for too many, long or malformed ones."""
    if len(pairs) > MAX_WORDS:
        raise bad_header(name, f"must have at most {MAX_WORDS} tags")
    texts = [text or "" for pair in pairs for text in pair]
    if any(len(text) > MAX_NAME for text in texts):
        raise bad_header(name, f"must have at most {MAX_NAME} characters in each tag")
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:  # other bytes are read as surrogates
        raise bad_header(name, "must be valid UTF-8") from None
    return tuple(pairs)


def parent(headers: Headers) -> TraceContext | None:
    """Read a W3C ``traceparent``. A malformed one starts a new trace, as the standard requires."""
    match = _TRACEPARENT.fullmatch(headers.get("traceparent", "").strip())
    if match is None or not int(match[1], 16) or not int(match[2], 16):
        return None
    return TraceContext(match[1], match[2], is_sampled=bool(int(match[3], 16) & 1))


def common(headers: Headers, head: RequestHead) -> RequestHead:
    """Read the proxy's own headers, which every dialect allows."""
    return replace(
        head,
        deployment=headers.get("x-headrace-deployment", "").strip() or None,
        tags=labels("x-headrace-tags", headers),
        bypass_cache=flag("x-headrace-refresh-cache", headers),
        parent=parent(headers),
        via=tuple(_MARK.findall(headers.get("x-headrace-via", ""))),
    )
