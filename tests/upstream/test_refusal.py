"""How long an upstream asks to wait; each status has its case in test_client."""

from __future__ import annotations

import orjson
import pytest

from proxy.errors import UpstreamRefused
from proxy.types import Secret, Upstream
from proxy.upstream.own_secrets import conceal
from proxy.upstream.refusal import MAX_RETRY_AFTER_S, refusal, retry_after
from proxy.words import MAX_ID, MAX_TEXT
from tests.for_each import for_each

NOW = {"date": "Sat, 31 Jan 2026 12:00:00 GMT"}


@for_each(
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
    """A reply that is no answer, with its body."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self.headers: dict[str, str] = {}
        self._pieces = [body, b""]

    async def read(self) -> bytes:
        return self._pieces.pop(0)


async def test_no_part_of_our_key_is_in_what_an_upstream_says() -> None:
    key = "sk-upstream-" + "s" * 40
    upstream = Upstream("openai", "openai", "http://127.0.0.1:9", api_key=Secret(key))
    long = "x" * (MAX_TEXT - 30) + key
    said = orjson.dumps({"error": {"message": long, "param": f"{key} {'p' * 5000}"}})

    error = await refusal(Said(400, said), upstream)  # type: ignore[arg-type]  # what it reads of a reply

    conceal(error, upstream)

    assert isinstance(error, UpstreamRefused)
    assert "sk-" not in error.message
    assert error.param is not None
    assert "sk-" not in error.param
    assert len(error.param) <= MAX_ID


@for_each(
    ("status", "body", "in_words"),
    [
        pytest.param(404, b'{"detail": "Not Found"}', False, id="FastAPI"),
        pytest.param(405, b'{"detail": "Method Not Allowed"}', False, id="another method"),
        pytest.param(
            404,
            b'{"error": {"message": "Not Found", "type": "Not Found", "param": null, "code": 404}}',
            False,
            id="vLLM",
        ),
        pytest.param(
            404,
            b'{"timestamp": "x", "status": 404, "error": "Not Found", "path": "/v1"}',
            False,
            id="Spring",
        ),
        pytest.param(
            404,
            b'{"message": "Cannot POST /v1", "error": "Not Found", "statusCode": 404}',
            False,
            id="Nest",
        ),
        pytest.param(404, b'{"message": "no Route matched with those values"}', False, id="Kong"),
        pytest.param(
            404,
            b'{"error": {"message": "Invalid URL (POST /v2)", "type": "invalid_request_error"}}',
            False,
            id="OpenAI",
        ),
        pytest.param(404, b"404 page not found", False, id="Go"),
        pytest.param(404, b'{"error": {"message": "Response not found."}}', True, id="a response"),
        pytest.param(
            404,
            b'{"error": {"message": "Not found", "code": "file_not_found"}}',
            True,
            id="a word for it",
        ),
    ],
)
async def test_a_path_that_nobody_serves_has_no_words_of_an_api(
    status: int, body: bytes, in_words: bool
) -> None:
    upstream = Upstream("openai", "openai", "http://127.0.0.1:9")

    error = await refusal(Said(status, body), upstream)  # type: ignore[arg-type]  # as above

    assert isinstance(error, UpstreamRefused)
    assert error.in_words == in_words
