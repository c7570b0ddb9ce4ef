"""What an upstream says that it still allows, in the headers that most providers have."""

from __future__ import annotations

from collections.abc import Mapping

HEADERS = (
    ("requests", "x-ratelimit-remaining-requests"),
    ("tokens", "x-ratelimit-remaining-tokens"),
)
MAX_DIGITS = 15


def remaining(headers: Mapping[str, str]) -> dict[str, int]:
    """Return how many requests and tokens are left, as far as the headers have plain digits."""
    left = {}
    for what, name in HEADERS:
        if name in headers:
            value = headers[name]
            if value.isascii() and value.isdigit() and len(value) <= MAX_DIGITS:
                left[what] = int(value)
    return left
