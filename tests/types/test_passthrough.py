"""Matching of requests with passthrough paths."""

from __future__ import annotations

import posixpath
from urllib.parse import unquote, urljoin, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.types.passthrough import PassthroughPath, PassthroughPaths, fill, sample_request
from tests.for_each import for_each

FILES = PassthroughPath("/v1/files/{id}", frozenset({"GET", "DELETE"}))


@pytest.mark.parametrize(
    "path", ["/v1/files/file-1", "/v1/files/ft:gpt-4o:org::a1", "/v1/files/a.b~c_d=e@f+g"]
)
def test_ids_of_providers_match(path: str) -> None:
    assert FILES.fits(path) is not None


@for_each(
    "value",
    ["", ".", "..", "../x", "a/b", "a%2Fb", "%61", "a b", "a?b", "a#b", "a\\b", "-a", "a\n", "é"],
)
def test_unsafe_segments_do_not_match(value: str) -> None:
    assert FILES.fits(f"/v1/files/{value}") is None


@given(
    st.text(max_size=12)
    | st.lists(st.sampled_from([*"/.%\\;?#a0-", "..", "%2e", "%2f", "\r\n"])).map("".join)
)
def test_matching_path_stays_below_its_pattern(value: str) -> None:
    path = f"/v1/files/{value}/content"

    if PassthroughPath("/v1/files/{id}/content").fits(path) is not None:
        url = urlsplit(urljoin("https://h.test/v1/", f"https://h.test{path}"))
        assert (url.netloc, url.path, url.query, url.fragment) == ("h.test", path, "", "")
        assert posixpath.normpath(url.path) == unquote(url.path) == path
        assert path.count("/") == 4


def test_special_characters_are_literal() -> None:
    assert PassthroughPath("/v1/a.b").fits("/v1/axb") is None


def test_literal_precedes_parameter() -> None:
    path = PassthroughPath("/v1/files/{id}", frozenset({"GET"}))
    word = PassthroughPath("/v1/files/list", frozenset({"GET"}))

    paths = PassthroughPaths.of([path, word])

    assert paths.find("GET", "/v1/files/list") == word
    assert paths.find("GET", "/v1/files/other") == path
    assert paths.find("POST", "/v1/files/other") is None
    assert paths.methods("/v1/files/other") == ["GET"]
    assert PassthroughPaths.merge([PassthroughPaths.of([path]), paths]).paths == paths.paths


def test_values_replace_parameters() -> None:
    match = FILES.fits("/v1/files/a")

    assert match is not None
    assert fill("/v2/{id}/content", match.groupdict()) == "/v2/a/content"
    assert sample_request("/v1/files/{id}").path == FILES.sample == "/v1/files/x"


def test_only_safe_methods_are_repeatable() -> None:
    methods = ("GET", "DELETE", "PUT", "POST", "PATCH")
    assert [method for method in methods if FILES.may_repeat(method)] == ["GET", "DELETE", "PUT"]
    assert PassthroughPath("/v1/rerank", repeatable=True).may_repeat("POST")
