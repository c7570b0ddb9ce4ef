"""What an upstream says that it still allows, in the headers that most providers have."""

from __future__ import annotations

from collections.abc import Mapping

HEADERS = {
    "requests": "x-ratelimit-remaining-requests",
    "tokens": "x-ratelimit-remaining-tokens",
}
MAX_DIGITS = 15


def left_of(headers: Mapping[str, str]) -> dict[str, int]:
    """Give how many requests and tokens are left, as far as that is said in plain digits."""
    left = {}
    for what, name in HEADERS.items():
        said = headers.get(name)
        if said is not None and said.isascii() and said.isdigit() and len(said) <= MAX_DIGITS:
            left[what] = int(said)
    return left
