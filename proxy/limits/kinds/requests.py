"""Limit on calls per period. Each call counts as one."""

from __future__ import annotations

from proxy.types.limit import LimitKind


class RequestRate(LimitKind):
    """Calls per period."""

    name = "requests"
    unit = "request"
    headers = (
        "x-ratelimit-limit-requests",
        "x-ratelimit-remaining-requests",
        "x-ratelimit-reset-requests",
    )
