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
    Meaning,
    is_about_account,
    is_denial,
    is_too_large,
    meaning_of,
    parse_error,
)
from proxy.errors import (
    ProxyError,
    UpstreamDenied,
    UpstreamError,
    UpstreamForbids,
    UpstreamInvalid,
    UpstreamRefused,
    UpstreamRejectedKey,
    UpstreamUnavailable,
)
from proxy.types import Upstream
from proxy.upstream.own_secrets import concealed
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
        return UpstreamRejectedKey(upstream_status=status)
    if meaning == "invalid":
        return UpstreamInvalid(f"The upstream sent an unexpected status ({status}).")
    error = _parse(await _body(reply))
    if is_denial(server.denials, error):
        meaning = "denied"
    elif status == 429 and is_too_large(error):
        meaning = "request"
    elif meaning == "request" and is_about_account(error):
        meaning = "forbidden"
    refused = _error(meaning, reply, upstream, error)
    refused.findings = error.findings
    return refused


def _error(meaning: Meaning, reply: Reply, upstream: Upstream, error: ErrorBody) -> ProxyError:
    status = reply.status
    if meaning == "denied":
        return UpstreamDenied(_message(error, upstream), upstream_status=status)
    if meaning == "request":
        text = _message(error, upstream)
        param = None if error.param is None else concealed(error.param, upstream)
        refused = UpstreamRefused(text, upstream_status=status, param=param)
        refused.in_words = error != ErrorBody() and not _is_bare(error)
        return refused.worded(error.code, error.type)
    if meaning == "forbidden":
        return UpstreamForbids(upstream_status=status).worded(error.code, error.type)
    unavailable = UpstreamUnavailable(
        status=status if status in (429, 503) else 502, upstream_status=status
    )
    unavailable.retry_after_s = retry_after(reply.headers)
    return unavailable.worded(error.code, error.type)


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


def _message(error: ErrorBody, upstream: Upstream) -> str:
    return concealed(error.message or "", upstream)
