"""Errors of upstreams: meaning, fault, retries, and redaction of our credentials."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from string import ascii_lowercase, ascii_uppercase
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import orjson

from proxy import errors
from proxy.call.attempts import Attempt
from proxy.dialects import DIALECTS, statuses
from proxy.errors.words import MAX_ID, MAX_TEXT
from proxy.types import Call, Retry, Target, Upstream
from proxy.types.target import CREDENTIAL_WORDS
from proxy.upstream.reply import Reply

MAX_BODY_BYTES = 64 * 1024
BODY_TIMEOUT_S = 5.0
MAX_RETRY_AFTER_S = 3600.0
UNKNOWN_PATH_MESSAGE = re.compile(
    r"(not found|method not allowed|(404 )?page not found|no route matched.*|invalid url\b.*"
    r"|cannot (get|post|delete|put|patch) /.*)\.?",
    re.IGNORECASE,
)
"""Messages of web frameworks, gateways and OpenAI for an unknown path."""
UNKNOWN_STATUSES = frozenset({404, 405, 410})
UNKNOWN_MODEL_CODES = frozenset(
    {"DeploymentNotFound", "invalid_model", "model_decommissioned", "model_not_active"}
    | {"model_not_available", "model_not_found", "unknown_model"}
)
"""Error codes and types for an unknown model, with any status."""
ID_SUFFIXES = ("_id", "_ids", "_file")
ID_FIELDS = frozenset({"container", "conversation", "file"})
CLIENT_FIELDS = frozenset({"args", "arguments", "metadata"})
"""Fields whose members the client names."""
CLIENT_IDS = frozenset({"call_id", "tool_call_id", "tool_use_id", "user_id"})
"""Ids in requests that refer to nothing that an upstream stores."""
PLAIN_QUERY = frozenset({"include", "include[]", "limit", "order", "purpose"})
"""Query parameters that contain no id of an object."""
MAX_VALUES = 10_000  # values of a body that are searched for ids

MIN_SECRET_PART = 8  # characters of a credential that may be shown
CREDENTIAL_MASK = "***"
_CREDENTIAL_NAME = re.compile("|".join(CREDENTIAL_WORDS), re.IGNORECASE)
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)


async def read_error(reply: Reply, upstream: Upstream) -> errors.ProxyError:
    """Return the error for a reply with an error status. Reads a bounded part of its body."""
    status, server = reply.status, DIALECTS[upstream.dialect].server
    meaning = statuses.classify_status(server.statuses, status)
    if meaning == "credential":
        return statuses.make_client_error(meaning, statuses.ErrorBody(), status)
    if meaning == "invalid":
        return errors.UpstreamInvalid(f"The upstream sent an unexpected status ({status}).")
    body = bytearray()
    with suppress(errors.UpstreamError, TimeoutError):
        async with asyncio.timeout(BODY_TIMEOUT_S):
            while len(body) < MAX_BODY_BYTES and (piece := await reply.read()):
                body += piece
    error_body = statuses.ErrorBody()
    with suppress(orjson.JSONDecodeError):
        error_body = statuses.parse_error_body(orjson.loads(body[:MAX_BODY_BYTES]))
    meaning = statuses.classify_error(server.statuses, server.denial_codes, error_body, status)
    error = statuses.make_client_error(meaning, error_body, status)
    if isinstance(error, errors.UpstreamRejected):
        has_code = error_body.code is not None and not error_body.code.isdigit()
        is_bare = not has_code and UNKNOWN_PATH_MESSAGE.fullmatch(error_body.message or "")
        error.is_api_error = error_body != statuses.ErrorBody() and not is_bare
    if isinstance(error, errors.UpstreamUnavailable):
        error.retry_after_s = parse_retry_after(reply.headers)
    should_retry = reply.headers.get("x-should-retry")
    if should_retry in ("true", "false"):
        error.should_retry = should_retry == "true"
    return error


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the requested wait in seconds, at most ``MAX_RETRY_AFTER_S``.

    A date is relative to the response's ``date``, so that clocks need not agree.
    """
    seconds = 0.0
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        with suppress(ValueError):
            seconds = float(headers.get(name, "")) * unit
            break
    else:
        with suppress(TypeError, ValueError):
            retry_at = parsedate_to_datetime(headers.get("retry-after", ""))
            sent_at = parsedate_to_datetime(headers.get("date", ""))
            seconds = (retry_at - sent_at).total_seconds()
    return min(seconds, MAX_RETRY_AFTER_S) if seconds > 0 else None


