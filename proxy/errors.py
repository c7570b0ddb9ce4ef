"""Every reason for which a call may end early: ``Refused`` is the client's doing, ``UpstreamError``
the provider's, others are the proxy's own. Those for how a request is written on the wire stand in
``wire_errors.py``; ``error_table.py`` says what a client reads of each.

Messages are written for the client: they never hold a key, a prompt or an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Self, get_args

from proxy.words import MAX_ID, MAX_TEXT

Phase = Literal["connect", "first_byte", "idle", "total"]
Lapse = Literal["missing", "unknown", "expired", "revoked"]


class UpstreamFinding(NamedTuple):
    """What one detector of an upstream says of one call; an error may be all that comes with it."""

    stage: Literal["input", "output"]
    detector: str
    found: bool


class ProxyError(Exception):
    """A call ends here; ``dialects`` renders it once, in the client's own form.

    ``code`` is a stable metric label, ``param`` the field at fault. ``should_retry`` is for SDKs,
    whose own guess by the status is wrong. ``proxy.words`` bounds messages and parameters.
    ``usage`` is what an upstream says to have used all the same, in OpenAI's form.
    """

    status: int = 500
    code: str = "internal_error"
    type: str = "server_error"
    final: bool = False  # True where another target fares no better
    should_retry: bool | None = None
    upstream_code: str | None = None
    upstream_type: str | None = None

    def __init__(self, message: str, *, param: str | None = None) -> None:
        self.message = message[:MAX_TEXT]
        super().__init__(self.message)
        self.param = None if param is None else param[:MAX_ID]
        self.retry_after_s: float | None = None
        self.findings: tuple[UpstreamFinding, ...] = ()
        self.usage: Mapping[str, Any] | None = None

    @property
    def client_code(self) -> str:
        """What a client reads as the code of the error; it may be an upstream's own word."""
        return self.upstream_code or self.code

    @property
    def client_type(self) -> str:
        """What a client reads as the type of the error; it may be an upstream's own word."""
        return self.upstream_type or self.type


class Refused(ProxyError):
    """The client's doing: another attempt with the same request fails the same way."""

    status = 400
    code = "bad_request"
    type = "invalid_request_error"


class BadRequest(Refused):
    """The request cannot be understood."""


class BadField(BadRequest):
    """One named field has a wrong type, a value out of its range, or does not fit another."""

    code = "invalid_value"

    def __init__(self, param: str, problem: str) -> None:
        super().__init__(f"{param}: {problem}", param=param)
        self.problem = problem


class Unauthorized(Refused):
    """No virtual key that counts: the same words for all; operators see which, and its name.

    A client that sends none where it is read is told where that is.
    """

    status = 401
    code = "invalid_api_key"
    type = "authentication_error"

    def __init__(self, lapse: Lapse = "missing", key: str | None = None) -> None:
        super().__init__("The virtual key is missing or not valid.")
        self.lapse, self.key = lapse, key

    def add(self, hint: str) -> None:
        """Add to the message where a key seems to be, and where it should be."""
        self.message = f"{self.message} {hint}".rstrip()


class RefusedByRule(Refused):
    """A rule of the policy says no, in its own words and with its own status."""

    status = 403
    code = "refused_by_policy"
    type = "permission_error"

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class GuardBlocked(Refused):
    """A guard found what the policy does not let pass, in the question or in the answer.
    ``guard`` is the rule's name and ``kind`` what was found: of a closed set, never a text."""

    status = 400
    code = "guardrail_blocked"

    def __init__(self, message: str, *, guard: str, kind: str) -> None:
        super().__init__(message)
        self.guard, self.kind = guard, kind


class GuardUnavailable(GuardBlocked):
    """A guard that must not let a text pass is late, not ready, or its service is away."""

    status = 503
    code = "guard_unavailable"
    type = ProxyError.type


class UpstreamDenied(GuardBlocked):
    """A guard of the upstream denied the call; a client reads what a block of our own says."""

    final = True

    def __init__(self, message: str, *, upstream_status: int | None) -> None:
        super().__init__(message, guard="upstream", kind="upstream")
        self.upstream_status = upstream_status


class NotFound(Refused):
    """No such route or deployment, or none that this key may know of."""

    status = 404
    code = "not_found"


class PathNotFound(NotFound):
    """No such path. ``wanted`` is the path, without what may be an id or a secret in it."""

    def __init__(self, message: str, wanted: str) -> None:
        super().__init__(message)
        self.wanted = wanted


class ModelNotFound(NotFound):
    """No model of such a name, or none that this key may know of."""

    code = "model_not_found"


class MethodNotAllowed(Refused):
    """The path exists, for another method."""

    status = 405
    code = "method_not_allowed"

    def __init__(self, allowed: str) -> None:
        super().__init__(f"This path answers to {allowed} only.")
        self.allowed = allowed


class RequestTimeout(Refused):
    """The request did not arrive in time, or used up the time that it allowed itself."""

    status = 408
    code = "request_timeout"


class LimitExceeded(Refused):
    """A limit of the policy is reached; ``kind`` is what it counts.
    Without ``retry_after_s`` the call is larger than the limit, and another try never helps."""

    status = 429
    code = "rate_limit_exceeded"

    def __init__(self, message: str, limit: str, kind: str, retry_after_s: float | None) -> None:
        super().__init__(message)
        self.limit, self.type = limit, kind
        self.retry_after_s = retry_after_s
        self.should_retry = False if retry_after_s is None else None


