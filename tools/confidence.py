"""How far a count of few can be trusted."""

from __future__ import annotations

import math


def wilson(hits: int, of: int) -> str:
    """Give a count with what its share may be, at 95 %, were more texts measured."""
    if not of:
        return "-"
    half, share_ = 1.96, hits / of
    middle = share_ + half**2 / (2 * of)
    around = half * math.sqrt(share_ * (1 - share_) / of + half**2 / (4 * of**2))
    low, high = ((middle + sign * around) / (1 + half**2 / of) for sign in (-1, 1))
    return f"{hits} of {of} ({max(low, 0):.3f} to {min(high, 1):.3f})"