def reclassify_policy_fault(
    error: errors.UpstreamRejected, call: Call, target: Target
) -> errors.UpstreamRejected:
    """Return the error, as ``UpstreamNotFound`` if the policy is at fault.

    The policy is at fault if it names a model or path that the upstream does not know. The client
    is at fault if the request names an object that the upstream stores.
    """
    if not _is_policy_fault(error, call, target):
        return error
    status = error.upstream_status or error.status
    not_found = errors.UpstreamNotFound(error.message, upstream_status=status, param=error.param)
    vars(not_found).update(vars(error), should_retry=False)
    return not_found


def _is_policy_fault(error: errors.UpstreamRejected, call: Call, target: Target) -> bool:
    if error.upstream_code in UNKNOWN_MODEL_CODES or error.upstream_type in UNKNOWN_MODEL_CODES:
        return error.param in (None, "model")  # other fields have models named by the client
    if error.upstream_status not in UNKNOWN_STATUSES:
        return False
    passthrough = call.head.passthrough
    if not error.is_api_error and passthrough is None:
        return True  # for example a load balancer without backends
    names_object = call.state_ref is not None
    if passthrough is not None:
        query = {name for name, _ in parse_qsl(passthrough.query)}
        names_object |= passthrough.path != call.head.route or not query <= PLAIN_QUERY
    if names_object:
        return False
    return target.model in error.message or not _has_stored_object_ids(call.body)


def _has_stored_object_ids(body: dict[str, Any]) -> bool:
    """Return True if one of the first ``MAX_VALUES`` values names a stored object."""
    values: deque[Any] = deque((body,))
    for _ in range(MAX_VALUES):
        if not values:
            return False
        value = values.popleft()
        if isinstance(value, dict):
            if any(_is_stored_object_id(name, value[name]) for name in value):
                return True
            values.extend(value[name] for name in value if name not in CLIENT_FIELDS)
        elif isinstance(value, list):
            values.extend(value)
    return False


def _is_stored_object_id(name: str, value: Any) -> bool:
    """Return True if a member is an id. An object is the schema of a tool's argument."""
    if name in CLIENT_IDS or not (name in ID_FIELDS or name.endswith(ID_SUFFIXES)):
        return False
    return bool(value) and isinstance(value, (str, list))


def redact_credentials(error: errors.ProxyError, upstream: Upstream) -> None:
    """Redact our credentials in an error's upstream text. Drops codes that contain a part."""
    if error.system_text is not None:
        error.system_text = redact_text(error.system_text, upstream)
    hosts = [*_iter_address_spellings(upstream)]
    if error.upstream_message is not None:
        error.set_message(redact_text(error.upstream_message, upstream, hosts))
    if error.param is not None:
        error.param = redact_text(error.param, upstream, hosts)[:MAX_ID]
    error.upstream_code = _drop_if_secret(error.upstream_code, upstream)
    error.upstream_type = _drop_if_secret(error.upstream_type, upstream)
    error.findings = tuple(f for f in error.findings if _drop_if_secret(f.detector, upstream))


def _drop_if_secret(word: str | None, upstream: Upstream) -> str | None:
    return word if word is None or redact_text(word, upstream) == word else None


def redact_text(text: str, upstream: Upstream, hosts: Iterable[str] = ()) -> str:
    """Mask parts of our credentials and ``hosts`` in a text, ignoring case.

    Returns the start of a long text, longer than any message.
    """
    text = text[: 2 * MAX_TEXT]
    lower = text.translate(_LOWER)
    spans: list[tuple[int, int]] = []
    for part in (*_iter_credential_substrings(upstream), *hosts):
        start = lower.find(part)
        while start >= 0:
            spans.append((start, start + len(part)))
            start = lower.find(part, start + 1)
    pieces: list[str] = []
    position = 0
    for start, end in sorted(spans):
        if start > position or not pieces:
            pieces += [text[position:start], CREDENTIAL_MASK]
        position = max(position, end)
    return "".join([*pieces, text[position:]])


