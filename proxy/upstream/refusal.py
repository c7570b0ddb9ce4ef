"""What an upstream's error status means for the client, and which of its words may pass."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import orjson

from proxy.errors import (
    ProxyError,
    UpstreamInvalid,
    UpstreamRefused,
    UpstreamRejectedKey,
    UpstreamUnavailable,
)
from proxy.types import Json, Upstream
from proxy.upstream.reply import Reply

ERROR_BYTES = 64 * 1024
MAX_RETRY_AFTER_S = 3600.0
PASSED_ON = frozenset({400, 402, 404, 408, 409, 413, 415, 422})


async def refusal(reply: Reply, upstream: Upstream) -> ProxyError:
    """Give the error for a reply that is no answer, reading a bounded part of its body."""
    status = reply.status
    if status in (401, 403):
        return UpstreamRejectedKey("The upstream refused the proxy's key.", upstream_status=status)
    if 300 <= status < 400 or status < 300:
        return UpstreamInvalid(f"The upstream answered with status {status}.")
    said = _message(await reply.body(ERROR_BYTES), upstream)
    if status in PASSED_ON:
        text = str(said.get("message") or f"The upstream refused the request ({status}).")
        param = said.get("param")
        return UpstreamRefused(
            text, upstream_status=status, param=param if isinstance(param, str) else None
        )
    error = UpstreamUnavailable(
        f"The upstream is not available ({status}).",
        status=status if status in (429, 503) else 502,
        upstream_status=status,
    )
    error.retry_after_s = retry_after(reply.headers)
    return error


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Give the seconds that an upstream asks to wait, as a sane number, or None.

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


def _message(body: bytes, upstream: Upstream) -> Json:
    """Find the error object of any dialect; our own key, should it be quoted, is taken out."""
    try:
        data: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    if not isinstance(data, dict):
        return {}
    said = data.get("error") or data.get("detail") or data
    if isinstance(said, str):
        said = {"message": said}
    if not isinstance(said, dict) or not isinstance(said.get("message"), str):
        return {}
    text = said["message"][:2000]
    for secret in (upstream.api_key, *(value for _, value in upstream.headers)):
        if secret is not None and secret.reveal():
            text = text.replace(secret.reveal(), "***")
    return {"message": text, "param": said.get("param")}
