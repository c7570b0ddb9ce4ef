"""How long an upstream asks to wait; each status has its case in test_client."""

from __future__ import annotations

import pytest

from proxy.upstream.refusal import MAX_RETRY_AFTER_S, retry_after

NOW = {"date": "Sat, 31 Jan 2026 12:00:00 GMT"}


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "1"}, 1.0),
        ({"retry-after": "0"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "1e9"}, MAX_RETRY_AFTER_S),
        ({"retry-after": "inf"}, MAX_RETRY_AFTER_S),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "later"}, None),
        ({"retry-after": "Sat, 31 Jan 2026 12:00:30 GMT", **NOW}, 30.0),
        ({"retry-after": "Sat, 31 Jan 2026 11:00:00 GMT", **NOW}, None),
        ({"retry-after": "Sat, 31 Jan 2026 12:00:30 GMT"}, None),
        ({"retry-after": "Sat, 31 Jan 2026 12:00:30 -0000", **NOW}, None),
    ],
)
def test_what_an_upstream_asks_for_becomes_a_sane_number(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert retry_after(headers) == seconds
