"""Remaining rate limits are read from the headers of upstreams."""

from __future__ import annotations

from proxy.upstream.response_reader import remaining_rate_limit
from tests.for_each import for_each


def test_what_is_left_is_read() -> None:
    body = {"x-ratelimit-remaining-requests": "59", "x-ratelimit-remaining-tokens": "149984"}

    assert remaining_rate_limit(body) == {"requests": 59, "tokens": 149984}


@for_each("text", ["", "-1", "1e9", "59, 60", "٣", "9" * 400, "none"])
def test_what_is_no_plain_number_is_not_known(text: str) -> None:
    assert remaining_rate_limit({"x-ratelimit-remaining-requests": text}) == {}
