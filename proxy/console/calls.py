"""The calls page: the log lines of the last calls, and the details of one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from secrets import token_hex
from typing import Annotated

from pydantic import BaseModel, Field

from proxy.call.attempts import Attempt
from proxy.call.record import Captured, CapturedText, Record
from proxy.console import Data, to_redacted_json
from proxy.errors.words import MAX_NAME, MAX_WORDS
from proxy.policy.review import MAX_CALLS, MAX_UNAUTHORIZED
from proxy.policy.review.call_history import CallHistory
from proxy.policy.review.compare import CandidateSink

MAX_CAPTURED = 50
"""Calls whose captured texts are stored, and redacted when a page asks for them."""
MAX_CHARS = 16_000
"""Stored characters of a captured prompt, and of a captured response."""
MAX_REQUEST_BYTES = 65_536
"""Texts of larger requests are not stored, as they need memory and time to redact."""
SHOWN_HEADERS = frozenset(
    {
        "content-type", "request-id", "retry-after", "retry-after-ms", "x-headrace-cache",
        "x-headrace-cost-usd", "x-headrace-deployment", "x-headrace-error", "x-headrace-policy",
        "x-headrace-warning", "x-ratelimit-limit-requests", "x-ratelimit-limit-tokens",
        "x-ratelimit-remaining-requests", "x-ratelimit-remaining-tokens",
        "x-ratelimit-reset-requests", "x-ratelimit-reset-tokens", "x-request-id", "x-should-retry",
        "x-trace-id",
    }
)  # fmt: skip
"""Response headers that are shown, of those that the proxy sends itself."""


class CallsQuery(BaseModel):
    """Selects the calls after the one with this id, or all."""

    after: Annotated[str, Field(pattern="^([0-9a-f]{8}-[0-9]{1,15})?$")] = ""


@dataclass(slots=True)
class RecentCall:
    """A call: its id in the console, its log line, and the details that the line lacks.

    ``captured`` redacts its texts. ``json`` is its row, once a page has requested it.
    """

    number: int
    id: str
    line: Data
    details: Data
    captured: Callable[[], Captured] | None = None
    json: bytes = b""


class RecentCalls:
    """The last ``MAX_CALLS`` calls, and the last ``MAX_UNAUTHORIZED`` calls without a valid key.

    The latter are stored separately, so that anybody's calls cannot displace those of a key. Ids of
    calls contain ``run``, because their numbers begin again at a restart. ``trace_url`` is the
    address of a trace in a tracing system, with ``{trace_id}`` in it.
    """

    def __init__(
        self,
        history: CallHistory,
        candidate: CandidateSink | None = None,
        trace_url: str | None = None,
    ) -> None:
        self.run = token_hex(4)
        self._history = history
        self._candidate = candidate
        self._trace_url = trace_url
        self._calls: deque[RecentCall] = deque(maxlen=MAX_CALLS)
        self._unauthorized: deque[RecentCall] = deque(maxlen=MAX_UNAUTHORIZED)
        self._captured: deque[RecentCall] = deque(maxlen=MAX_CAPTURED)
        self._last_number = 0

    def add(self, record: Record, line: Data) -> None:
        """Add a finished call, given its log line in the native schema."""
        self._last_number += 1
        details: Data = {
            "attempt_list": [
                _make_attempt_row(attempt, record.started)
                for attempt in record.attempts[:MAX_WORDS]
            ],
            "response_headers": record.response_headers,
        }
        call = RecentCall(number=self._last_number, id=self.last_id, line=line, details=details)
        (self._unauthorized if record.key is None else self._calls).append(call)
        size = 0 if record.call is None else record.call.size
        if record.captured is not None and size <= MAX_REQUEST_BYTES:
            if len(self._captured) == MAX_CAPTURED:
                self._captured[0].captured = None
            call.captured = record.captured
            self._captured.append(call)

    @property
    def last_id(self) -> str:
        """Id of the last call."""
        return f"{self.run}-{self._last_number}"

    def list_calls_after(self, call_id: str) -> list[RecentCall]:
        """Return the calls after the one with this id, the oldest first.

        After the id of another run, and after an empty one, come all of them.
        """
        run, _, text = call_id.rpartition("-")
        number = int(text) if run == self.run else 0
        calls: list[RecentCall] = []
        for stored in (self._calls, self._unauthorized):
            for call in reversed(stored):
                if call.number <= number:
                    break
                calls.append(call)
        return sorted(calls, key=lambda call: call.number)

    def _make_row(self, call: RecentCall) -> Data:
        """Return the log line of a call, with its id and the result of the candidate."""
        candidate = self._candidate.find_result(call.line["span_id"]) if self._candidate else None
        return {"id": call.id, **call.line, "candidate": candidate}

    def get_row_json(self, call: RecentCall) -> bytes:
        """Return the row of a call as JSON. It is encoded once for all pages."""
        call.json = call.json or to_redacted_json(self._make_row(call))
        return call.json

    def find(self, call_id: str) -> RecentCall | None:
        """Return the call with this id, None if it is not stored."""
        return next((call for call in self.list_calls_after("") if call.id == call_id), None)

    def build_details(self, call: RecentCall) -> Data:
        """Return a call with its attempts, explanation and redacted texts.

        Call it in a thread, because to redact texts may take a second.
        """
        line, url = call.line, self._trace_url
        explanation = self._history.explain_span(line["request_id"], line["key"], line["span_id"])
        headers = call.details["response_headers"]
        return {
            **self._make_row(call),
            **call.details,
            "response_headers": {
                name: headers[name][:MAX_NAME] for name in SHOWN_HEADERS & headers.keys()
            },
            "captured": _read_captured(call.captured),
            "explanation": None if explanation is None else explanation.to_json(),
            "trace_url": None if url is None else url.replace("{trace_id}", line["trace_id"]),
        }


def _make_attempt_row(attempt: Attempt, start: float) -> Data:
    """Return an attempt with its times in milliseconds since the start of the call."""
    first_token_at = attempt.meter.first_token_at
    return {
        "upstream": attempt.target.upstream.name,
        "model": attempt.target.model,
        "reason": attempt.reason,
        "status": attempt.status,
        "error": attempt.error,
        "start_ms": (attempt.started - start) * 1000,
        "first_token_ms": first_token_at and (first_token_at - start) * 1000,
        "end_ms": ((attempt.ended or attempt.started) - start) * 1000,
    }


def _read_captured(captured: Callable[[], Captured] | None) -> Data | None:
    """Return the texts of a call, None without them and if a guard fails."""
    if captured is None:
        return None
    try:
        texts = captured()
    except Exception:  # noqa: BLE001  # the exporter of traces reports it
        return None
    return {"prompt": _cut_texts(texts.prompt), "response": _cut_texts(texts.response)}


def _cut_texts(texts: Sequence[CapturedText]) -> list[Data]:
    """Return the first ``MAX_CHARS`` characters of texts."""
    rows: list[Data] = []
    remaining = MAX_CHARS
    for text in texts:
        if remaining <= 0:
            break
        rows.append({"role": text.role[:MAX_NAME], "text": text.text[:remaining]})
        remaining -= len(text.text)
    return rows
