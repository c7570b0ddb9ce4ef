"""Decodes base64 and hex inside of a text.

Base64 is a run of 16 characters or more, or any run behind ``base64,``. Hex is a run of 16
characters or more, and so always within a run of base64.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import re
from collections.abc import Iterator
from functools import partial

RUN = 16  # minimum characters that are decoded
MOST_RUN = 4096  # characters of a run that are held and decoded in a stream
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_"

ONE = r"[A-Za-z0-9+/_-]"
_RUNS = re.compile(rf"{ONE}{{{RUN},}}={{0,2}}")
_NAMED_RUNS = re.compile(rf"(?:(?<=base64,){ONE}+|{ONE}{{{RUN},}})={{0,2}}", re.IGNORECASE)

_HEX = re.compile(rf"[0-9A-Fa-f]{{{RUN},}}")
_HEX_DIGITS = "0123456789abcdefABCDEF"

# Classes of bytes, to search for a class as fast as for a literal.
_RUNNING = bytes(0x61 if chr(i) in ALPHABET else 0x20 for i in range(256))
_LONG = b"a" * RUN


def possible(raw: bytes) -> bool:
    """Return True if a text in UTF-8 may have a run."""
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
    """Yield the spans of runs longer than ``size`` characters."""
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
    """Return the start of a run at the end that may be text, or the end of the text.

    A run of up to ``near`` characters is ignored, because so much is held anyway.
    """
    for start, decode in (
        (len(text.rstrip("=").rstrip(ALPHABET)), partial(plain, cut=True)),
        (len(text.rstrip(_HEX_DIGITS)), hex_text),
    ):
        size = len(text) - start
        if size <= near or (torn and not start) or (most is not None and size > most):
            continue
        if decode(text[start:]) is not None:
            return start
    return len(text)


def decodings(
    run: str, most: int | None = None, *, torn: bool = False
) -> Iterator[tuple[int, int, str]]:
    """Yield the spans of base64 and hex in a run with their text, each of at most ``most``
    characters. What begins before a ``torn`` run is skipped."""
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
    """Return the text of hex without half a byte at its end; None unless all of it is text."""
    raw = bytes.fromhex(run[: len(run) - len(run) % 2])
    return _printable(raw, wide_codec(raw) or "utf-8")


def plain(run: str, *, cut: bool = False) -> str | None:
    """Return the text of a run in either alphabet; None unless all of it is text."""
    run = run.rstrip("=")
    run = run[: len(run) - (len(run) % 4 if cut else len(run) % 4 == 1)]
    try:
        raw = base64.b64decode(run.replace("-", "+").replace("_", "/") + "=" * (-len(run) % 4))
    except binascii.Error:
        return None
    return _printable(raw, wide_codec(raw) or "utf-8")


def wide_codec(raw: bytes) -> str | None:
    """Return the UTF-16 codec that bytes look like, by their mark or because every other byte of
    Latin letters is zero."""
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    zeros = raw[1::2].count(0), raw[::2].count(0)
    if max(zeros) * 4 <= len(raw):
        return None
    return "utf-16le" if zeros[0] > zeros[1] else "utf-16be"


def _printable(raw: bytes, codec: str) -> str | None:
    """Return bytes as text, whose last letter may be cut; None unless all of them are text."""
    try:
        text = codecs.getincrementaldecoder(codec)().decode(raw)
    except UnicodeDecodeError:
        return None
    return text if "".join(text.split()).isprintable() else None
