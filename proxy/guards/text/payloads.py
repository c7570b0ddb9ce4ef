"""Data inside of a request: strings that are base64 to their end, and the text in it."""

from __future__ import annotations

import base64
import binascii
import codecs
import re
from collections.abc import Iterator

from proxy.guards.text.base64_text import wide_codec
from proxy.guards.text.opaque import TextClaim, says_text
from proxy.runtime.frozen import frozen

LEAST_OPAQUE = 256  # characters of data that may be an image; a key or a word is shorter
_URL = re.compile(
    r"data:(?P<type>(?:application|audio|font|image|message|model|text|video)/[a-z0-9.+-]{1,64})"
    r"(?:;charset=(?P<charset>[A-Za-z0-9_-]{1,32}))?;base64,"
)
CHARSETS = frozenset(
    {"utf-8", "us-ascii", "iso-8859-1", "windows-1252", "utf-16", "utf-16le", "utf-16be"}
)
"""Supported charsets. Clients name them, and some others of Python take quadratic time, or read a
text into bytes that no upstream does."""
MEDIA_TYPES = frozenset(
    f"{kind}/{name}"
    for kind, names in {
        "application": "gzip json msword octet-stream pdf rtf vnd.ms-excel vnd.ms-powerpoint "
        "vnd.openxmlformats-officedocument.presentationml.presentation "
        "vnd.openxmlformats-officedocument.spreadsheetml.sheet "
        "vnd.openxmlformats-officedocument.wordprocessingml.document xml yaml zip",
        "audio": "aac flac mp3 mp4 mpeg ogg opus wav webm x-m4a x-wav",
        "font": "otf ttf woff woff2",
        "image": "avif bmp gif heic heif jpeg jpg png svg+xml tiff webp",
        "text": "calendar css csv html javascript markdown plain rtf tab-separated-values xml",
        "video": "mp4 mpeg ogg quicktime webm x-matroska x-msvideo",
    }.items()
    for name in names.split()
)
"""Known media types; the words of any other are inspected."""
_SIGNATURES = (
    b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"%PDF-", b"PK\x03\x04", b"\xd0\xcf\x11\xe0",
    b"II*\0", b"MM\0*", b"RIFF", b"OggS", b"fLaC", b"ID3", b"\x1f\x8b\x08", b"\xff\xfb",
    b"\x1aE\xdf\xa3",
)  # fmt: skip
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f]")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]*={0,2}")
_IN_LATIN_1 = [(chr(0xDC00 + byte), chr(byte)) for byte in range(0x80, 0x100)]  # of an escaped one
_AT_ONCE = 64 * 1024  # bytes that are decoded one by one before others have a turn


@frozen
class Payload:
    """The text of data, as the last step of a path.

    ``head`` precedes the base64 when the data is written again, in ``charset``. With ``is_head``
    the step is the original head.
    """

    head: str
    is_head: bool = False
    charset: str = "utf-8"

    def written(self, text: str) -> str:
        """Return the data for a text."""
        try:
            raw = text.encode(self.charset, "surrogatepass")
        except UnicodeError:
            raw = text.encode("utf-8", "surrogatepass")
        return self.head + base64.b64encode(raw).decode()


@frozen
class Data:
    """Data of a string, with its ``text`` or None.

    ``odd_head`` is a head with words of the client. ``exact`` data is UTF-8, so the base64 itself
    is hardly a text. ``loose`` data needs a decoder that skips white space. ``signed`` data begins
    as files of a known type. ``rough`` data is a text only byte by byte, and not declared as one.
    """

    payload: Payload
    text: str | None
    odd_head: str = ""
    exact: bool = False
    loose: bool = False
    signed: bool = False
    rough: bool = False


def data_of(string: str, *, bare: bool, claim: TextClaim = None) -> Data | None:
    """Return the data of a data URL, or with ``bare`` of base64; None for any other string.

    ``claim`` is the declared type. Short data without one may be a text.
    """
    url = _URL.match(string)
    if url is None and not bare:
        return None
    if claim is None:
        claim = len(string) <= LEAST_OPAQUE or None
    head = url[0] if url else ""
    run = string[len(head) :]
    raw = _decoded(run)
    if raw is None:
        close = "".join(run.split())
        tight = None if close == run else data_of(head + close, bare=bare, claim=claim)
        text = tight.text if tight else None
        if tight is None or text is None:
            return None
        return Data(tight.payload, text, loose=True, rough=tight.rough)
    if url is None:
        charset = claim if isinstance(claim, str) else ""
        text, rough = _read(raw, charset, is_text=bool(claim))
        back = Payload("", charset=charset if charset in CHARSETS and not rough else "utf-8")
        exact = _is_exact(raw, text)
        return Data(
            back,
            text,
            exact=exact,
            signed=raw.startswith(_SIGNATURES) or raw[4:8] == b"ftyp",
            rough=rough,
        )
    itself = says_text({"media_type": url["type"]}, None)
    charset = (url["charset"] or "").lower()
    text, rough = _read(raw, charset, is_text=bool(claim if itself is None else itself))
    known = url["type"] in MEDIA_TYPES
    odd = not known or charset not in CHARSETS | {""}
    return Data(
        Payload(f"data:{url['type'] if known else 'text/plain'};charset=utf-8;base64,"),
        text,
        odd_head=head if odd else "",
        exact=_is_exact(raw, text),
        signed=True,  # by its own media type
        rough=rough and not itself,
    )


def _is_exact(raw: bytes, text: str | None) -> bool:
    """Return True if bytes are UTF-8 without controls, which decoded letters rarely are."""
    if text is None or _CONTROLS.search(text):
        return False
    return text.isascii() or _text(raw) == text


def _decoded(encoded: str) -> bytes | None:
    if _BASE64.fullmatch(encoded) is None:
        return None
    run = encoded.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(run + "=" * (-len(run) % 4), validate=True)
    except binascii.Error:
        return None


def _read(raw: bytes, charset: str, *, is_text: bool) -> tuple[str | None, bool]:
    """Return bytes as text in the named or the apparent charset, or None, and True if a declared
    text could only be read byte by byte."""
    text = _text(raw, charset) if charset in CHARSETS else None
    if text is None:
        text = _text(raw, wide_codec(raw) or "utf-8")
    rough = text is None and is_text
    return ("".join(_one_by_one(raw)) if rough else text), rough


def _one_by_one(raw: bytes) -> Iterator[str]:
    """Yield bytes as UTF-8, and each invalid byte as the letter of Latin-1."""
    decode = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode
    for start in range(0, len(raw), _AT_ONCE):
        piece = decode(raw[start : start + _AT_ONCE], final=start + _AT_ONCE >= len(raw))
        if not piece.isascii():
            for escape, letter in _IN_LATIN_1:
                piece = piece.replace(escape, letter)
        yield piece


def _text(raw: bytes, charset: str = "utf-8") -> str | None:
    """Return bytes as text, or None."""
    try:
        text = raw.decode(charset)
    except UnicodeError:
        return None
    return None if "\0" in text else text
