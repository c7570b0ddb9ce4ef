"""Table of all errors that a client can receive, with their codes, statuses and types.

``docs/errors.md`` and metric labels are built from it. The classes are in this package and in
``wire.py``.
"""

from __future__ import annotations

from typing import NamedTuple

from proxy import errors
from proxy.errors import ProxyError
from proxy.errors import wire as wire_errors


class ErrorRow(NamedTuple):
    """A row of the page of errors: an error class, and values that replace its attributes there.

    ``equivalents`` are classes that look the same to a client.
    """

    error: type[ProxyError]
    equivalents: tuple[type[ProxyError], ...] = ()
    status: str | None = None
    types: tuple[str, ...] = ()
    when: str | None = None

    @property
    def codes(self) -> tuple[str, ...]:
        error = self.error
        return error.codes if issubclass(error, errors.UpstreamTimeout) else (error.code,)


ERROR_TABLE = (
    ErrorRow(ProxyError),
    ErrorRow(errors.BadRequest),
    ErrorRow(errors.InvalidField, status="400, Scale 422"),
    ErrorRow(errors.Unauthorized),
    ErrorRow(errors.RejectedByRule, status="403, or the rule's"),
    ErrorRow(
        errors.GuardBlocked,
        equivalents=(errors.BlockedByUpstream,),
        status="400, Portkey 446",
        types=("`invalid_request_error`", "Messages `policy_blocked`", "Portkey `hooks_failed`"),
        when="A guard of the policy or of the upstream blocked the request or the response.",
    ),
    ErrorRow(errors.GuardUnavailable),
    ErrorRow(errors.NotFound, equivalents=(errors.PathNotFound,)),
    ErrorRow(errors.ModelNotFound),
    ErrorRow(wire_errors.MethodNotAllowed),
    ErrorRow(wire_errors.WebSocketNotSupported),
    ErrorRow(errors.RequestTimeout),
    ErrorRow(errors.LimitExceeded),
    ErrorRow(errors.BudgetExceeded, types=("`insufficient_quota`",)),
    ErrorRow(errors.RequestTooLarge),
    ErrorRow(wire_errors.UnsupportedMedia),
    ErrorRow(wire_errors.ExpectationFailed),
    ErrorRow(wire_errors.VersionNotSupported),
    ErrorRow(wire_errors.TransferCodingNotSupported),
    ErrorRow(wire_errors.LoopDetected),
    ErrorRow(errors.ClientDisconnected),
    ErrorRow(errors.UpstreamRejected, status="the upstream's"),
    ErrorRow(errors.UpstreamNotFound, status="the upstream's"),
    ErrorRow(errors.UpstreamRejectedKey, status="403, or 429 if the account has no credit"),
    ErrorRow(errors.UpstreamForbids, status="403, or 429 if the account has no credit"),
    ErrorRow(errors.UpstreamUnavailable, status="502, or its 429 or 503"),
    ErrorRow(errors.StaleConnection),
    ErrorRow(errors.CircuitOpen, status="503"),
    ErrorRow(errors.UpstreamBusy, status="503"),
    ErrorRow(errors.UpstreamTimeout),
    ErrorRow(errors.UpstreamInvalid),
    ErrorRow(errors.ResponseTooLarge),
    ErrorRow(errors.LimitStoreUnavailable),
    ErrorRow(errors.Overloaded),
    ErrorRow(errors.ShuttingDown),
)
ERROR_CODES = tuple(code for row in ERROR_TABLE for code in row.codes)
