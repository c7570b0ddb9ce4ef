"""The calls page: recent calls, and the details of one."""

from __future__ import annotations

from typing import Any

from proxy.console.recent_calls import RecentCall, RecentCalls
from proxy.policy.review.call_history import CallHistory
from proxy.runtime.frozen import frozen


@frozen
class CallPages:
    """Lists recent calls and explains them.

    ``trace_url`` is the address of a trace in a tracing system, with ``{trace_id}`` in it.
    """

    recent: RecentCalls
    history: CallHistory
    trace_url: str | None = None

    def list(self, number: int = 0) -> dict[str, Any]:
        """Return the calls after a number, the newest first."""
        calls = self.recent.calls_after(number)
        return {
            "last": self.recent.last_number,
            "calls": [call.row() for call in reversed(calls)],
        }

    def details(self, number: int) -> dict[str, Any] | None:
        """Return a call with its attempts and its explanation, None if it is not stored."""
        call = self.recent.find(number)
        if call is None:
            return None
        return {
            **call.row(),
            "attempt_list": call.attempt_rows(),
            "explanation": self._explanation(call),
            "trace_url": self._trace_url(call),
        }

    def _explanation(self, call: RecentCall) -> dict[str, Any] | None:
        line = call.line
        request_id, key, span_id = line["request_id"], line["key"], line["span_id"]
        explanation = self.history.explain_span(request_id, key, span_id)
        return None if explanation is None else explanation.data()

    def _trace_url(self, call: RecentCall) -> str | None:
        if self.trace_url is None:
            return None
        return self.trace_url.replace("{trace_id}", call.line["trace_id"])
