"""How long an upstream asks to wait; each status has its case in test_client."""

from __future__ import annotations

import orjson
import pytest

from proxy.errors import UpstreamRefused
from proxy.types import Secret, Upstream
from proxy.upstream.refusal import MAX_RETRY_AFTER_S, refusal, retry_after
from proxy.words import MAX_ID, MAX_TEXT

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


class Said:
    """A reply of an upstream that finds the request at fault."""

    status = 400

    def __init__(self, error: dict[str, str]) -> None:
        self.headers: dict[str, str] = {}
        self._pieces = [orjson.dumps({"error": error}), b""]

    async def read(self) -> bytes:
        return self._pieces.pop(0)


async def test_no_part_of_our_key_is_in_what_an_upstream_says() -> None:
    key = "sk-upstream-" + "s" * 40
    upstream = Upstream("openai", "openai", "http://127.0.0.1:9", api_key=Secret(key))
    long = "x" * (MAX_TEXT - 30) + key
    said = Said({"message": long, "param": f"{key} {'p' * 5000}"})

    error = await refusal(said, upstream)  # type: ignore[arg-type]  # what it reads of a reply

    assert isinstance(error, UpstreamRefused)
    assert "sk-" not in error.message
    assert error.param is not None
    assert "sk-" not in error.param
    assert len(error.param) <= MAX_ID
