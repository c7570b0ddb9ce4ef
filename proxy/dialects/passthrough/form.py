"""Checks forms that are forwarded unchanged.

Each field is checked like the same field of a JSON body. A form that two parsers could read
differently is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from typing import Any
from unicodedata import normalize

from proxy.dialects.requests.field_filter import MODEL, check_restricted_fields
from proxy.errors import InvalidField
from proxy.errors.field_problems import NOT_ALLOWED, NOT_DECLARED
from proxy.errors.words import shorten_to_ascii
from proxy.fields.spelling import normalize_name
from proxy.types import Target
from proxy.types.passthrough import Upload

MULTIPART, URLENCODED = "multipart/form-data", "application/x-www-form-urlencoded"
MAX_PART_HEADER_BYTES = 8 * 1024
LINE_END = b"\r\n"
MAX_JSON_BYTES = 16 * 1024  # bytes of one field
PLAIN_TEXT_FIELDS = frozenset(
    {"description", "instructions", "negativeprompt", "prompt", "text", "title"}
)
"""Normalized names of fields that servers never read as JSON."""
MAX_PARTS = 1024  # each part takes a few microseconds
_BOUNDARY = re.compile(
    rf"{MULTIPART} *; *boundary=(\"?)([A-Za-z0-9'()+_,./:=?-]{{1,70}})\1 *", re.IGNORECASE
)
_HEADER = re.compile(r"([A-Za-z-]+): *([ -~\x80-\U0010ffff]*)")
_DISPOSITION = re.compile(
    r'form-data; *name=(?:"([^"\\%;]{1,256})"|([A-Za-z0-9_.\[\]-]{1,256}))'
    r'(?P<file>(?:; *filename=(?:"[^"\\]*"|[^"\\;\s]+))?(?:; *filename\*=[^;" ]+)?)',
    re.IGNORECASE,
)
FILE_FIELDS = frozenset({"data", "file", "files"})
"""Fields whose content is a file of the client. The file may be JSON."""
_NAME_SEPARATORS = (re.compile(r"[^\w-]+"), re.compile(r"\W+"))
"""Separators of the steps of a name. Servers may read a hyphen as an underscore."""
_JSON_START = re.compile(r"[\s\x00\ufeff\ufffd]*([\[{]|\Z)")
"""Start of JSON after white space and byte order marks, which parsers skip.

