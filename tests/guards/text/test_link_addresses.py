"""What of a text is an address, however it is cut."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from proxy.guards.text.link_addresses import Addresses, EscapedAddresses
from tests.for_each import for_each
from tests.guards.doubles import pieces
from tests.guards.growth import lines

WITHIN = [
    "![x](https://evil.test/?q=", "[x](https://evil.test/a?b=", "[x](<https://evil.test/a b",
    "[x]( &#104;ttps&#58;&#47;&#47;evil.test/?q=", "[x](//evil.test/", "[x](mailto:",
    "[x]: https://evil.test/", "[x]:\n&#104;ttps&#58;&#47;&#47;evil.test/?q=",
    "see https://evil.test/", "see HTTPS:/evil.test/", "see https:evil.test/",
    "see ftp://evil.test/", "see //evil.test/", "see \\\\evil.test\\",
    "see \\\\files\\\\\\evil.test\\", "see \\\\files\\https://evil.test/", "see C:\\\\evil.test\\",
    "see \\\\evil@80\\", "see \\\\0x7f000001\\", "see \\\\?\\UNC\\evil.test\\", "see \\/evil.test/",
    "see www.evil.test/", '<img src="https://evil.test/?q=',
    "<img alt='>' src=&#104;ttps&#58;evil.test?", '<a title=">" href="', "<svg/onload=fetch('x",
    '{"url":"https://evil.test/',
]  # fmt: skip
HIDDEN = [
    "![x](<https://evil.test/?q=\\> ",
    "[a]: <https://evil.test/?q=\\> ",
    "[a]:\n  <https://evil.test/?q= ",
    "![x](\t<https://evil.test/?q= ",
    "![x](\n https://evil.test/?q=",
    "[![x](a](<https://evil.test/?q=\\> ",
    "[a](<b](\n<https://evil.test/?q= ",
    "http://x](<https://evil.test/?q= ",
    '`<b a="` ![x](<https://evil.test/?q="\\> ',
    '<img a"b src="https://evil.test/?q=> ',
    "<img a'b src='https://evil.test/?q=> ",
    '<img alt=a"b src="https://evil.test/?q=> ',
    '<img alt=""" src="https://evil.test/?q=> ',
    '<img alt = " src=" a="https://evil.test/?q=> ',
    f'<{"a" * 60} style="background:url(https://evil.test/?q=> ',
    '<a:b style="background:url(https://evil.test/?q=> ',
    '<https://x.test/ style="background:url(https://evil.test/?q=> ',
    '<title><b a="</title><img src=\'https://evil.test/?q="> ',
    '<!-- <b a="--><img src=\'https://evil.test/?q="> ',
    "<mailto:x%40evil.test?body=",
    "<sms:123?body=",
    '"see http:a https://evil.test/?q="',
]
"""Addresses whose end, or beginning, some readers of links or of HTML see elsewhere."""
PROSE = [
    "Dear ", "a < b, b > c (see [1]): ", "# Title\n\n- a *b* `c`: ", '> quoted "',
    "He said 'well': ", '<p class="a">It\'s ', '<img alt="a > b" src=x> ', "<br/>",
    "See <https://good.test/a> or [x](<https://good.test/a b>) for ",
    '[x](https://good.test/)\n\n[a]: https://good.test/ "a"\n', "mail: ", "note: a\\b ",
]  # fmt: skip
OUTSIDE = [
    "", "write to ", "see https://good.test/ and ", '[x](https://good.test/ "a title ',
    "<https://good.test/> ", "<b>", '<a href="https://good.test/">',
    '{"url":"https://good.test/","to":"', "a // comment: ", "1 < 2 and 3 > 2: ", "[x] (y) ",
    "C:\\users\\", "D:/a/", "CORP\\", "\\\\files\\home\\", "\\\\?\\C:\\users\\",
]  # fmt: skip


@for_each(("text", "inner"), [(t, True) for t in WITHIN] + [(t, False) for t in OUTSIDE])
def test_an_address_is_told_from_text(text: str, inner: bool) -> None:
    assert _read([text]).within is inner
    assert _read([*text]).within is inner
    escaped = EscapedAddresses()
    escaped.feed(json.dumps(text)[1:-1])
    assert escaped.within is inner


