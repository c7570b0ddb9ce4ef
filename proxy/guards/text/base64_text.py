"""Decodes base64 and hex inside of a text, and data that is base64 to its end."""

from __future__ import annotations

import base64
import binascii
import codecs
import re
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from proxy.guards.text.member_names import MEMBERS, VALUES
from proxy.runtime.frozen import frozen
from proxy.types import Json

MIN_RUN_CHARS = 16  # minimum characters of a run that is decoded
MAX_RUN_CHARS = 4096  # characters of a run that are held and decoded in a stream
BASE64_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_"

BASE64_CHARACTER = r"[A-Za-z0-9+/_-]"
_RUNS = re.compile(rf"{BASE64_CHARACTER}{{{MIN_RUN_CHARS},}}={{0,2}}")
_NAMED_RUNS = re.compile(
    rf"(?:(?<=base64,){BASE64_CHARACTER}+|{BASE64_CHARACTER}{{{MIN_RUN_CHARS},}})={{0,2}}",
    re.IGNORECASE,
)

_HEX = re.compile(rf"[0-9A-Fa-f]{{{MIN_RUN_CHARS},}}")
_HEX_DIGITS = "0123456789abcdefABCDEF"

# Makes all characters of a run the same, to search for a run as fast as for a literal.
_RUNNING = bytes(0x61 if chr(i) in BASE64_ALPHABET else 0x20 for i in range(256))


def find_base64_runs(text: str, min_run: int = MIN_RUN_CHARS) -> Iterator[re.Match[str]]:
    """Yield base64 runs of at least ``min_run`` characters, and declared shorter ones."""
    if min_run == MIN_RUN_CHARS and "64," in text and "base64," in text.lower():
        yield from _NAMED_RUNS.finditer(text)
        return
    running, long = text.encode("utf-8", "surrogatepass").translate(_RUNNING), b"a" * min_run
    position = running.find(long)
    if position >= 0 and len(running) != len(text):
        yield from (run for run in _RUNS.finditer(text) if len(run.group()) >= min_run)
        return
    while position >= 0 and (match := _RUNS.match(text, position)) is not None:
        yield match
        position = running.find(long, match.end())


def find_open_base64_run(
    text: str, *, begins_in_base64: bool, max_run: int | None, min_run: int = 0
) -> int:
    """Return the start of a run at the end that may encode text, or the end of the text.

    A run of up to ``min_run`` characters is ignored, because that many are held anyway.
    """
    for start, decode in (
        (len(text.rstrip("=").rstrip(BASE64_ALPHABET)), partial(decode_base64, is_cut=True)),
        (len(text.rstrip(_HEX_DIGITS)), decode_hex),
    ):
        size = len(text) - start
        is_bounded = min_run < size and (max_run is None or size <= max_run)
        if is_bounded and (start or not begins_in_base64) and decode(text[start:]) is not None:
            return start
    return len(text)


def decode_base64_or_hex(
    run: str, max_run: int | None = None, *, is_remainder: bool = False
) -> Iterator[tuple[int, int, str]]:
    """Yield the spans of base64 and hex in a run with their decoded text.

    At most ``max_run`` characters of an encoding are decoded. If the run ``is_remainder`` of a
    longer one, encodings that may begin before it are skipped.
    """
    size = len(run) if max_run is None else min(len(run), max_run)
    if not is_remainder and (text := decode_base64(run[:size], is_cut=size < len(run))):
        yield 0, size, text
    for match in _HEX.finditer(run):
        start = match.start()
        end = match.end() if max_run is None else min(match.end(), start + max_run)
        if not (is_remainder and start == 0) and (text := decode_hex(run[start:end])):
            yield start, end, text


def decode_hex(run: str) -> str | None:
    """Return the text that hex encodes; None unless all of it is text. A last half byte is cut."""
    return _decode_printable(bytes.fromhex(run[: len(run) - len(run) % 2]))


def decode_base64(run: str, *, is_cut: bool = False) -> str | None:
    """Return the text that base64 of either alphabet encodes; None unless all of it is text."""
    run = run.rstrip("=")
    raw = _decode_base64_bytes(run[: len(run) - (len(run) % 4 if is_cut else len(run) % 4 == 1)])
    return None if raw is None else _decode_printable(raw)


def detect_utf16(raw: bytes) -> str | None:
    """Return the UTF-16 codec that bytes seem to have, or None.

    It is recognized by a byte order mark, or because every other byte is zero.
    """
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    zeros = raw[1::2].count(0), raw[::2].count(0)
    if max(zeros) * 4 <= len(raw):
        return None
    return "utf-16le" if zeros[0] > zeros[1] else "utf-16be"