def _iter_address_spellings(upstream: Upstream) -> Iterator[str]:
    """Yield the spellings of an upstream's address, without bare names such as ``vllm``."""
    parts = urlsplit(upstream.base_url.lower())
    host, netloc = parts.hostname or "", parts.netloc.rpartition("@")[2]
    yield from (f"//{host}", f"//{netloc}")
    if parts.port is not None:
        yield netloc
    if "." in host or ":" in host:
        yield host


def _iter_credential_substrings(upstream: Upstream) -> Iterator[str]:
    """Yield the parts of each credential, and the whole values of other configured headers."""
    for name, secret in (("api-key", upstream.api_key), *upstream.headers):
        value = "" if secret is None else secret.reveal().translate(_LOWER)
        if len(value) <= MIN_SECRET_PART or not _CREDENTIAL_NAME.search(name):
            yield from filter(None, (value,))
        else:
            starts = range(len(value) - MIN_SECRET_PART + 1)
            yield from {value[start : start + MIN_SECRET_PART] for start in starts}


REJECTED = (errors.UpstreamNotFound, errors.UpstreamRejectedKey)
"""Failures before the upstream did any work, because of our key, account or path."""
STATUSES_WITHOUT_WORK = frozenset({429, 503, 529})


def get_retry_cause(failure: errors.ProxyError) -> int | str | None:
    """Return the status or word to find in a policy's ``retry.on``, None if no retry can help."""
    if isinstance(failure, errors.ResponseTooLarge | errors.NotSent) or not isinstance(
        failure, errors.UpstreamError
    ):
        return None
    if isinstance(failure, errors.UpstreamTimeout):
        return {"upstream_connect_timeout": "connect", "upstream_total_timeout": None}.get(
            failure.code, "timeout"
        )
    if isinstance(failure, errors.UpstreamInvalid):
        return "invalid"
    return failure.upstream_status or "connect"


def compute_retry_delay(
    retry: Retry | None, failure: errors.ProxyError, attempts: int, random: Callable[[], float]
) -> float | None:
    """Return the seconds before the next attempt at the same target, None for no retry.

    Draws between 0 and a bound that doubles with each of ``attempts``, and at least what the
    upstream requests. An upstream that requests more than the policy allows is not retried.
    """
    if retry is None or attempts > retry.times or get_retry_cause(failure) not in retry.on:
        return None
    if isinstance(failure, errors.UpstreamUnavailable) and failure.should_retry is False:
        return None
    requested_s = failure.retry_after_s or 0.0
    if requested_s > retry.max_wait:
        return None
    max_s = min(retry.max_wait, retry.wait * 2.0 ** (attempts - 1))
    return max(requested_s, random() * max_s)


def is_surely_unprocessed(failure: errors.ProxyError, attempts: list[Attempt]) -> bool:
    """Return True if no upstream can have done any work for the last attempt.

    Such a call may be repeated even if it must be executed only once.
    """
    if isinstance(failure, (errors.InvalidField, errors.NotSent, *REJECTED)):
        return True
    return attempts[-1].sent_at is None or attempts[-1].status in STATUSES_WITHOUT_WORK


def choose_most_useful_error(failures: Sequence[errors.ProxyError]) -> errors.ProxyError:
    """Return the failure that helps the client most, of the failures in the order of targets.

    1. The first that blames the request: only another request helps.
    2. The last that a retry may avoid.
    3. Of targets that were not requested, the one with the shortest wait.
    4. The last that no client can avoid.
    5. A request that the target's dialect cannot express, because other targets may.
    """
    for failure in failures:
        if failure.is_final:
            return failure
    sent = [
        error for error in failures if not isinstance(error, errors.NotSent | errors.InvalidField)
    ]
    retryable = [error for error in sent if error.should_retry is not False]
    if retryable:
        return retryable[-1]
    not_sent = [error for error in failures if isinstance(error, errors.NotSent)]
    if not_sent:
        return min(not_sent, key=lambda error: error.retry_after_s or 0.0)
    return (sent or failures)[-1]
