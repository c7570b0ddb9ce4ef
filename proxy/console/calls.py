"""The calls page: the log lines of the last calls, and the details of one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, takewhile
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
"""Shown characters of a captured prompt, and of a captured response."""
MAX_REQUEST_BYTES = 65_536
"""Texts of larger requests are not stored, as they need memory and time to redact."""
CaptureTexts = Callable[[], Captured]
"""Redacts the texts of a call, and returns them."""


class CallsQuery(BaseModel):
    """Selects the calls after the one with this id, or all."""

    after: Annotated[str, Field(pattern="^([0-9a-f]{8}-[0-9]{1,15})?$")] = ""


@dataclass(slots=True)
class RecentCall:
    """A call: its id in the console, its log line, and what the line lacks.

    ``json`` is its row, once a page has requested it.
    """

    number: int
    id: str
    line: Data
    attempts: Sequence[Data]
    response_headers: Mapping[str, str]
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
        self._captured: dict[str, CaptureTexts] = {}
        self._last_number = 0
        self.last_id = f"{self.run}-0"

    def add(self, record: Record, line: Data) -> None:
        """Add a finished call, given its log line in the native schema."""
        self._last_number += 1
        self.last_id = f"{self.run}-{self._last_number}"
        call = RecentCall(
            number=self._last_number,
            id=self.last_id,
            line=line,
            attempts=[_make_attempt_row(a, record.started) for a in record.attempts[:MAX_WORDS]],
            response_headers=record.response_headers,
        )
        (self._unauthorized if record.key is None else self._calls).append(call)
        size = 0 if record.call is None else record.call.size
        if record.captured is not None and size <= MAX_REQUEST_BYTES:
            if len(self._captured) == MAX_CAPTURED:
                del self._captured[next(iter(self._captured))]
            self._captured[call.id] = record.captured

    def list_calls_after(self, call_id: str) -> list[RecentCall]:
        """Return the calls after the one with this id, the oldest first.

        After the id of another run, and after an empty one, come all of them.
        """
        run, _, text = call_id.rpartition("-")
        number = int(text) if run == self.run else 0
        stored = (reversed(self._calls), reversed(self._unauthorized))
        newer = (takewhile(lambda call: call.number > number, calls) for calls in stored)
        return sorted(chain(*newer), key=lambda call: call.number)

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
        return {
            **self._make_row(call),
            "attempt_list": call.attempts,
            "response_headers": {n: v[:MAX_NAME] for n, v in call.response_headers.items()},
            "captured": _read_captured(self._captured.get(call.id)),
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


def _read_captured(captured: CaptureTexts | None) -> Data | None:
    """Return the texts of a call, None without them and if a guard fails."""
    if captured is not None:
        with suppress(Exception):  # the exporter of traces reports it
            texts = captured()
            return {"prompt": _cut_texts(texts.prompt), "response": _cut_texts(texts.response)}
    return None


def _cut_texts(texts: Sequence[CapturedText]) -> list[Data]:
    """Return the first ``MAX_CHARS`` characters of texts."""
    rows, remaining = list[Data](), MAX_CHARS
    for text in texts:
        if remaining > 0:
            rows.append({"role": text.role[:MAX_NAME], "text": text.text[:remaining]})
        remaining -= len(text.text)
    return rows
