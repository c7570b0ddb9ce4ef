"""Data inside of a request: what is base64 to its end, and the text that it may hold."""

from __future__ import annotations

import base64
import binascii
import codecs
import re
from dataclasses import dataclass

_URL = re.compile(
    r"data:(?P<type>(?:application|audio|font|image|message|model|text|video)/[a-z0-9.+-]{1,64})"
    r"(?:;charset=(?P<charset>[A-Za-z0-9_-]{1,32}))?;base64,"
)
CHARSETS = frozenset(
    {"utf-8", "us-ascii", "iso-8859-1", "windows-1252", "utf-16", "utf-16le", "utf-16be"}
)
"""The charsets that are read. A client names them, and Python knows many more: some of those take
quadratic time, some read a text into bytes in which no upstream would."""
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]*={0,2}")


@dataclass(frozen=True, slots=True)
class Payload:
    """The text that data stands for, as the last step of a path; ``head`` is what is before the
    base64 when it is written again."""

    head: str

    def written(self, text: str) -> str:
        """Return the data for a text."""
        return self.head + base64.b64encode(text.encode("utf-8", "surrogatepass")).decode()


@dataclass(frozen=True, slots=True)
class Data:
    """What a string holds that is data to its end: ``text`` is None where it is no text.

    ``loose`` says that it is data only to a decoder that skips white space, and else a text.
    """

    payload: Payload
    text: str | None
    loose: bool = False


def data_of(said: str, *, bare: bool) -> Data | None:
    """Return the data that a string is: a data URL, or with ``bare`` base64 alone; else None."""
    url = _URL.match(said)
    if url is None and not bare:
        return None
    run = said[url.end() :] if url else said
    raw = _decoded(run)
    if raw is None:
        close = "".join(run.split())
        tight = (
            None if close == run else data_of(said[: url.end() if url else 0] + close, bare=bare)
        )
        text = tight.text if tight else None
        return Data(tight.payload, text, loose=True) if tight and text is not None else None
    if url is None:
        return Data(Payload(""), _guessed(raw))
    text = _text(raw, url["charset"] or "utf-8")
    if text is None and url["type"].startswith("text/"):
        text = _guessed(raw) or raw.decode("latin-1")
    return Data(Payload(f"data:{url['type']};charset=utf-8;base64,"), text)


def _decoded(said: str) -> bytes | None:
    if _BASE64.fullmatch(said) is None:
        return None
    run = said.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(run + "=" * (-len(run) % 4), validate=True)
    except binascii.Error:
        return None


def _guessed(raw: bytes) -> str | None:
    """Return bytes as the text of which nobody says the charset, None where they are none."""
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return _text(raw, "utf-16")
    zeros = raw[1::2].count(0), raw[::2].count(0)  # of Latin letters every other byte is one
    if max(zeros) * 4 > len(raw):
        return _text(raw, "utf-16le" if zeros[0] > zeros[1] else "utf-16be")
    return _text(raw)


def _text(raw: bytes, charset: str = "utf-8") -> str | None:
    """Return bytes as text, None where they are none, or of a charset that is not read."""
    if charset.lower() not in CHARSETS:
        return None
    try:
        text = raw.decode(charset)
    except UnicodeError:
        return None
    return None if "\0" in text else text
