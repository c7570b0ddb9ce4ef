"""What a client reads of each error: codes, statuses and types, of which the page of errors and the
labels of metrics are made. ``errors.py`` and ``wire_errors.py`` have the classes.
"""

from __future__ import annotations

from typing import NamedTuple

from proxy import errors, wire_errors
from proxy.errors import ProxyError


class ErrorRow(NamedTuple):
    """A class of errors, and for the page what the class alone does not say: where nothing is
    given, its own status, type and first sentence hold. ``alike`` are classes that clients cannot
    tell from it."""

    error: type[ProxyError]
    alike: tuple[type[ProxyError], ...] = ()
    status: str | None = None
    types: tuple[str, ...] = ()
    when: str | None = None

    @property
    def codes(self) -> tuple[str, ...]:
        error = self.error
        return error.codes if issubclass(error, errors.UpstreamTimeout) else (error.code,)


ERROR_TABLE = (
    ErrorRow(ProxyError, when="A fault of the proxy's own; the message has the request's number."),
    ErrorRow(errors.BadRequest),
    ErrorRow(errors.BadField, status="400, Scale 422"),
    ErrorRow(errors.Unauthorized),
    ErrorRow(errors.RefusedByRule, status="403, or the rule's"),
    ErrorRow(
        errors.GuardBlocked,
        alike=(errors.UpstreamDenied,),
        status="400, Portkey 446",
        types=("`invalid_request_error`", "Portkey `hooks_failed`"),
        when="A guard found what the policy does not let pass, in the question or in the answer; "
        "or a guard of the upstream denied the call.",
    ),
    ErrorRow(errors.GuardUnavailable),
    ErrorRow(errors.NotFound, alike=(errors.PathNotFound,)),
    ErrorRow(errors.ModelNotFound),
    ErrorRow(errors.MethodNotAllowed),
    ErrorRow(errors.RequestTimeout),
    ErrorRow(errors.LimitExceeded),
    ErrorRow(errors.BudgetExceeded, types=("`insufficient_quota`",)),
    ErrorRow(errors.TooLarge),
    ErrorRow(wire_errors.UnsupportedMedia),
    ErrorRow(wire_errors.ExpectationFailed),
    ErrorRow(wire_errors.VersionNotSupported),
    ErrorRow(wire_errors.CodingNotSupported),
    ErrorRow(errors.LoopDetected),
    ErrorRow(errors.ClientGone),
    ErrorRow(errors.UpstreamRefused, status="the upstream's"),
    ErrorRow(errors.UpstreamNotFound, status="the upstream's"),
    ErrorRow(errors.UpstreamRejectedKey),
    ErrorRow(errors.UpstreamForbids),
    ErrorRow(errors.UpstreamUnavailable, status="502, or its 429 or 503"),
    ErrorRow(errors.UpstreamStale),
    ErrorRow(errors.CircuitOpen, status="503"),
    ErrorRow(errors.UpstreamBusy, status="503"),
    ErrorRow(errors.UpstreamTimeout),
    ErrorRow(errors.UpstreamInvalid),
    ErrorRow(errors.AnswerTooLarge),
    ErrorRow(errors.LimitStoreUnavailable),
    ErrorRow(errors.Overloaded),
    ErrorRow(errors.Stopping),
)
CODES = tuple(code for row in ERROR_TABLE for code in row.codes)
