"""Errors that end a call.

``RequestError`` is caused by the client, ``UpstreamError`` by the provider, any other by the proxy.
``wire.py`` has the errors of HTTP framing. ``docs/errors.md`` has the first line of each docstring.
Messages are for the client, and never contain a key, a prompt or a response.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Self, get_args

from proxy.errors.causes import ErrorCause
from proxy.errors.words import MAX_ID, MAX_NAME, MAX_TEXT, shorten

Phase = Literal["connect", "first_byte", "idle", "total"]
KeyProblem = Literal["missing", "unknown", "expired", "revoked"]


class UpstreamFinding(NamedTuple):
    """Result of one detector of an upstream's guards, reported in a response or an error."""

    stage: Literal["input", "output"]
    detector: str
    found: bool


class ProxyError(Exception):
    """An internal error of the proxy. The message contains the request id.

    - ``summary``: the default message. ``param``: the field at fault.
    - ``code``: a stable metric label.
    - ``should_retry``: overrides SDKs, which decide by the status.
    - ``upstream_message``: None if ``message`` is the proxy's own.
    - ``usage``: the upstream's charge for the failed call, in OpenAI's form.
    - ``cause``, ``system_text``: shown to operators only.
    """

    summary = "The proxy failed"
    status: int = 500
    code: str = "internal_error"
    type: str = "server_error"
    is_final: bool = False  # no other target can serve the call
    should_retry: bool | None = None
    upstream_status: int | None = None
    upstream_code: str | None = None
    upstream_type: str | None = None
    upstream_message: str | None = None
    cause: ErrorCause | None = None
    system_text: str | None = None
    retry_after_s: float | None = None
    findings: tuple[UpstreamFinding, ...] = ()
    usage: Mapping[str, Any] | None = None
    headers: tuple[tuple[str, str], ...] = ()

    def __init__(self, message: str = "", *, param: str | None = None) -> None:
        self.set_message(message or self.own_message)
        self.param = None if param is None else param[:MAX_ID]

    @property
    def own_message(self) -> str:
        """Default message, without any text of the upstream."""
        status = "" if self.upstream_status is None else f" (status {self.upstream_status})"
        return f"{self.summary}{status}."

    def set_message(self, message: str) -> None:
        self.message = message[:MAX_TEXT]
        self.args = (self.message,)

    def set_api_error(self, code: str | None, kind: str | None, message: str | None = None) -> Self:
        """Set the code, the type and the message of the upstream. Return this error."""
        self.upstream_code, self.upstream_type = code, kind
        if message:
            self.upstream_message = message[: 2 * MAX_TEXT]  # redaction needs whole keys
            self.set_message(message)
        return self

    @property
    def client_code(self) -> str:
        """Code in the response body. It may be the upstream's."""
        return self.upstream_code or self.code

    @property
    def client_type(self) -> str:
        """Type in the response body. It may be the upstream's."""
        return self.upstream_type or self.type


class RequestError(ProxyError):
    """The proxy refuses the request. The same request fails again."""

    status = 400
    type = "invalid_request_error"


class BadRequest(RequestError):
    """The request is malformed."""

    code = "bad_request"


class InvalidField(BadRequest):
    """A field has a wrong type, an invalid value, or conflicts with another field."""

    code = "invalid_value"

    def __init__(self, param: str, problem: str) -> None:
        super().__init__(f"{param}: {problem}", param=param)
        self.problem = problem


class Unauthorized(RequestError):
    """The virtual key is missing, unknown, expired or revoked. The log says which."""

    status = 401
    code = "invalid_api_key"
    type = "authentication_error"

    def __init__(self, key_problem: KeyProblem = "missing", key: str | None = None) -> None:
        super().__init__("The virtual key is missing or invalid.")
        self.key_problem, self.key = key_problem, key


class RejectedByRule(RequestError):
    """A rule of the policy refuses the call. The rule sets message and status."""

    status = 403
    code = "refused_by_policy"
    type = "permission_error"

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class GuardBlocked(RequestError):
    """A guard of the policy or of the upstream blocked the request or the response.

    ``guard`` is the name of the rule, ``kind`` the kind of finding, never a text.
    """

    code = "guardrail_blocked"
    summary = "A guard of the policy blocked this call"

    def __init__(self, message: str, *, guard: str, kind: str) -> None:
        super().__init__(message)
        self.guard, self.kind = guard, kind


class GuardUnavailable(GuardBlocked):
    """A guard with ``on_error: closed`` timed out, is not ready, or has no reply of its service."""

    status = 503
    code = "guard_unavailable"
    type = ProxyError.type


class BlockedByUpstream(GuardBlocked):
    """A guard of the upstream blocked the call."""

    is_final = True
    summary = "A guard of the upstream blocked this call"

    def __init__(self, message: str = "", *, upstream_status: int | None) -> None:
        self.upstream_status = upstream_status
        super().__init__(message, guard="upstream", kind="upstream")


class NotFound(RequestError):
    """The path or deployment does not exist, or this key may not use it."""

    status = 404
    code = "not_found"


class PathNotFound(NotFound):
    """The path does not exist. ``path`` is the path without possible ids and secrets."""

    def __init__(self, message: str, path: str) -> None:
        super().__init__(message)
        self.path = path


class ModelNotFound(NotFound):
    """The model does not exist, or this key may not use it."""

    code = "model_not_found"


class RequestTimeout(RequestError):
    """The request did not arrive in time, or exceeded the timeout that it set itself."""

    status = 408
    code = "request_timeout"
    summary = "The request body did not arrive in time"