If only the beginning of a long field was read, JSON may follow.
"""
_OTHER_CHARSET = re.compile(r"charset(?! *= *\"?(?:utf-?8|us-ascii)\b)", re.IGNORECASE)
_ENCODING_HEADERS = ("content-encoding", "content-transfer-encoding")
_NO_ENCODINGS = frozenset({"", "7bit", "8bit", "binary"})
_MALFORMED_FORM = "must be well-formed multipart/form-data that every parser reads the same way"


def can_be_form(media_type: str) -> bool:
    """Return True for a form, or any multipart type, which some servers read as a form."""
    return media_type.strip().lower().startswith(("multipart/", URLENCODED))


class FormUpload:
    """An upload of a form.

    Checks each piece before the previous one is forwarded, so that an upstream never receives
    the end of a refused form.
    """

    def __init__(
        self,
        upload: Upload,
        media_type: str,
        target: Target,
        declared_fields: Collection[str] | None = None,
        *,
        requires_model: bool = False,
    ) -> None:
        """Raise ``InvalidField`` for a media type without a usable boundary."""
        match = _BOUNDARY.fullmatch(media_type)
        if match is None:
            problem = f'must be "{MULTIPART}; boundary=..." without other parameters'
            raise InvalidField("content-type", problem)
        self._upload = upload
        self._ahead: bytes | None = None
        boundary = match[2].encode()
        self._parts = FormChecker(boundary, target, declared_fields, requires_model=requires_model)

    @property
    def length(self) -> int | None:
        return self._upload.length

    @property
    def has_begun(self) -> bool:
        return self._upload.has_begun

    async def read_chunk(self) -> bytes:
        """Return the next piece. The piece after it has been checked, too."""
        piece, self._ahead = self._ahead, None
        if piece is None:
            piece = await self._read_piece()
        if piece:
            self._ahead = await self._read_piece()
        return piece

    async def _read_piece(self) -> bytes:
        piece = await self._upload.read_chunk()
        if piece:
            self._parts.feed(piece)
        else:
            self._parts.close()
        return piece


class FormChecker:
    """Checks the bytes of a form, in any pieces.

    Buffers at most the header of a part or the text of a field. Raises ``InvalidField``, also for a
    field that is not in ``declared_fields``.
    """

    def __init__(
        self,
        boundary: bytes,
        target: Target,
        declared_fields: Collection[str] | None = None,
        *,
        requires_model: bool = False,
    ) -> None:
        self._delimiter = b"--" + boundary
        self._target = target
        self._declared_fields = declared_fields
        self._lacks_model = requires_model
        self._buffer = b"\r\n"
        self._name = ""  # name of the current field if its content is checked
        self._in_header = False
        self._is_first = True
        self._has_ended = False
        self._part_count = 0

    def feed(self, piece: bytes) -> None:
        self._buffer += piece
        while not self._has_ended and (
            self._try_read_part_header() if self._in_header else self._try_read_part_content()
        ):
            pass
        if self._has_ended and not LINE_END.startswith(self._buffer):
            raise InvalidField("form", _MALFORMED_FORM)  # some parsers continue after the end

    def close(self) -> None:
        """Check that the form is complete."""
        if not self._has_ended:
            raise InvalidField("form", _MALFORMED_FORM)
        if self._lacks_model:
            raise _make_wrong_model_error(self._target)

    def _try_read_part_content(self) -> bool:
        """Read to the end of a part. Return False if the end has not arrived."""
        buffer, delimiter = self._buffer, self._delimiter
        start = buffer.find(delimiter)
        end = start + len(delimiter)
        if start < 0 or len(buffer) < end + 2:
            prefix = (b"\r\n" + delimiter).startswith(buffer[: 2 + len(delimiter)])
            if self._is_first and not prefix:
                raise InvalidField("form", _MALFORMED_FORM)
            if self._name and len(buffer) <= MAX_JSON_BYTES + len(delimiter):
                return False
            self._check_field(buffer)
            if start < 0:  # the rest may be the beginning of a delimiter
                self._buffer = buffer[-len(delimiter) - 2 :]
            return False
        if buffer[max(0, start - 2) : start] != b"\r\n" or (self._is_first and start != 2):
            raise InvalidField("form", _MALFORMED_FORM)
        self._check_field(buffer[: start - 2])
        suffix, self._buffer = buffer[end : end + 2], buffer[end + 2 :]
        if suffix not in (b"\r\n", b"--"):
            raise InvalidField("form", _MALFORMED_FORM)
        self._has_ended = suffix == b"--"
        self._in_header, self._is_first = True, False
        return True

    def _try_read_part_header(self) -> bool:
        """Read the header of a part. Return False if its end has not arrived."""
        end = self._buffer.find(b"\r\n\r\n")
        if end > MAX_PART_HEADER_BYTES or (end < 0 and len(self._buffer) > MAX_PART_HEADER_BYTES):
            raise InvalidField("form", _MALFORMED_FORM)
        if end < 0:
            return False
        lines, self._buffer = self._buffer[:end], self._buffer[end + 4 :]
        self._name = self._parse_field_name(lines.decode("utf-8", "replace"))
        self._in_header = False
        self._part_count += 1
        if self._part_count > MAX_PARTS:
            raise InvalidField("form", f"must have at most {MAX_PARTS} parts")
        return True

    def _parse_field_name(self, lines: str) -> str:
        """Return the name of the field to check, "" for a file, whose content is not checked."""
        headers: dict[str, str] = {}
        for line in lines.split("\r\n"):
            match = _HEADER.fullmatch(line)
            if match is None or match[1].lower() in headers:
                raise InvalidField("form", _MALFORMED_FORM)
            headers[match[1].lower()] = match[2]
        disposition = _DISPOSITION.fullmatch(headers.get("content-disposition", "").strip())
        encodings = {headers.get(name, "").lower() for name in _ENCODING_HEADERS}
        media_type = headers.get("content-type", "")
        if disposition is None or not encodings <= _NO_ENCODINGS or can_be_form(media_type):
            raise InvalidField("form", _MALFORMED_FORM)
        name = disposition[1] or disposition[2]
        if normalize_name(name) == "charset":  # servers may decode other fields by it
            raise InvalidField(shorten_to_ascii(name), NOT_ALLOWED)
        if disposition["file"]:
            check_form_field(name, "a file", self._target, self._declared_fields)
            if name.removesuffix("[]") in FILE_FIELDS:
                return ""
        else:
            self._lacks_model &= name != MODEL
        if _OTHER_CHARSET.search(media_type):
            raise InvalidField(shorten_to_ascii(name), "must be UTF-8")
        return name

    def _check_field(self, value: bytes) -> None:
        name, self._name = self._name, ""
        if name:
            check_form_field(name, _parse_field(name, value), self._target, self._declared_fields)


def check_form_field(
    name: str, value: Any, target: Target, declared_fields: Collection[str] | None = None
) -> None:
    """Raise ``InvalidField`` unless clients may set a field, such as ``tools[0][server_url]``."""
    paths = [[*_split_field_name(separators, name)] for separators in _NAME_SEPARATORS]
    if declared_fields is not None and not any(step in declared_fields for step in paths[0][:1]):
        raise InvalidField(shorten_to_ascii(name), NOT_DECLARED)
    for path in filter(None, paths):
        if normalize_name(path[0]) == MODEL:
            if value != target.model:
                raise _make_wrong_model_error(target)
            continue
        nested = value
        for step in reversed(path):
            nested = {step: nested}
        check_restricted_fields(nested, target.upstream, target.model)


def _split_field_name(separators: re.Pattern[str], name: str) -> Iterator[str]:
    """Yield the parts of a nested field name, such as ``a[b][0]``, without numbers."""
    for step in separators.split(normalize("NFKC", name)):
        letters = normalize_name(step)
        if letters and not letters.isdecimal():
            yield step


def _make_wrong_model_error(target: Target) -> InvalidField:
    model = shorten_to_ascii(target.model)
    problem = f'must be "{model}", the name at the upstream, because forms are forwarded unchanged'
    return InvalidField(MODEL, problem)


def _parse_field(name: str, value: bytes) -> Any:
    """Return the text of a field, or the object or list that lenient parsers read in it."""
    text = value.decode("utf-8", "replace")
    start, is_long = _JSON_START.match(text), len(value) > MAX_JSON_BYTES
    if start is None or not (is_long or start[1]):
        return text
    if is_long:
        problem = f"must have at most {MAX_JSON_BYTES} bytes of JSON"
        raise InvalidField(shorten_to_ascii(name), problem)
    try:
        return _decode_json(text[start.start(1) :])
    except RecursionError:
        raise InvalidField(shorten_to_ascii(name), "is nested too deeply") from None
    except ValueError:
        if normalize_name(name) in PLAIN_TEXT_FIELDS:
            return text
        problem = "must be valid JSON if it begins with { or ["
        raise InvalidField(shorten_to_ascii(name), problem) from None


def _keep_repeated_members(pairs: list[tuple[str, Any]]) -> Any:
    """Return an object, or a list of one object per member if a name occurs twice."""
    members = dict(pairs)
    return members if len(members) == len(pairs) else [{name: value} for name, value in pairs]


_decode_json = json.JSONDecoder(
    object_pairs_hook=_keep_repeated_members, parse_int=float, strict=False
).decode
