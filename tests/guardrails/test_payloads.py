"""What of a request is data to its end, and which text it stands for."""

from __future__ import annotations

import base64

import pytest

from proxy.guardrails.payloads import CHARSETS, data_of
from proxy.guardrails.texts import request_texts

ENCODED = base64.b64encode(b"a text").decode()


@pytest.mark.parametrize(
    ("said", "bare", "text"),
    [
        (f"data:text/plain;base64,{ENCODED}", False, "a text"),
        (f"data:text/plain;charset=utf-8;base64,{ENCODED.rstrip('=')}", False, "a text"),
        (ENCODED, True, "a text"),
        ("data:image/png;base64,iVBORw0KGgoAAA==", False, None),
        ("data:image/png;base64,", False, ""),
        ("iVBORw0KGgoAAA==", True, None),
        ("_-8=", True, None),
    ],
)
def test_data_is_told_with_its_text(said: str, bare: bool, text: str | None) -> None:
    data = data_of(said, bare=bare)

    assert data is not None
    assert data.text == text


@pytest.mark.parametrize(
    ("said", "bare"),
    [
        (ENCODED, False),
        ("data:text/plain,a text", True),
        (f"data:image/png;base64,{ENCODED} and more", True),
        (f"data:a word;base64,{ENCODED}", True),
        ("x", True),
    ],
)
def test_what_is_not_data_to_its_end_is_text(said: str, bare: bool) -> None:
    assert data_of(said, bare=bare) is None


@pytest.mark.parametrize("more", [" and more", "\n", " YQ=="])
def test_data_with_white_space_is_read_as_both(more: str) -> None:
    said = f"data:text/plain;base64,{ENCODED[:4]} {ENCODED[4:]}{more}"
    data = data_of(said, bare=False)

    assert data is None or (data.loose and (data.text or "").startswith("a text"))
    texts = request_texts({"prompt": said}).texts
    assert texts[-1].text == said
    assert len(texts) == (1 if data is None else 2)


def url(raw: bytes, media: str, charset: str) -> str:
    return f"data:{media};charset={charset};base64,{base64.b64encode(raw).decode()}"


def read(said: str) -> str | None:
    data = data_of(said, bare=False)
    assert data is not None
    return data.text


@pytest.mark.parametrize("charset", sorted(CHARSETS))
def test_a_charset_of_the_set_is_read_however_it_is_written(charset: str) -> None:
    raw = "a text".encode(charset)

    assert read(url(raw, "text/plain", charset)) == "a text"
    assert read(url(raw, "application/json", charset.upper())) == "a text"


@pytest.mark.parametrize(
    "charset",
    ["idna", "punycode", "unicode_escape", "raw_unicode_escape", "utf-7", "utf_8", "rot13", "hex",
     "cp037", "no-such"],
)  # fmt: skip
def test_no_other_codec_is_a_charset(charset: str) -> None:
    raw = rb"\x61 \u0061 +AGE- xn--a-ecp"

    assert read(url(raw, "text/plain", charset)) == raw.decode()
    assert read(url(raw, "application/json", charset)) is None


@pytest.mark.parametrize("charset", ["no-such", "us-ascii"])
def test_a_text_that_is_not_of_its_charset_is_read_as_utf_8_if_it_is_that(charset: str) -> None:
    assert read(url("héron".encode(), "text/plain", charset)) == "héron"
    assert read(url("héron".encode("latin-1"), "text/plain", charset)) == "héron"


def test_a_text_is_written_back_as_data() -> None:
    data = data_of(f"data:text/plain;base64,{ENCODED}", bare=False)

    assert data is not None
    again = data_of(data.payload.written("a té"), bare=False)
    assert again is not None
    assert again.text == "a té"