def _decode_printable(raw: bytes) -> str | None:
    """Return bytes as text, None if some are not text. The last letter may be cut."""
    codec = detect_utf16(raw) or "utf-8"
    try:
        text = codecs.getincrementaldecoder(codec)().decode(raw)
    except UnicodeDecodeError:
        return None
    return text if "".join(text.split()).isprintable() else None


MIN_OPAQUE_CHARS = 256  # characters of data that may be an image; a key or a word is shorter
_URL = re.compile(
    r"data:(?P<type>(?:application|audio|font|image|message|model|text|video)/[a-z0-9.+-]{1,64})"
    r"(?:;charset=(?P<charset>[A-Za-z0-9_-]{1,32}))?;base64,"
)
SUPPORTED_CHARSETS = frozenset(
    {"utf-8", "us-ascii", "iso-8859-1", "windows-1252", "utf-16", "utf-16le", "utf-16be"}
)
"""Supported charsets. Clients name the charset. Some other charsets of Python take quadratic time,
or decode bytes that no upstream reads as text."""
_MEDIA = tomllib.loads((Path(__file__).parent / "data" / "media.toml").read_text("utf-8"))
MEDIA_TYPES = frozenset(
    f"{kind}/{name}" for kind, names in _MEDIA["types"].items() for name in names.split()
)
"""Known media types. Other media types are inspected as text."""
_SIGNATURES = (
    b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"%PDF-", b"PK\x03\x04", b"\xd0\xcf\x11\xe0",
    b"II*\0", b"MM\0*", b"RIFF", b"OggS", b"fLaC", b"ID3", b"\x1f\x8b\x08", b"\xff\xfb",
    b"\x1aE\xdf\xa3",
)  # fmt: skip
_TEXT_MEDIA = re.compile(
    r"\s*(?:text/|[a-z]+/(?:[\w.-]+\+)?(?:x-)?"
    r"(?:csv|javascript|json|jsonl|markdown|ndjson|rtf|sh|sql|toml|xml|yaml)\b)",
    re.IGNORECASE,
)
_OTHER_MEDIA = re.compile(
    r"\s*(?:(?:audio|font|image|video)/|application/(?:gzip|msword|pdf|vnd\.|zip))", re.IGNORECASE
)
_CHARSET = re.compile(r";\s*charset\s*=\s*[\"']?([a-z0-9_-]{1,32})", re.IGNORECASE)

IsTextOrCharset = str | bool | None
"""Declared type of data: True or a charset for text, False for other data, None if undeclared."""

_UNPRINTABLE = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f]")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]*={0,2}")
# Surrogate-escaped byte and its Latin-1 character.
_LATIN_1_BY_ESCAPE = [(chr(0xDC00 + byte), chr(byte)) for byte in range(0x80, 0x100)]
_SLICE_BYTES = 64 * 1024  # bytes decoded one by one before other tasks run


@frozen
class PayloadPathStep:
    """Last step of the path to the text that base64 data contains.

    ``head`` precedes the base64 when the data is written again, in ``charset``, or with
    ``leads_to_head`` is the original head.
    """

    head: str
    leads_to_head: bool = False
    charset: str = "utf-8"

    def encode(self, text: str) -> str:
        """Return the data with ``text`` as its content."""
        try:
            raw = text.encode(self.charset, "surrogatepass")
        except UnicodeError:
            raw = text.encode("utf-8", "surrogatepass")
        return self.head + base64.b64encode(raw).decode()


@frozen
class EncodedData:
    """Data of a string, with its ``text`` or None.

    - ``head_with_text``: the head, if it contains text of the client.
    - ``is_plain_utf8``: UTF-8 without controls, so the base64 itself is probably no text.
    - ``has_white_space``: only decoders that skip white space read it.
    - ``has_known_type``: it has a media type, or the signature of a known file type.
    - ``has_invalid_bytes``: it is undeclared and contains invalid UTF-8.
    """

    payload: PayloadPathStep
    text: str | None
    head_with_text: str = ""
    is_plain_utf8: bool = False
    has_white_space: bool = False
    has_known_type: bool = False
    has_invalid_bytes: bool = False


