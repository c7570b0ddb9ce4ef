"""Limits of the log: a level that can be changed temporarily, and quotas of lines."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType

LEVELS: Mapping[str, int] = MappingProxyType(
    {
        "debug": logging.DEBUG,
        "info": logging.INFO,
        "warning": logging.WARNING,
        "error": logging.ERROR,
    }
)
MAX_S = 24 * 3600.0


class LogLevel:
    """The active level: the usual one, or a temporary one. ``now`` returns monotonic seconds."""

    def __init__(self, usual: str, now: Callable[[], float]) -> None:
        self._usual = usual
        self._now = now
        self._other = usual
        self._until = 0.0

    @property
    def name(self) -> str:
        return self._other if self._until and self._now() < self._until else self._usual

    @property
    def number(self) -> int:
        """Number of the active level, of ``LEVELS``."""
        return LEVELS[self.name if self._until else self._usual]

    @property
    def left_s(self) -> float:
        """Seconds until the usual level returns; 0 if it is active."""
        return max(0.0, self._until - self._now())

    def allows(self, level: str) -> bool:
        return LEVELS[level] >= self.number

    def put(self, level: str, seconds: float) -> None:
        """Set a level for so many seconds. Raises ``ValueError``."""
        if level not in LEVELS:
            raise ValueError(f"level must be one of {', '.join(LEVELS)}")
        if not 0 < seconds <= MAX_S:
            raise ValueError(f"seconds must be greater than 0 and at most {MAX_S:g}")
        self._other = level
        self._until = self._now() + seconds


BURST = 20
PER_MINUTE = 10


class Quota:
    """Token bucket of ``burst`` tokens that refills with ``per_minute`` tokens. ``now`` returns
    monotonic seconds."""

    def __init__(
        self, now: Callable[[], float], burst: float = BURST, per_minute: float = PER_MINUTE
    ) -> None:
        self._now = now
        self._burst = burst
        self._per_second = per_minute / 60
        self._left = burst
        self._at = now()
        self._missed = 0

    def take(self) -> int | None:
        """Take a token. Return the number of refusals since the last token, None if empty."""
        now = self._now()
        self._left = min(self._burst, self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < 1:
            self._missed += 1
            return None
        self._left -= 1
        missed, self._missed = self._missed, 0
        return missed
