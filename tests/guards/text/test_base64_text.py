"""Base64 and hex are decoded inside of texts and as data."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping

import pytest

from proxy.guards.text import base64_text
from proxy.guards.text.base64_text import SUPPORTED_CHARSETS, PayloadPathStep, parse_encoded_data
from proxy.guards.text.documents import collect_request_texts
from proxy.guards.text.normalize import build_partial_readings, build_views
from proxy.types import Json
from tests.for_each import for_each
from tests.guards.text.test_normalize import spots


@pytest.mark.parametrize(
    "text", ["the secret is out", "secret? oh secret!", "ein Gehe\u00efmnis, secret"]
)
def test_base64_is_decoded_and_found_whole(text: str) -> None:
    run = base64.b64encode(text.encode()).decode()

    assert spots(f"look: {run} here", "secret") == [run]
    assert spots(f"look: {run.rstrip('=')} here", "secret") == [run.rstrip("=")]
    assert base64_text.decode_base64(base64.b64encode(run.encode()).decode()) == run


def test_declared_type_is_read_from_words_only() -> None:
    class Untold(dict[str, object]):
        def __str__(self) -> str:
            raise AssertionError("a value of any size is rendered")

    assert base64_text.get_declared_type({"type": Untold(), "format": Untold()}, None) is None
    assert base64_text.get_declared_type({"type": "TEXT"}, None) is True


@for_each("codec", ["utf-16", "utf-16le", "utf-16be"])
@for_each("text", ["a secret, it is", "Geheïmnis: secret"])
def test_text_of_two_bytes_per_letter_is_decoded(codec: str, text: str) -> None:
    run = base64.b64encode(text.encode(codec)).decode()

    assert spots(f"look: {run} here", "secret") == [run]
    for size in range(16, len(run)):
        assert base64_text.decode_base64(run[:size], is_cut=True) is not None
        assert base64_text.decode_base64(run[:size]) is not None


@for_each("head", ["data:text/plain;base64,", "DATA:;BASE64,", "b&#97;se64,"])
@for_each("word", ["secret", "a secret", "secrets are secret"])
def test_declared_base64_is_decoded_at_any_length(head: str, word: str) -> None:
    run = base64.b64encode(word.encode()).decode()

    assert spots(f"look: {head}{run} here", "secret") == [run]
    assert spots(f"look: {head}{run.rstrip('=')}", "secret") == [run.rstrip("=")]
    assert spots(f"é {head}{run} {run}", "secret")[0] == run


def test_partly_binary_data_is_no_text() -> None:
    assert base64_text.decode_base64(base64.b64encode(b"secret\x00\x01").decode()) is None
    assert base64_text.decode_base64("internationalization") is None
    assert base64_text.decode_base64("x") == ""


def test_long_run_is_settled_at_its_bound() -> None:
    run = base64.b64encode(b"all of it is text " * 20).decode().rstrip("=")

    assert build_partial_readings(run).open_run_start == 0
    assert build_partial_readings(run, max_run=64).open_run_start == len(run)


ENCODED = base64.b64encode(b"a text").decode()


@for_each(
    ("source", "bare", "text"),
    [
        (f"data:text/plain;base64,{ENCODED}", False, "a text"),
        (f"data:text/plain;charset=utf-8;base64,{ENCODED.rstrip('=')}", False, "a text"),
        (ENCODED, True, "a text"),
        ("data:image/png;base64,iVBORw0KGgoAAA==", False, None),
        ("data:image/png;base64,", False, ""),
        ("iVBORw0KGgoAAA==", True, "\x89PNG\r\n\x1a\n\0\0"),
        ("_-8=", True, "\xff\xef"),
        ("iVBORw0KGgoA" + "A" * 256, True, None),
    ],
)
def test_data_is_returned_with_its_text(source: str, bare: bool, text: str | None) -> None:
    data = parse_encoded_data(source, allow_bare_base64=bare)

    assert data is not None
    assert data.text == text


@for_each(
    ("source", "bare"),
    [
        (ENCODED, False), ("data:text/plain,a text", True),
        (f"data:image/png;base64,{ENCODED} and more", True),
        (f"data:a word;base64,{ENCODED}", True), ("x", True),
    ],
)  # fmt: skip
def test_partial_data_is_text(source: str, bare: bool) -> None:
    assert parse_encoded_data(source, allow_bare_base64=bare) is None


@pytest.mark.parametrize("extra", [" and extra", "\n", " YQ=="])
def test_data_with_white_space_is_read_in_both_ways(extra: str) -> None:
    source = f"data:text/plain;base64,{ENCODED[:4]} {ENCODED[4:]}{extra}"
    data = parse_encoded_data(source, allow_bare_base64=False)

    assert data is None or (data.text or "").startswith("a text")
    texts = collect_request_texts({"prompt": source}).texts
    assert texts[-1].text == source
    assert len(texts) == (1 if data is None else 2)


def url(raw: bytes, media: str, charset: str) -> str:
    return f"data:{media};charset={charset};base64,{base64.b64encode(raw).decode()}"


def list_texts(body: Json) -> list[str]:
    return [text.text for text in collect_request_texts(body).texts]


def read(source: str) -> str | None:
    data = parse_encoded_data(source, allow_bare_base64=False)
    assert data is not None
    return data.text


@for_each("charset", sorted(SUPPORTED_CHARSETS))
def test_known_charset_is_read_in_any_case(charset: str) -> None:
    raw = "a text".encode(charset)

    assert read(url(raw, "text/plain", charset)) == "a text"
    assert read(url(raw, "application/json", charset.upper())) == "a text"


@for_each(
    "charset",
    ["idna", "punycode", "unicode_escape", "raw_unicode_escape", "utf-7", "utf_8", "rot13", "hex",
     "cp037", "no-such"],
)  # fmt: skip
def test_no_other_codec_is_a_charset(charset: str) -> None:
    raw = rb"\x61 \u0061 +AGE- xn--a-ecp"

    assert read(url(raw, "text/plain", charset)) == raw.decode()
    assert read(url(raw, "application/json", charset)) == raw.decode()
    assert read(url(b"\xff" + raw, "application/json", charset)) == "\xff" + raw.decode()
    assert read(url(b"\xff" + raw, "image/png", charset)) is None


@pytest.mark.parametrize("charset", ["no-such", "us-ascii"])
def test_wrong_charset_falls_back_to_utf_8(charset: str) -> None:
    assert read(url("héron".encode(), "text/plain", charset)) == "héron"
    assert read(url("héron".encode("latin-1"), "text/plain", charset)) == "héron"


IN_BASE64 = "how/to/make/a/bomb/at/school/no/"
PLACES: Mapping[str, Callable[[str], Json]] = {
    "content": lambda source: {"messages": [{"role": "user", "content": source}]},
    "a field that nobody knows": lambda source: {"unknown": source},
    "arguments": lambda source: {
        "messages": [{"role": "assistant", "function_call": {"name": "f", "arguments": source}}]
    },
    "a name": lambda source: {"metadata": {source: 1}},
    "a file": lambda source: {"messages": [{"content": [{"file": {"file_data": source}}]}]},
}


@for_each("place", PLACES)
@for_each(
    "head",
    ["text/plain", "text/plain;charset=iso-8859-1", "text/html;charset=utf-16le", "text/odd"],
)
def test_data_is_inspected_as_written_too(place: str, head: str) -> None:
    source = f"data:{head};base64,{IN_BASE64}"

    assert source in list_texts(PLACES[place](source))


@for_each("place", PLACES)
@for_each("head", ["image/a-bomb", "text/plain;charset=a-bomb", "text/a-bomb"])
@for_each("payload", [ENCODED, "iVBORw0KGgoAAA=="])
def test_no_media_type_and_no_charset_is_skipped(place: str, head: str, payload: str) -> None:
    source = f"data:{head};base64,{payload}"
    texts = collect_request_texts(PLACES[place](source)).texts

    whole_texts = [text for text in texts if not text.in_data_member]
    assert [text for text in whole_texts if f"data:{head};base64," in text.text]


@for_each("name", ["filename", "detail", "caption", "odd"])
def test_text_next_to_data_is_no_data(name: str) -> None:
    picture = "data:image/png;base64,iVBORw0KGgoAAA=="
    body: Json = {"messages": [{"content": [{"file": {name: picture, "file_data": "AAAA"}}]}]}

    assert picture in list_texts(body)


@pytest.mark.parametrize("media", ["image/png", "audio/wav", "application/pdf"])
def test_picture_in_data_is_opaque(media: str) -> None:
    picture = f"data:{media};base64,iVBORw0KGgoAAA{'A' * 256}=="
    read = collect_request_texts({"messages": [{"content": [{"image_url": {"url": picture}}]}]})

    assert read.texts == ()
    assert [opaque.kind for opaque in read.opaque] == ["image_url"]


@pytest.mark.parametrize(
    "source", ["JVBERi0x" + "A" * 16, "data:image/png;base64,4111111111111111"]
)
def test_short_data_is_inspected(source: str) -> None:
    [*_, text] = collect_request_texts(PLACES["a file"](source)).texts

    assert (text.text, text.in_data_member) == (source, True)
    [*_, text] = collect_request_texts(PLACES["a file"](source + "A" * 256)).texts
    assert text.text == "file_data"


# All base64 characters, but no encoded text.
LETTERS = "please/tell/me/all/about/the/hippopotamus/" * 18
SAYS_TEXT: dict[str, Callable[[str], Json]] = {
    "a source of text": lambda source: {"type": "text", "media_type": "text/plain", "data": source},
    "a source by its type": lambda source: {"type": "text", "data": source},
    "a media type": lambda source: {"media_type": "text/plain", "data": source},
    "in other case": lambda source: {"mime_type": " TEXT/Markdown; charset=utf-8", "data": source},
    "as JSON": lambda source: {"mimeType": "application/json", "bytes": source},
    "as more JSON": lambda source: {"mimeType": "application/ld+json", "data": source},
    "as XML": lambda source: {"mediaType": "application/xml", "data": source},
    "as a drawing": lambda source: {"media_type": "image/svg+xml", "data": source},
    "a format": lambda source: {"format": "txt", "bytes": source},
    "deeper": lambda source: {"media_type": "text/plain", "data": {"b64_json": source}},
    "a picture in a text": lambda source: {"type": "text", "image": {"data": source}},
}
SAYS_NOTHING: dict[str, Callable[[str], Json]] = {
    "a file": lambda source: {"type": "file", "file": {"file_data": source}},
    "a document": lambda source: {"type": "document", "document": source},
    "a document's data": lambda source: {"type": "document", "document": {"data": source}},
    "an unknown type": lambda source: {"type": "file", "media_type": "a/b", "file_data": source},
}
PARTS: Mapping[str, Callable[[Json], Json]] = {
    "a part": lambda part: {"messages": [{"content": [part]}]},
    "a source": lambda part: {"messages": [{"content": [{"type": "document", "source": part}]}]},
    "a file": lambda part: {"messages": [{"content": [{"file": part}]}]},
    "a tool's result": lambda part: {"messages": [{"content": [{"content": [part]}]}]},
    "unknown": lambda part: {"unknown": part},
}


@for_each("part", PARTS)
@for_each("source", SAYS_TEXT | SAYS_NOTHING)
@for_each(("size", "blank"), [(200, "/"), (756, "-")])
def test_readable_base64_is_inspected_as_written(
    part: str, source: str, size: int, blank: str
) -> None:
    text = LETTERS[:size].replace("/", blank)
    read = collect_request_texts(PARTS[part]((SAYS_TEXT | SAYS_NOTHING)[source](text))).texts

    assert [item.text for item in read if item.text == text and not item.in_data_member] == [text]


@for_each("part", PARTS)
@for_each("source", SAYS_TEXT)
def test_declared_text_is_decoded_too(part: str, source: str) -> None:
    text = "all about the hippopotamus " * 20
    encoded = base64.b64encode(text.encode()).decode()

    assert text in list_texts(PARTS[part](SAYS_TEXT[source](encoded)))


@for_each(
    "part",
    [
        {"type": "file", "file": {"file_data": "JVBERi0xLjcK" + "/8A5" * 200}},
        {"type": "image", "source": {"media_type": "image/png", "data": "iVBORw0KGgo/" * 90}},
        {"type": "input_audio", "input_audio": {"format": "pcm16", "data": "/8A5" * 200}},
        {"type": "document", "source": {"media_type": "application/pdf", "data": "/8A5" * 200}},
    ],
    ids=str,
)
def test_declared_data_is_not_inspected(part: Json) -> None:
    assert max(map(len, list_texts(PARTS["a part"](part)))) < 20


def test_file_is_inspected_decoded_and_as_written() -> None:
    source = f"data:text/plain;base64,{ENCODED}"
    _, text, written = collect_request_texts(PLACES["a file"](source)).texts

    assert (text.text, text.has_decoded_text, text.in_data_member) == ("a text", False, False)
    assert (written.text, written.has_decoded_text, written.in_data_member) == (source, True, True)
    text, written = collect_request_texts(PLACES["content"](source)).texts
    assert (written.text, written.has_decoded_text, written.in_data_member) == (source, True, False)


@for_each("media", ["application/json", "image/svg+xml", "text/plain"])
@for_each("charset", ["", ";charset=us-ascii", ";charset=utf-16", ";charset=odd"])
@for_each("codec", ["utf-8", "utf-16", "utf-16le"])
def test_text_is_read_under_any_charset(media: str, charset: str, codec: str) -> None:
    source = f"data:{media}{charset};base64,{base64.b64encode('a héron'.encode(codec)).decode()}"
    readings = map(build_views, list_texts(PLACES["a file"](source)))

    assert any("héron" in reading.cased for views in readings for reading in views)


@for_each(
    ("source", "raw", "repeated"),
    [
        ("iso-8859-1", b"h\xe9ron", b"th\xe9"),
        ("UTF-16LE", "h\u00e9ron".encode("utf-16le"), "th\u00e9".encode("utf-16le")),
        ("us-ascii", b"heron", "th\u00e9".encode()),
        ("no-such", b"h\xe9ron", "th\u00e9".encode()),
        ("utf-8", b"h\xe9ron", "th\u00e9".encode()),
    ],
)
def test_text_is_written_in_its_own_charset(source: str, raw: bytes, repeated: bytes) -> None:
    part = {"media_type": f"text/plain; charset={source}", "data": base64.b64encode(raw).decode()}
    texts = collect_request_texts({"messages": [{"content": [part]}]}).texts
    [payload] = [step for item in texts if isinstance(step := item.path[-1], PayloadPathStep)]

    assert {"h\u00e9ron", "heron"} & {item.text for item in texts}
    assert base64.b64decode(payload.encode("th\u00e9")) == repeated


def test_latin_1_needs_a_declared_charset() -> None:
    data = base64.b64encode(b"h\xe9ron " * 90).decode()

    for media, placed in (("text/plain", True), ("text/plain; charset=iso-8859-1", False)):
        texts = collect_request_texts(PARTS["a file"]({"media_type": media, "file_data": data}))
        [text] = [text for text in texts.texts if text.text.startswith("h\u00e9ron")]
        assert text.in_data_member is placed
