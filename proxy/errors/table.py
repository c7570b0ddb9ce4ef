"""Errors that a client can receive, for ``docs/errors.md`` and metric labels.

They are the classes of this package and of ``wire.py`` that define a code.
"""

from __future__ import annotations

from collections.abc import Mapping

from proxy import errors
from proxy.errors import ProxyError, wire

ERRORS: tuple[type[ProxyError], ...] = tuple(
    error
    for module in (errors, wire)
    for error in vars(module).values()
    if isinstance(error, type)
    and issubclass(error, ProxyError)
    and not {"code", "codes"}.isdisjoint(vars(error))
)
STATUSES: Mapping[type[ProxyError], str] = {
    errors.InvalidField: "400, Scale 422",
    errors.RejectedByRule: "403, or the rule's",
    errors.GuardBlocked: "400, Portkey 446",
    errors.UpstreamRejected: "the upstream's",
    errors.UpstreamNotFound: "the upstream's",
    errors.UpstreamRejectedKey: "403, or 429 if the account has no credit",
    errors.UpstreamForbids: "403, or 429 if the account has no credit",
    errors.UpstreamUnavailable: "502, or its 429 or 503",
}
"""Statuses that differ between calls or dialects, for the page of errors."""
TYPES: Mapping[type[ProxyError], str] = {
    errors.GuardBlocked: (
        "`invalid_request_error`, Messages `policy_blocked`, Portkey `hooks_failed`"
    )
}
"""Types that differ between dialects, for the page of errors."""


def list_codes(error: type[ProxyError]) -> tuple[str, ...]:
    return error.codes if issubclass(error, errors.UpstreamTimeout) else (error.code,)


ERROR_CODES = tuple(code for error in ERRORS for code in list_codes(error))
