"""Paths that name something, and queries: what they say, decoded once, and nothing else."""

from __future__ import annotations

import pytest

from proxy.dialects.paths import compile_route, path_parameters, query_parameters

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
