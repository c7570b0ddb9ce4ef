"""Keeps the log lines of the last calls, with their attempts."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from proxy.call.record import Record
from proxy.errors.words import MAX_WORDS

MAX_CALLS = 1000
MAX_UNAUTHORIZED = 20
Line = dict[str, Any]


class AttemptTimes(NamedTuple):
    """An attempt, without its target, which would keep credentials. Times are monotonic."""

    upstream: str
    model: str
    reason: str
    status: int | None
    error: str | None
    started: float
    first_token_at: float | None
    ended: float | None


class RecentCall(NamedTuple):
    """A call: its number since the start of the process, its log line and its attempts."""

    number: int
    line: Line
    started: float
    attempts: tuple[AttemptTimes, ...]

    def row(self) -> Line:
        """Return the log line with the number of the call."""
        return {"number": self.number, **self.line}

    def attempt_rows(self) -> list[Line]:
        """Return the attempts. Times are milliseconds since the call was received."""

        def in_ms(time: float | None) -> float | None:
            return None if time is None else round((time - self.started) * 1000, 3)

        return [
            {
                "upstream": attempt.upstream,
                "model": attempt.model,
                "reason": attempt.reason,
                "status": attempt.status,
                "error": attempt.error,
                "start_ms": in_ms(attempt.started),
                "first_token_ms": in_ms(attempt.first_token_at),
                "end_ms": in_ms(attempt.ended or attempt.started),
            }
            for attempt in self.attempts
        ]


class RecentCalls:
    """The last ``MAX_CALLS`` calls, and the last ``MAX_UNAUTHORIZED`` calls without a valid key.

    The latter are stored separately, so that anybody's calls cannot displace those of a key.
    """

    def __init__(self) -> None:
        self._calls: deque[RecentCall] = deque(maxlen=MAX_CALLS)
        self._unauthorized: deque[RecentCall] = deque(maxlen=MAX_UNAUTHORIZED)
        self.last_number = 0

    def add(self, record: Record, line: Line) -> None:
        """Add a finished call, given its log line in the native schema."""
        self.last_number += 1
        calls = self._unauthorized if record.key is None else self._calls
        attempts = tuple(
            [
                AttemptTimes(
                    upstream=a.target.upstream.name,
                    model=a.target.model,
                    reason=a.reason,
                    status=a.status,
                    error=a.error,
                    started=a.started,
                    first_token_at=a.meter.first_token_at,
                    ended=a.ended,
                )
                for a in record.attempts[:MAX_WORDS]
            ]
        )
        call = RecentCall(
            number=self.last_number, line=line, started=record.started, attempts=attempts
        )
        calls.append(call)

    def calls_after(self, number: int) -> list[RecentCall]:
        """Return the calls after the one with this number, the oldest first."""
        calls: list[RecentCall] = []
        for stored in (self._calls, self._unauthorized):
            for call in reversed(stored):
                if call.number <= number:
                    break
                calls.append(call)
        return sorted(calls, key=lambda call: call.number)

    def find(self, number: int) -> RecentCall | None:
        """Return the call with a number, None if it is no longer stored."""
        for call in self.calls_after(number - 1):
            return call if call.number == number else None
        return None
