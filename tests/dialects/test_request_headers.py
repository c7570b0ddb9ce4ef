"""What headers say about a caller, in every dialect."""

from __future__ import annotations

import pytest

from proxy.dialects import Received, parse_head, request_headers
from proxy.errors import BadRequest
from tests.for_each import for_each

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@for_each(
    ("header", "token"),
    [
        ("Bearer abc", "abc"),
        ("bearer  abc ", "abc"),
        ("Basic abc", None),
        ("Bearer", None),
        ("", None),
    ],
)
def test_a_bearer_token_is_read(header: str, token: str | None) -> None:
    secret = request_headers.bearer({"authorization": header})

    assert (secret.reveal() if secret else None) == token


def test_a_secret_never_shows() -> None:
    assert "abc" not in repr(request_headers.bearer({"authorization": "Bearer abc"}))


def test_tags_are_pairs_or_bare_labels() -> None:
    headers = {"x-headrace-tags": "team=support, beta ,, a=b=c"}

    assert request_headers.labels("x-headrace-tags", headers) == (
        ("team", "support"),
        ("beta", None),
        ("a", "b=c"),
    )


@for_each(
    "text",
    [",".join(f"t{i}" for i in range(33)), "a=" + "b" * 257, "a" * 257, "a=\udcff"],
    ids=["many", "a long value", "a long name", "no text"],
)
def test_tags_are_few_short_and_text(text: str) -> None:
    with pytest.raises(BadRequest):
        request_headers.labels("x", {"x": text})


@pytest.mark.parametrize(("text", "value"), [("true", True), ("False", False), ("", False)])
def test_a_flag_is_true_or_false(text: str, value: bool) -> None:
    assert request_headers.flag("x", {"x": text}) is value


def test_another_word_is_no_flag() -> None:
    with pytest.raises(BadRequest):
        request_headers.flag("x", {"x": "maybe"})


def test_a_trace_is_joined() -> None:
    context = request_headers.parent({"traceparent": TRACE})

    assert context is not None
    assert context.trace_id == "0af7651916cd43dd8448eb211c80319c"


@for_each("text", ["", "x", TRACE[:-1], TRACE.replace("0af765", "ZZZZZZ")])
def test_a_malformed_trace_starts_a_new_one(text: str) -> None:
    assert request_headers.parent({"traceparent": text}) is None


def test_an_all_zero_trace_starts_a_new_one() -> None:
    assert request_headers.parent({"traceparent": f"00-{'0' * 32}-{'1' * 16}-01"}) is None


def test_our_own_headers_count_in_every_dialect() -> None:
    headers = {"x-headrace-deployment": "support-chat", "x-headrace-refresh-cache": "true"}

    head = parse_head("POST", "/v5/completions", headers, Received("req_1"))

    assert (head.deployment, head.bypass_cache, head.dialect) == ("support-chat", True, "scale")
