"""Refusals of upstreams: the error for each, whose fault it is, and which of its words may pass."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import parse_qsl

import orjson

from proxy.dialects import DIALECTS
from proxy.dialects.statuses import ErrorBody, error_of, meaning_of, meaning_of_error, parse_error
from proxy.errors import (
    ProxyError,
    UpstreamError,
    UpstreamInvalid,
    UpstreamNotFound,
    UpstreamRejected,
    UpstreamUnavailable,
)
from proxy.types import Call, Target, Upstream
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
UNKNOWN = frozenset({404, 405, 410})
MODEL_CODES = frozenset(
    {
        "DeploymentNotFound",
        "invalid_model",
        "model_decommissioned",
        "model_not_active",
        "model_not_available",
        "model_not_found",
        "unknown_model",
    }
)
"""The codes, or types, by which upstreams say, under any status, that they do not know the model.
"""
KEPT_SUFFIXES = ("_id", "_ids", "_file")
KEPT_NAMES = frozenset({"container", "conversation", "file"})
OF_OTHERS = frozenset({"args", "arguments", "metadata"})
"""Members whose names are those of a client's own things."""
OWN_IDS = frozenset({"call_id", "tool_call_id", "tool_use_id", "user_id"})
"""Ids that name nothing that an upstream keeps."""
NO_NAMES = frozenset({"include", "include[]", "limit", "order", "purpose"})
"""What a query may say without naming a thing."""
MOST_VALUES = 10_000  # of a body that are looked at


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
    if isinstance(refused, UpstreamRejected):
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


def blame(error: UpstreamRejected, call: Call, target: Target) -> UpstreamRejected:
    """Return the error of an upstream that finds a request at fault, or one of another kind where
    the fault is that of the policy, which names a model or a path that the upstream does not know.

    The client is at fault if it named something that the upstream keeps.
    """
    if not _is_policys_fault(error, call, target):
        return error
    status = error.upstream_status or error.status
    found = UpstreamNotFound(error.message, upstream_status=status, param=error.param)
    vars(found).update(vars(error), should_retry=False)
    return found


def _is_policys_fault(error: UpstreamRejected, call: Call, target: Target) -> bool:
    if error.upstream_code in MODEL_CODES or error.upstream_type in MODEL_CODES:
        return error.param in (None, "model")  # elsewhere stands a model that the client names
    if error.upstream_status not in UNKNOWN:
        return False
    if not error.in_words and call.head.passthrough is None:
        return True  # some balancer that has lost what is behind it
    if _is_about_what_is_kept(call):
        return False
    return target.model in error.message or not _has_ids(call.body)


def _is_about_what_is_kept(call: Call) -> bool:
    """True if a client says in the path or its query which thing of those that an upstream keeps is
    meant, or leans on one."""
    passed = call.head.passthrough
    if passed is None:
        return call.state_ref is not None
    names = {name for name, _ in parse_qsl(passed.query)}
    return passed.path != call.head.route or not names <= NO_NAMES or call.state_ref is not None


def _has_ids(body: dict[str, Any]) -> bool:
    """True if a field of a body names something that an upstream keeps, as far as is looked."""
    values: deque[Any] = deque((body,))
    for _ in range(MOST_VALUES):
        if not values:
            return False
        value = values.popleft()
        if isinstance(value, dict):
            if any(_is_id(name, value[name]) for name in value):
                return True
            values.extend(value[name] for name in value if name not in OF_OTHERS)
        elif isinstance(value, list):
            values.extend(value)
    return False


def _is_id(name: str, value: Any) -> bool:
    """True if a member names something. What describes a tool's argument is an object."""
    if name in OWN_IDS or not (name in KEPT_NAMES or name.endswith(KEPT_SUFFIXES)):
        return False
    return bool(value) and (isinstance(value, (str, list)))
