"""Paths that name something, and queries: what they say, decoded once, and nothing else."""

from __future__ import annotations

import pytest
from aiohttp import ClientSession

from proxy.dialects.paths import (
    compile_route,
    dropped_parameters,
    path_parameters,
    query_parameters,
)
from tests.conftest import KEY
from tests.doubles import Json
from tests.for_each import for_each

ROUTE = "/v1/responses/{id}/cancel"


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("/v1/responses/resp_1/cancel", "resp_1"),
        ("/v1/responses/a%2Fb%20c/cancel", "a/b c"),
        ("/v1/responses/%ff/cancel", "\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_a_part_of_a_path_is_decoded_once(path: str, named: str) -> None:
    match = compile_route(ROUTE).fullmatch(path)

    assert match is not None
    assert path_parameters(match) == (("id", named),)


@pytest.mark.parametrize(
    "path", ["/v1/responses//cancel", "/v1/responses/a/b/cancel", "/v1xresponses/a/cancel"]
)
def test_an_id_is_one_part_of_a_path(path: str) -> None:
    assert compile_route(ROUTE).fullmatch(path) is None


def test_of_a_query_only_known_names_are_read() -> None:
    known = frozenset({"limit", "include[]"})
    query = "limit=5&api_key=sk-1&include%5B%5D=a%26b&include[]=&limit=6"

    assert query_parameters(query, known) == (
        ("limit", "5"),
        ("include[]", "a&b"),
        ("include[]", ""),
        ("limit", "6"),
    )
    assert query_parameters(query, frozenset()) == ()


@for_each(
    ("query", "warned"),
    [
        ("", ()),
        ("limit=5&api-version=2024-10-21&beta=true", ()),
        ("foo=1&limit=5&a.b-c[]=2&foo=3", ("query parameters dropped: foo, a.b-c[]",)),
        (f"hr-key&{'x' * 33}=1&%20=1&=1&foo=", ("query parameters dropped: ?",)),
        (
            "&".join(f"p{at}=1" for at in range(10)),
            ("query parameters dropped: p0, p1, p2, p3, p4, p5, p6, p7 and 2 more",),
        ),
    ],
)
def test_what_a_query_says_in_vain_is_named(query: str, warned: tuple[str, ...]) -> None:
    assert dropped_parameters(query, frozenset({"limit"})) == warned


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "p"}]}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "p"}]}),
        ("/v1/embeddings", {"input": "p"}),
        ("/v1/responses", {"input": "p"}),
        ("/v1/models", None),
    ],
)
async def test_warns_of_unused_query(path: str, body: Json | None, client: ClientSession) -> None:
    method, sent = ("GET", None) if body is None else ("POST", {"model": "gpt-4o-mini", **body})
    headers = {"authorization": f"Bearer {KEY}"}
    url = f"{path}?foo=secret-value&api-version=1"

    async with client.request(method, url, headers=headers, json=sent) as answered:
        raw = await answered.read()

    assert "query parameters dropped: foo" in answered.headers["x-headrace-warning"], raw
    assert "secret-value" not in str(answered.headers)
