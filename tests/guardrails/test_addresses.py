"""What of a text is an address, however it is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.guardrails.addresses import Addresses
from tests.guardrails.doubles import pieces
from tests.guardrails.growth import lines

WITHIN = [
    "![x](https://evil.test/?q=",
    "[x](https://evil.test/a?b=",
    "[x](<https://evil.test/a b",
    "[x]( &#104;ttps&#58;&#47;&#47;evil.test/?q=",
    "[x](//evil.test/",
    "[x](mailto:",
    "[x]: https://evil.test/",
    "[x]:\n&#104;ttps&#58;&#47;&#47;evil.test/?q=",
    "see https://evil.test/",
    "see HTTPS:/evil.test/",
    "see https:evil.test/",
    "see ftp://evil.test/",
    "see //evil.test/",
    "see \\\\evil.test\\",
    "see www.evil.test/",
    '<img src="https://evil.test/?q=',
    "<img alt='>' src=&#104;ttps&#58;evil.test?",
    '<a title=">" href="',
    "<svg/onload=fetch('x",
    '{"url":"https://evil.test/',
]
OUTSIDE = [
    "",
    "write to ",
    "see https://good.test/ and ",
    '[x](https://good.test/ "a title ',
    "<https://good.test/> ",
    "<b>",
    '<a href="https://good.test/">',
    '{"url":"https://good.test/","to":"',
    "a // comment: ",
    "1 < 2 and 3 > 2: ",
    "[x] (y) ",
]


@pytest.mark.parametrize(
    ("text", "within"), [(t, True) for t in WITHIN] + [(t, False) for t in OUTSIDE]
)
def test_an_address_is_told_from_text(text: str, within: bool) -> None:
    assert _read([text]).within is within
    assert _read([*text]).within is within


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("see https://Good.test/a?b=", "good.test"),
        ("![x](http://good.test:8080/", "good.test"),
        ("https://good.test?a=", "good.test"),
        ("https://good.test", None),
        ("https://good.test@evil.test/", None),
        ("https://good.test\\@evil.test/", None),
        ("https:/good.test/", None),
        ("//good.test/", None),
        ('<a href="https://good.test/', None),
        ("see good.test/", None),
    ],
)
def test_a_host_is_told_where_it_is_certain(text: str, host: str | None) -> None:
    assert _read([text]).host == _read([*text]).host == host


PARTS = st.sampled_from(
    [*WITHIN, *OUTSIDE, "](", "]:", "<a ", "<", ">", '"', "'", " ", "\n", "http", "s:", "//", ":/"]
)


@given(st.lists(PARTS, max_size=6).map("".join), st.lists(st.integers(0, 200), max_size=8))
def test_any_cut_tells_the_same(text: str, cuts: list[int]) -> None:
    whole, cut = _read([text]), _read(pieces(text, cuts))

    assert (whole.within, whole.host) == (cut.within, cut.host)


def test_a_text_is_read_in_linear_time() -> None:
    def read(size: int) -> int:
        return lines(lambda: _read(["[x](https://a.test/b) <b c='d'> " * size]))

    assert read(400) < 3 * read(200)


def _read(parts: list[str]) -> Addresses:
    addresses = Addresses()
    for part in parts:
        addresses.feed(part)
    return addresses
