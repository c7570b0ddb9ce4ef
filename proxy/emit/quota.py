"""How many lines strangers and libraries may cause: a few at once, then a few a minute."""

from __future__ import annotations

from collections.abc import Callable

BURST = 20
PER_MINUTE = 10


class Quota:
    """Allows ``burst`` at once and ``per_minute`` after that. ``now`` gives monotonic seconds."""

    def __init__(
        self, now: Callable[[], float], burst: int = BURST, per_minute: float = PER_MINUTE
    ) -> None:
        self._now = now
        self._burst = burst
        self._per_second = per_minute / 60
        self._left = float(burst)
        self._at = now()
        self._missed = 0

    def take(self) -> int | None:
        """Return None when the quota is used up, else how many were turned down since the last."""
        now = self._now()
        self._left = min(self._burst, self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < 1:
            self._missed += 1
            return None
        self._left -= 1
        missed, self._missed = self._missed, 0
        return missed
