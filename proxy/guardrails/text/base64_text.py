"""Base64 inside of a text, and hex: where they may be, and what they say.

It is a run of 16 characters or more; behind ``base64,`` any run is. Hex is a run of 16 characters
or more, and thereby always within a run of what may be base64.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import re
from collections.abc import Iterator

RUN = 16  # characters of base64 that are worth decoding
MOST_RUN = 4096  # of one run that are held, and decoded, with a text that comes piece by piece
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_"

ONE = r"[A-Za-z0-9+/_-]"
_RUNS = re.compile(rf"{ONE}{{{RUN},}}={{0,2}}")
_NAMED_RUNS = re.compile(rf"(?:(?<=base64,){ONE}+|{ONE}{{{RUN},}})={{0,2}}", re.IGNORECASE)

_HEX = re.compile(rf"[0-9A-Fa-f]{{{RUN},}}")
_HEX_DIGITS = "0123456789abcdefABCDEF"

# Classes of bytes, to look for a class at the speed of a search for a literal.
_RUNNING = bytes(0x61 if chr(i) in ALPHABET else 0x20 for i in range(256))
_LONG = b"a" * RUN


def possible(raw: bytes) -> bool:
    """True if a text, as UTF-8, has a run that is long enough, or may be called base64."""
    named = b"64," in raw and b"base64," in raw.lower()
    return named or _LONG in raw.translate(_RUNNING)


def runs(text: str) -> Iterator[re.Match[str]]:
    if "64," in text and "base64," in text.lower():
        yield from _NAMED_RUNS.finditer(text)
        return
    running = text.encode("utf-8", "surrogatepass").translate(_RUNNING)
    at = running.find(_LONG)
    if at >= 0 and len(running) != len(text):
        yield from _RUNS.finditer(text)
        return
    while at >= 0 and (match := _RUNS.match(text, at)) is not None:
        yield match
        at = running.find(_LONG, match.end())


def long_runs(text: str, size: int) -> Iterator[tuple[int, int]]:
    """Return where runs begin and end that are longer than so many characters."""
    running = text.encode("utf-8", "surrogatepass").translate(_RUNNING)
    long = b"a" * (size + 1)
    at = running.find(long)
    if at >= 0 and len(running) != len(text):
        yield from (each.span() for each in _RUNS.finditer(text) if len(each.group()) > size)
        return
    while at >= 0 and (match := _RUNS.match(text, at)) is not None:
        yield match.span()
        at = running.find(long, match.end())


def open_run(text: str, *, torn: bool, most: int | None, near: int = 0) -> int:
    """Return where an open run at the end starts that may be text; else the end of the text.

    One that is no longer than ``near`` is left to who holds so much anyway.
    """
    stripped = text.rstrip("=")
    begins = len(stripped.rstrip(ALPHABET))
    if _may_be(run := text[begins:], begins, torn, most, near) and plain(run, cut=True) is not None:
        return begins
    begins = len(text.rstrip(_HEX_DIGITS))
    if _may_be(run := text[begins:], begins, torn, most, near) and hex_text(run) is not None:
        return begins
    return len(text)


def _may_be(run: str, begins: int, torn: bool, most: int | None, near: int) -> bool:
    """True if a run at the end is to be looked at."""
    return len(run) > near and not (torn and not begins) and (most is None or len(run) <= most)


def decodings(
    run: str, most: int | None = None, *, torn: bool = False
) -> Iterator[tuple[int, int, str]]:
    """Return what a run says, as base64 or as hex within it, and where that stands in the run; of
    each at most the first ``most`` characters. What begins before a ``torn`` run is left alone."""
    size = len(run) if most is None else min(len(run), most)
    if not torn and (text := plain(run[:size], cut=size < len(run))):
        yield 0, size, text
    for match in _HEX.finditer(run):
        start, end = match.span()
        if most is not None:
            end = min(end, start + most)
        if not (torn and start == 0) and (text := hex_text(run[start:end])):
            yield start, end, text


def hex_text(run: str) -> str | None:
    """Return the text that hex encodes, but for half of a byte at its end; None unless all of it
    is text."""
    raw = bytes.fromhex(run[: len(run) - len(run) % 2])
    return _printable(raw, wide_codec(raw) or "utf-8")


def plain(run: str, *, cut: bool = False) -> str | None:
    """Return the text that a run encodes, in either alphabet; None unless all of it is text."""
    run = run.rstrip("=")
    run = run[: len(run) - (len(run) % 4 if cut else len(run) % 4 == 1)]
    try:
        raw = base64.b64decode(run.replace("-", "+").replace("_", "/") + "=" * (-len(run) % 4))
    except binascii.Error:
        return None
    return _printable(raw, wide_codec(raw) or "utf-8")


def wide_codec(raw: bytes) -> str | None:
    """Return which codec of two bytes a letter bytes look like, if they do: by their mark, or as
    of Latin letters every other byte is zero."""
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    zeros = raw[1::2].count(0), raw[::2].count(0)
    if max(zeros) * 4 <= len(raw):
        return None
    return "utf-16le" if zeros[0] > zeros[1] else "utf-16be"


def _printable(raw: bytes, codec: str) -> str | None:
    """Return bytes as text, be its last letter cut; None where they are not all text."""
    try:
        text = codecs.getincrementaldecoder(codec)().decode(raw)
    except UnicodeDecodeError:
        return None
    return text if "".join(text.split()).isprintable() else None
