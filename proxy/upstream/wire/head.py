"""The head of a response. It alone decides where the body ends, so nothing in it is guessed.

Source of the rules: RFC 9112, sections 4 to 6. Where it lets a reader choose, this one refuses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from proxy.errors import UpstreamInvalid

MAX_HEAD_BYTES = 64 * 1024
MAX_LINE_BYTES = 16 * 1024
MAX_FIELDS = 256
CLOSED = "The upstream closed the connection."
BROKEN = "The upstream sent an incomplete or malformed response."

_STATUS = re.compile(r"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?\r\n")
_LENGTH = re.compile("[0-9]{1,18}")
# No part of a field gives back what it has taken, so that no run of spaces is gone through twice.
_FIELD = re.compile(
    r"^([!#$%&'*+\-.^_`|~0-9A-Za-z]++):[ \t]*+([\t\x20-\x7e\x80-\xff]*+)\r\n", re.MULTILINE
)


def protocol_error() -> UpstreamInvalid:
    """Return the error for bytes that are not HTTP/1.1."""
    return UpstreamInvalid(BROKEN).caused("protocol")


class Http1Head(NamedTuple):
    """What a response says before its body. ``headers`` are by lower-case name, repeats joined.

    The body has ``length`` bytes; without one it comes in chunks, or lasts until the connection
    ends. ``keeps`` says that another request may follow on the connection.
    """

    status: int
    headers: Mapping[str, str]
    length: int | None
    chunked: bool
    keeps: bool


def read_head(raw: bytes) -> Http1Head:
    """Read status line and fields, each with its line end. Raises ``UpstreamInvalid``."""
    text = raw.decode("latin-1")
    status_line = _STATUS.match(text)
    if status_line is None or (begin := status_line.end()) > MAX_LINE_BYTES + len("\r\n"):
        raise protocol_error()
    status, headers = int(status_line[2]), read_fields(text, begin)
    newer = status_line[1] == "1"
    keeps = _keeps(headers["connection"], newer=newer) if "connection" in headers else newer
    length, coding = headers.get("content-length"), headers.get("transfer-encoding")
    if status < 200 or status in (204, 304):  # these have no body, whatever they say of one
        bare = length in (None, "0") and coding is None
        if status == 101 or (status < 200 and not bare):
            raise protocol_error()
        return Http1Head(status, headers, 0, chunked=False, keeps=keeps and bare)
    if coding is not None:
        if length is not None or not newer or coding.lower() != "chunked":
            raise protocol_error()
        return Http1Head(status, headers, None, chunked=True, keeps=keeps)
    size = None if length is None else _length(length)
    return Http1Head(status, headers, size, chunked=False, keeps=keeps and size is not None)


def read_fields(text: str, begin: int = 0) -> dict[str, str]:
    """Read lines of fields from ``begin`` on, every one of them or none. Raises
    ``UpstreamInvalid``."""
    found = _FIELD.findall(text, begin)
    count = len(found)
    # A match begins at a line's begin and ends at its end: as many as lines means every line.
    if count != text.count("\n", begin) or count > MAX_FIELDS:
        raise protocol_error()
    if len(text) - begin > MAX_LINE_BYTES:
        _check_lines(text[begin:])
    if not found:
        return {}
    names, values = zip(*found, strict=True)
    fields = dict(zip("\n".join(names).lower().split("\n"), values, strict=True))
    if len(fields) < count or " \r\n" in text or "\t\r\n" in text:
        return _joined(found)
    return fields


def _check_lines(text: str) -> None:
    if max(map(len, text.split("\n"))) > MAX_LINE_BYTES:
        raise protocol_error()


def _joined(found: list[tuple[str, str]]) -> dict[str, str]:
    """Return fields of which some came more than once, or with spaces at the end."""
    fields: dict[str, str] = {}
    for name, value in found:
        known, text = name.lower(), value.rstrip(" \t")
        fields[known] = f"{fields[known]}, {text}" if known in fields else text
    return fields


def _length(digits: str) -> int:
    """Two lengths, even equal ones, are as wrong as none that can be read."""
    if _LENGTH.fullmatch(digits) is None:
        raise protocol_error()
    return int(digits)


def _keeps(connection: str, *, newer: bool) -> bool:
    options = {option.strip() for option in connection.lower().split(",")}
    return "close" not in options and (newer or "keep-alive" in options)
