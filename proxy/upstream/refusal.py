"""The error for an upstream's response that is no answer, and which of its words may pass."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime

import orjson

from proxy.dialects import DIALECTS
from proxy.dialects.statuses import (
    ErrorBody,
    error_of,
    meaning_of,
    meaning_of_error,
    parse_error,
)
from proxy.errors import (
    ProxyError,
    UpstreamError,
    UpstreamInvalid,
    UpstreamRefused,
    UpstreamUnavailable,
)
from proxy.types import Upstream
from proxy.upstream.reply import Reply

ERROR_BYTES = 64 * 1024
ERROR_S = 5.0
BARE = re.compile(
    r"(not found|method not allowed|(404 )?page not found|no route matched.*|invalid url\b.*"
    r"|cannot (get|post|delete|put|patch) /.*)\.?",
    re.IGNORECASE,
)
"""What web frameworks, gateways and OpenAI say of any path that nobody serves."""
MAX_RETRY_AFTER_S = 3600.0


async def refusal(reply: Reply, upstream: Upstream) -> ProxyError:
    """Return the error for a reply that is no answer, reading a bounded part of its body."""
    status, server = reply.status, DIALECTS[upstream.dialect].server
    meaning = meaning_of(server.statuses, status)
    if meaning == "credential":
        return error_of(meaning, ErrorBody(), status)
    if meaning == "invalid":
        return UpstreamInvalid(f"The upstream sent an unexpected status ({status}).")
    error = _parse(await _body(reply))
    meaning = meaning_of_error(server.statuses, server.denials, error, status)
    refused = error_of(meaning, error, status)
    if isinstance(refused, UpstreamRefused):
        refused.in_words = error != ErrorBody() and not _is_bare(error)
    if isinstance(refused, UpstreamUnavailable):
        refused.retry_after_s = retry_after(reply.headers)
    should_retry = reply.headers.get("x-should-retry")
    if should_retry in ("true", "false"):
        refused.should_retry = should_retry == "true"
    return refused


def _is_bare(error: ErrorBody) -> bool:
    """True if an error says no more than that nobody serves the path."""
    is_coded = error.code is not None and not error.code.isdigit()
    return not is_coded and BARE.fullmatch(error.message or "") is not None


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that an upstream asks to wait, at most ``MAX_RETRY_AFTER_S``, or None.

    A date counts from the response's own ``date``, so that no two clocks have to agree.
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * unit
        except ValueError:
            continue
        return min(seconds, MAX_RETRY_AFTER_S) if seconds > 0 else None
    try:
        until = parsedate_to_datetime(headers.get("retry-after", ""))
        seconds = (until - parsedate_to_datetime(headers.get("date", ""))).total_seconds()
    except (TypeError, ValueError):
        return None
    return min(seconds, MAX_RETRY_AFTER_S) if seconds > 0 else None


async def _body(reply: Reply) -> bytes:
    """Read what comes of the body in a moment: the status alone says what there is to know."""
    whole = bytearray()
    with suppress(UpstreamError, TimeoutError):
        async with asyncio.timeout(ERROR_S):
            while len(whole) < ERROR_BYTES and (piece := await reply.read()):
                whole += piece
    return bytes(whole[:ERROR_BYTES])


def _parse(body: bytes) -> ErrorBody:
    try:
        return parse_error(orjson.loads(body))
    except orjson.JSONDecodeError:
        return ErrorBody()