class LimitExceeded(RequestError):
    """A limit of the policy is reached. The type is what the limit counts.

    Without ``retry_after_s`` the call is larger than the whole limit.
    """

    status = 429
    code = "rate_limit_exceeded"

    def __init__(self, message: str, limit: str, kind: str, retry_after_s: float | None) -> None:
        super().__init__(message)
        self.limit, self.type = limit, kind
        self.retry_after_s = retry_after_s
        if retry_after_s is None:
            self.should_retry = False


class BudgetExceeded(LimitExceeded):
    """A budget is spent, or the call may cost more than the rest of it."""

    code = "budget_exceeded"
    type = "insufficient_quota"
    should_retry = False


class RequestTooLarge(RequestError):
    """The body is too large."""

    status = 413
    code = "request_too_large"


class ClientDisconnected(RequestError):
    """The client closed the connection. Logged, never sent."""

    status, code, summary = 499, "client_gone", "The client closed the connection"


class UpstreamError(ProxyError):
    """The upstream failed. ``reached_upstream`` is False if there was no connection."""

    status = 502
    reached_upstream: bool = True
    summary = "The upstream failed"

    def __init__(
        self,
        message: str = "",
        *,
        param: str | None = None,
        status: int | None = None,
        upstream_status: int | None = None,
    ) -> None:
        self.upstream_status = upstream_status
        super().__init__(message, param=param)
        self.status = self.status if status is None else status

    def set_cause(self, cause: ErrorCause | None, system_text: str | None = None) -> Self:
        """Set the reason why the connection failed. Return this error."""
        self.cause = cause
        self.system_text = shorten(system_text, MAX_NAME) if system_text else None
        return self


class UpstreamRejected(UpstreamError):
    """The upstream rejected the request. Its status and message are passed on."""

    code = "upstream_refused"
    type = "invalid_request_error"
    is_final = True
    is_api_error = True  # False for a page that is not an API error, such as a load balancer's
    summary = "The upstream rejected the request as invalid"

    def __init__(
        self, message: str = "", *, upstream_status: int, param: str | None = None
    ) -> None:
        super().__init__(message, param=param, upstream_status=upstream_status)
        self.status = upstream_status
        if upstream_status == 429 or upstream_status >= 500:  # SDKs would retry in vain
            self.should_retry = False


class UpstreamNotFound(UpstreamRejected):
    """The upstream lacks the model or path of the deployment. Its message is passed on."""

    code = "upstream_not_found"
    is_final = False
    should_retry = False


class UpstreamRejectedKey(UpstreamError):
    """The upstream rejected the API key of the policy. The operator must correct it."""

    status = 403  # LangChain.js and Codex retry every 5xx, whatever the headers say
    code = "upstream_rejected_key"
    type = "permission_error"
    summary = "The upstream rejected the API key that the operator configured for it"
    should_retry = False


class UpstreamForbids(UpstreamRejectedKey):
    """The API key of the policy is valid, but the upstream does not permit this call with it."""

    code = "upstream_forbids"
    summary = "The upstream does not permit this call with the API key that the operator configured"


class UpstreamUnavailable(UpstreamError):
    """The upstream is unreachable, overloaded or failing. A retry may succeed."""

    code = "upstream_unavailable"
    summary = "The upstream is unavailable"


class StaleConnection(UpstreamUnavailable):
    """The upstream closed an idle connection before it read the request."""

    code = "upstream_stale"
    summary = "The upstream closed an idle connection before it read the request"


class NotSent(UpstreamUnavailable):
    """The upstream got no request. It may get one after ``retry_after_s``."""

    status = 503

    def __init__(self, retry_after_s: float) -> None:
        super().__init__()
        self.retry_after_s = retry_after_s


class CircuitOpen(NotSent):
    """The circuit breaker of the target is open, so the upstream got no request."""

    code = "upstream_circuit_open"
    summary = "The circuit breaker is open, because the upstream failed repeatedly"


class UpstreamBusy(NotSent):
    """The upstream has ``max_concurrency`` requests in progress, so it got no other."""

    code = "upstream_busy"
    summary = "The upstream has as many requests in progress as the policy allows"


class UpstreamTimeout(UpstreamError):
    """The upstream exceeded one of its ``timeouts``."""

    status = 504
    cause: ErrorCause | None = "timeout"
    codes = tuple(f"upstream_{phase}_timeout" for phase in get_args(Phase))

    def __init__(self, phase: Phase) -> None:
        super().__init__(f"The upstream timed out ({phase.replace('_', ' ')} timeout).")
        self.code, self.reached_upstream = f"upstream_{phase}_timeout", phase != "connect"


class UpstreamInvalid(UpstreamError):
    """The upstream sent an invalid response."""

    code = "upstream_invalid_response"


class ResponseTooLarge(UpstreamInvalid):
    """The upstream's response is larger than the policy allows."""

    code = "upstream_answer_too_large"
    should_retry = False  # a retry would cost money and be blocked too


class LimitStoreUnavailable(ProxyError):
    """The store of a limit with ``on_store_error: closed`` is unavailable."""

    status = 503
    code = "limit_store_unavailable"

    def __init__(self, limit: str, retry_after_s: float | None) -> None:
        super().__init__(f'Limit "{limit}" cannot be checked: its store is unavailable.')
        self.limit, self.retry_after_s = limit, retry_after_s


class Overloaded(ProxyError):
    """The requests or responses in progress use all memory reserved for them."""

    status = 503
    code = "overloaded"
    retry_after_s = 1.0

    def __init__(self, resource: str = "requests") -> None:
        super().__init__(f"The proxy is overloaded: its {resource} use all reserved memory.")


class ShuttingDown(ProxyError):
    """The proxy is shutting down."""

    status = 503
    code = "stopping"
    summary = "The proxy is shutting down"
    retry_after_s = 1.0