@for_each("text", HIDDEN)
@for_each("text_before", ["", *PROSE, "<b>", "[a](b) "])
def test_unended_address_stays_pending_at_any_cut(text_before: str, text: str) -> None:
    text = text_before + text
    for size in (1, 2, 5, len(text)):
        assert _read([text[index : index + size] for index in range(0, len(text), size)]).within


@for_each("text", [*HIDDEN, *WITHIN])
@for_each("ascii_", [False, True])
def test_within_a_json_string_it_is_one_too(text: str, ascii_: bool) -> None:
    escaped = json.dumps(text)[1:-1]
    if ascii_:
        escaped = "".join(f"\\u{ord(letter):04x}" for letter in text)
    for size in (1, 2, 5, len(escaped)):
        addresses = EscapedAddresses()
        for index in range(0, len(escaped), size):
            addresses.feed(escaped[index : index + size])
        assert addresses.within


@for_each("text", PROSE)
def test_prose_is_no_address(text: str) -> None:
    assert not _read([text]).within
    assert not _read([*text]).within
    escaped = EscapedAddresses()
    escaped.feed(json.dumps(text + "\n ")[1:-1] + " ")
    assert not escaped.within


@for_each("escapes", ["\\" * 99, "\\uzzzz" * 9, "\\u00", "\\ud83d\\ude00"])
def test_odd_escape_is_held_for_its_length(escapes: str) -> None:
    addresses = EscapedAddresses()
    for letter in escapes:
        addresses.feed(letter)
    addresses.feed(" https://good.test/")

    assert addresses.within
    assert addresses.host == "good.test"


@for_each(
    ("text", "host"),
    [
        ("see https://Good.test/a?b=", "good.test"), ("![x](http://good.test:8080/", "good.test"),
        ("https://good.test?a=", "good.test"), ("https://good.test", None),
        ("https://good.test@evil.test/", None), ("https://good.test\\@evil.test/", None),
        ("https:/good.test/", None), ("//good.test/", None), ('<a href="https://good.test/', None),
        ("see good.test/", None), ("<https://good.test/", "good.test"),
        ("<https://x.test/ a=https://good.test/", None),
        ("[x](evil.test/?u=https://good.test/", None),
        ("https://evil.test/](https://good.test/", None),
        ("https://good.test/](https://good.test/", "good.test"), ("[x](<https://good.test/", None),
    ],
)  # fmt: skip
def test_a_host_is_told_where_it_is_certain(text: str, host: str | None) -> None:
    assert _read([text]).host == _read([*text]).host == host


PARTS = st.sampled_from(
    [
        *WITHIN,
        *OUTSIDE,
        *HIDDEN,
        *PROSE,
        "](",
        "]:",
        "<a ",
        "<",
        ">",
        '"',
        "'",
        " ",
        "\n",
        "http",
        "s:",
        "//",
        ":/",
    ]
)


@given(st.lists(PARTS, max_size=6).map("".join), st.lists(st.integers(0, 200), max_size=8))
def test_any_cut_tells_the_same(text: str, cuts: list[int]) -> None:
    addresses, cut = _read([text]), _read(pieces(text, cuts))

    assert (addresses.within, addresses.host) == (cut.within, cut.host)


def test_a_text_is_read_in_linear_time() -> None:
    def read(size: int) -> int:
        return lines(lambda: _read(["[x](https://a.test/b) <b c='d'> " * size]))

    assert read(400) < 3 * read(200)


@for_each("part", ["](", "]:<", "<a ", '<a b="', "\\", "http://a", '"http:a ', "\\u"])
def test_what_hides_much_is_read_in_linear_time(part: str) -> None:
    def work(size: int) -> None:
        EscapedAddresses().feed(part * size)
        _read([part * size])

    def read(size: int) -> int:
        return lines(lambda: work(size))

    assert read(400) < 3 * read(200)


def _read(parts: list[str]) -> Addresses:
    addresses = Addresses()
    for part in parts:
        addresses.feed(part)
    return addresses
