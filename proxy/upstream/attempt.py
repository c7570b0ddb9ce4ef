"""One attempt at a target, and the context that the attempts of a model call share."""

from __future__ import annotations

from proxy.call.attempts import Attempt
from proxy.call.record import Record
from proxy.dialects.requests.upstream_request import UpstreamRequest
from proxy.errors import (
    ProxyError,
    RequestTimeout,
    StaleConnection,
    UpstreamRejected,
    UpstreamTimeout,
)
from proxy.errors.words import MAX_ID, ascii_word
from proxy.money.usage import read_usage
from proxy.runtime.frozen import frozen
from proxy.types import Call, ModelCall, Plan, Target
from proxy.upstream.errors import blame, redact_credentials
from proxy.upstream.health import TargetSlot


@frozen
class AttemptContext:
    """A model call and its plan. ``index`` is its position in the plan."""

    plan: Plan
    call: Call
    record: Record
    index: int
    model_call: ModelCall

    def time_left(self) -> float:
        """Return the seconds left for further attempts.

        All attempts together may take as long as all upstreams, or the client, allow.
        """
        allowed_s = 0.0
        for target in self.model_call.targets:
            allowed_s += target.upstream.timeouts.total
        if self.call.timeout_s is not None:
            allowed_s = min(allowed_s, self.call.timeout_s)
        return allowed_s - (self.record.now() - self.record.started)


@frozen
class OpenAttempt:
    """An attempt that holds a slot of its target. Call ``leave`` exactly once."""

    call: Call
    target: Target
    request: UpstreamRequest
    attempt: Attempt
    record: Record
    slot: TargetSlot

    def fail(self, error: BaseException) -> BaseException:
        """Record the failure. Return the error to raise, without our credentials.

        Call it at most once. A timeout that the client set does not count against the target.
        """
        is_total_timeout = (
            isinstance(error, UpstreamTimeout) and error.code == "upstream_total_timeout"
        )
        client_timeout_s, timeout_s = self.call.timeout_s, self.target.upstream.timeouts.total
        if is_total_timeout and client_timeout_s is not None and client_timeout_s < timeout_s:
            error = RequestTimeout("The timeout that the request set has passed.")
            self.attempt.error = error.code
            return error
        if isinstance(error, UpstreamRejected):
            error = blame(error, self.call, self.target)
        if isinstance(error, ProxyError):
            redact_credentials(error, self.target.upstream)
            self._replace_ids(error)
            self.attempt.error = error.code
            self.attempt.cause, self.attempt.system_text = error.cause, error.system_text
            self.attempt.findings = error.findings or self.attempt.findings
            if error.usage is not None:  # the final usage
                self.attempt.meter.report(read_usage(error.usage))
                self.attempt.finished = self.attempt.meter.reported is not None
                self.attempt.bill = None
        else:
            self.attempt.error = "cancelled"
        if isinstance(error, StaleConnection):
            return error  # the target is not at fault
        if not is_total_timeout or self.record.now() - self.attempt.started > timeout_s / 2:
            self.slot.fail(error)  # otherwise earlier attempts used up the time
        return error

    def _replace_ids(self, error: ProxyError) -> None:
        """Replace the provider's ids of stored objects in a message by the client's ids."""
        state_ref = self.call.state_ref
        if state_ref is not None and state_ref.id:
            error.message = error.message.replace(state_ref.id, state_ref.client_id)
        for client_id, upstream_id in self.call.item_ids:
            if upstream_id in error.message:  # client ids may be as long as a body
                error.message = error.message.replace(upstream_id, ascii_word(client_id, MAX_ID))

    def on_sent(self) -> None:
        """Record that the upstream has the whole request."""
        self.attempt.sent_at = self.record.now()

    def leave(self) -> None:
        """Record the end of the attempt and release its slot."""
        self.attempt.ended = self.record.now()
        self.slot.give_back()