class BudgetExceeded(LimitExceeded):
    """A budget is spent, or what is left of it is less than the call may cost."""

    code = "budget_exceeded"

    def __init__(self, limit: str, retry_after_s: float | None, *, spent: bool = True) -> None:
        if retry_after_s is None:
            message = f"The call may cost more than the budget {limit} ever allows."
        elif spent:
            message = f"The budget {limit} is spent."
        else:
            message = f"The call may cost more than what is left of the budget {limit}."
        super().__init__(message, limit, "insufficient_quota", retry_after_s)
        self.should_retry = False


class TooLarge(Refused):
    """The body exceeds the bound; it was not read to its end."""

    status = 413
    code = "request_too_large"


class LoopDetected(Refused):
    """An upstream of this proxy leads back to it."""

    status = 508
    code = "loop_detected"


class ClientGone(Refused):
    """Nobody is left to read the answer; never rendered, only recorded."""

    status = 499
    code = "client_gone"

    def __init__(self) -> None:
        super().__init__("The client closed the connection.")


class UpstreamError(ProxyError):
    """The provider's doing. ``upstream_status`` is what it said, if anything; ``reached`` is False
    where there was no connection. ``upstream_code`` and ``upstream_type`` are short words of its
    own error object: clients know what to do about many of them, so they read them, not ours.
    """

    status = 502
    code = "upstream_error"
    reached: bool = True

    def __init__(
        self, message: str, *, param: str | None = None, upstream_status: int | None = None
    ) -> None:
        super().__init__(message, param=param)
        self.upstream_status = upstream_status

    def worded(self, code: str | None, kind: str | None) -> Self:
        """Return this error, with the code and the type that the upstream gave it."""
        self.upstream_code, self.upstream_type = code, kind
        return self


class UpstreamRefused(UpstreamError):
    """The upstream finds the request itself at fault; its status and message pass."""

    code = "upstream_refused"
    type = "invalid_request_error"
    final = True
    in_words = True  # else perhaps no API was reached: the body was none of an error

    def __init__(self, message: str, *, upstream_status: int, param: str | None = None) -> None:
        super().__init__(message, param=param, upstream_status=upstream_status)
        self.status = upstream_status
        is_retried = upstream_status == 429 or upstream_status >= 500  # by SDKs, in vain
        self.should_retry = False if is_retried else None


class UpstreamNotFound(UpstreamRefused):
    """The upstream does not know the model or the path that the deployment names; its status and
    message pass. The client cannot mend it, and another target may know its own."""

    code = "upstream_not_found"
    final = False

    def __init__(self, message: str, *, upstream_status: int, param: str | None = None) -> None:
        super().__init__(message, upstream_status=upstream_status, param=param)
        self.should_retry = False


class UpstreamRejectedKey(UpstreamError):
    """The upstream refused the credential that the policy gave; the client cannot mend it."""

    code = "upstream_rejected_key"
    should_retry = False


class UpstreamForbids(UpstreamError):
    """The upstream knows the credential that the policy gave, and does not permit this call."""

    code = "upstream_forbids"
    should_retry = False


class UpstreamUnavailable(UpstreamError):
    """Not reachable, overloaded or failing; another try may do."""

    code = "upstream_unavailable"

    def __init__(
        self, message: str, *, status: int = 502, upstream_status: int | None = None
    ) -> None:
        super().__init__(message, upstream_status=upstream_status)
        self.status = status


class UpstreamStale(UpstreamUnavailable):
    """A connection at rest was closed just when it was used; the request was not taken."""

    code = "upstream_stale"

    def __init__(self) -> None:
        super().__init__("The upstream closed a connection at rest.")


class CircuitOpen(UpstreamUnavailable):
    """The target has failed too often; nothing was asked of it."""

    code = "upstream_circuit_open"

    def __init__(self, left_s: float) -> None:
        super().__init__("The upstream has failed too often and is left alone.", status=503)
        self.retry_after_s = left_s


class UpstreamBusy(UpstreamUnavailable):
    """The upstream has as many requests under way as the policy allows; nothing was asked."""

    code = "upstream_busy"

    def __init__(self, wait_s: float) -> None:
        super().__init__("The upstream has as many requests as it may have.", status=503)
        self.retry_after_s = wait_s


class UpstreamTimeout(UpstreamError):
    """The upstream kept silent for longer than its ``timeouts`` allow in this phase."""

    status = 504
    codes = tuple(f"upstream_{phase}_timeout" for phase in get_args(Phase))

    def __init__(self, phase: Phase) -> None:
        super().__init__(f"The upstream did not answer in time ({phase.replace('_', ' ')}).")
        self.code, self.reached = f"upstream_{phase}_timeout", phase != "connect"


class UpstreamInvalid(UpstreamError):
    """The upstream answered with something that is no answer."""

    code = "upstream_invalid_response"


class AnswerTooLarge(UpstreamInvalid):
    """The answer has more bytes or values than the policy allows; somebody asked for so much."""

    code = "upstream_answer_too_large"
    should_retry = False  # it would be paid for in vain


class LimitStoreUnavailable(ProxyError):
    """The store of a limit's counters is away, and the limit says ``on_store_error: closed``."""

    status = 503
    code = "limit_store_unavailable"

    def __init__(self, limit: str, retry_after_s: float | None) -> None:
        super().__init__(f"The limit {limit} cannot be checked now: its store does not answer.")
        self.limit, self.retry_after_s = limit, retry_after_s


class Overloaded(ProxyError):
    """The bodies of all requests under way, or of all answers, take as much memory as they may."""

    status = 503
    code = "overloaded"

    def __init__(self, what: str = "requests") -> None:
        super().__init__(f"There are too many bytes of {what} under way.")
        self.retry_after_s = 1.0


class Stopping(ProxyError):
    """The proxy is shutting down and the time for running calls is over."""

    status = 503
    code = "stopping"

    def __init__(self) -> None:
        super().__init__("The proxy is shutting down.")
        self.retry_after_s = 1.0
