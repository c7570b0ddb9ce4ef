"""Requests that are passed on: the URL, the headers and the body that an upstream gets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from proxy.dialects import DIALECTS
from proxy.dialects.passthrough.request import build_passthrough, check_media_type, read_passthrough
from proxy.errors import BadRequest, InvalidField
from proxy.types import Call, RequestHead, Target, Upstream
from proxy.types.passthrough import PassthroughPath, PassthroughRequest
from tests.for_each import for_each

HEAD = RequestHead(dialect="openai", endpoint="passthrough", route="/v1/files/{id}", request_id="r")
FILE = PassthroughPath("/v1/files/{id}", queries=frozenset({"limit"}))
OPENAI = Upstream(name="openai", dialect="openai", base_url="https://api.openai.com/v1")


def built(
    path: PassthroughPath, prompt: str, query: str = "", *, upstream: Upstream = OPENAI, **body: Any
) -> Any:
    request = PassthroughRequest(prompt, query)
    head = replace(
        HEAD, passthrough=request, headers={"openai-beta": "assistants=v2", "cookie": "a"}
    )
    call = Call(head=head, body=body, size=len(body) and 10)
    dialect = DIALECTS[upstream.dialect]
    return build_passthrough(call, request, path, Target(upstream, "rerank-1"), dialect)


@for_each(
    ("base_url", "prompt", "url"),
    [
        ("https://h/v1", "/v1/rerank", "https://h/v1/rerank"),
        ("https://h", "/v1/rerank", "https://h/v1/rerank"),
        ("https://h/api/v3/", "/v1/rerank", "https://h/api/v3/rerank"),
        ("https://h/api", "/rerank", "https://h/api/rerank"),
        ("https://h", "/rerank", "https://h/rerank"),
        ("https://h/at/{model}", "/v1/rerank", "https://h/at/rerank-1/rerank"),
    ],
)
def test_the_path_stands_after_that_of_the_upstream(base_url: str, prompt: str, url: str) -> None:
    upstream = replace(OPENAI, base_url=base_url)

    assert built(PassthroughPath(prompt), prompt, upstream=upstream).url == url


def test_a_query_is_the_policys_and_what_is_listed_of_the_clients() -> None:
    upstream = replace(OPENAI, query="api-version=1")

    result = built(FILE, "/v1/files/a", "limit=2&x=3&limit=%C3%A9", upstream=upstream)

    assert result.url == "https://api.openai.com/v1/files/a?api-version=1&limit=2&limit=%C3%A9"
    assert result.dropped == ("query parameters",)
    for odd, error in (
        ("limit=%ff", BadRequest),
        ("&".join(["limit=1"] * 65), BadRequest),
        ("limit=" + "a" * 257, InvalidField),
    ):
        with pytest.raises(error):
            built(FILE, "/v1/files/a", odd)


def test_names_are_bounded() -> None:
    assert read_passthrough(HEAD, {"model": "m"}).requested_models == ("m",)
    assert read_passthrough(HEAD, {}).requested_models == ()
    for name in ("model", "user"):
        for odd in ("a" * 257, ["a"], 1):
            with pytest.raises(InvalidField):
                read_passthrough(HEAD, {name: odd})


def test_a_media_type_is_a_short_line() -> None:
    assert check_media_type("multipart/form-data; boundary=x") == "multipart/form-data; boundary=x"
    for odd in ("", "a" * 300, "a\tb", "\xff", " a"):
        with pytest.raises(InvalidField):
            check_media_type(odd)