def parse_encoded_data(
    string: str, *, allow_bare_base64: bool, claim: IsTextOrCharset = None
) -> EncodedData | None:
    """Return the data of a data URL, or None for any other string.

    With ``allow_bare_base64``, base64 without the head of a data URL is also data.

    ``claim`` is the declared type. Short data without one may be a text.
    """
    url = _URL.match(string)
    if url is None and not allow_bare_base64:
        return None
    if claim is None:
        claim = len(string) <= MIN_OPAQUE_CHARS or None
    head = url[0] if url else ""
    run = string[len(head) :]
    raw = _decode_base64_bytes(run)
    if raw is None:
        close = "".join(run.split())
        if close == run:
            return None
        tight = parse_encoded_data(head + close, allow_bare_base64=allow_bare_base64, claim=claim)
        if tight is None or tight.text is None:
            return None
        return replace(tight, is_plain_utf8=False, has_white_space=True)
    head_with_text, signed = "", True
    if url is None:
        declared: IsTextOrCharset = None
        charset = claim if isinstance(claim, str) else ""
        signed = raw.startswith(_SIGNATURES) or raw[4:8] == b"ftyp"
    else:
        declared = get_declared_type({"media_type": url["type"]}, None)
        charset = (url["charset"] or "").lower()
        is_known = url["type"] in MEDIA_TYPES
        head_with_text = "" if is_known and charset in SUPPORTED_CHARSETS | {""} else head
        head = f"data:{url['type'] if is_known else 'text/plain'};charset=utf-8;base64,"
    text, rough = _decode_bytes(raw, charset, is_text=bool(claim if declared is None else declared))
    is_written_so = url is None and charset in SUPPORTED_CHARSETS and not rough
    return EncodedData(
        PayloadPathStep(head, charset=charset if is_written_so else "utf-8"),
        text,
        head_with_text=head_with_text,
        is_plain_utf8=_is_utf8_without_controls(raw, text),
        has_known_type=signed,
        has_invalid_bytes=rough and not declared,
    )


def get_declared_type(item: Json, outer_claim: IsTextOrCharset) -> IsTextOrCharset:
    """Return the declared type of an item's data.

    The item's type, format or media type declares it, otherwise the enclosing ``outer_claim``. An
    enclosing claim of text takes precedence.
    """
    media = [each for name in MEMBERS["media"] if isinstance(each := item.get(name), str)]
    texts = [*filter(_TEXT_MEDIA.match, media)]
    for text in texts:
        if charset := _CHARSET.search(text):
            return charset[1].lower()
    kinds = (item.get("type"), VALUES["text_parts"]), (item.get("format"), VALUES["text_formats"])
    is_text = any(isinstance(word, str) and word.lower() in words for word, words in kinds)
    if outer_claim or texts or is_text:
        return outer_claim or True
    return False if any(map(_OTHER_MEDIA.match, media)) else outer_claim


def _is_utf8_without_controls(raw: bytes, text: str | None) -> bool:
    """Return True if bytes are UTF-8 without controls, which decoded letters rarely are."""
    if text is None or _UNPRINTABLE.search(text):
        return False
    return text.isascii() or _decode_without_nul(raw) == text


def _decode_base64_bytes(encoded: str) -> bytes | None:
    if _BASE64.fullmatch(encoded) is None:
        return None
    run = encoded.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(run + "=" * (-len(run) % 4), validate=True)
    except binascii.Error:
        return None


def _decode_bytes(raw: bytes, charset: str, *, is_text: bool) -> tuple[str | None, bool]:
    """Return bytes as text in the named or apparent charset, or None.

    The second value is True if a declared text could only be read byte by byte.
    """
    declared = [charset] if charset in SUPPORTED_CHARSETS else []
    for codec in [*declared, detect_utf16(raw) or "utf-8"]:
        if (text := _decode_without_nul(raw, codec)) is not None:
            return text, False
    return ("".join(_decode_invalid_bytes_as_latin1(raw)), True) if is_text else (None, False)


def _decode_invalid_bytes_as_latin1(raw: bytes) -> Iterator[str]:
    """Yield bytes as UTF-8, and each invalid byte as the letter of Latin-1."""
    decode = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode
    for start in range(0, len(raw), _SLICE_BYTES):
        piece = decode(raw[start : start + _SLICE_BYTES], final=start + _SLICE_BYTES >= len(raw))
        if not piece.isascii():
            for escape, letter in _LATIN_1_BY_ESCAPE:
                piece = piece.replace(escape, letter)
        yield piece


def _decode_without_nul(raw: bytes, charset: str = "utf-8") -> str | None:
    try:
        text = raw.decode(charset)
    except UnicodeError:
        return None
    return None if "\0" in text else text
