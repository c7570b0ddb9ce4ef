"""Forms that are passed on. Their bytes stay as they are, but each field is checked like the same
field of a JSON body. A form that two readers could read differently is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from typing import Any
from unicodedata import normalize

from proxy.dialects.permitted import MODEL, check_fields
from proxy.errors import InvalidField
from proxy.errors.field_problems import NOT_ALLOWED, NOT_DECLARED
from proxy.errors.words import ascii_word
from proxy.fields.spelling import squeezed
from proxy.types import Target
from proxy.types.passthrough import Upload

FORM, URLENCODED = "multipart/form-data", "application/x-www-form-urlencoded"
MOST_HEAD = 8 * 1024  # bytes of what stands before a part
LINE_END = b"\r\n"
MAX_JSON_BYTES = 16 * 1024  # of one field
TEXTS = frozenset({"description", "instructions", "negativeprompt", "prompt", "text", "title"})
"""Squeezed names of fields that servers never read as JSON."""
MOST_PARTS = 1024  # of one form: each takes some microseconds
_BOUNDARY = re.compile(
    rf"{FORM} *; *boundary=(\"?)([A-Za-z0-9'()+_,./:=?-]{{1,70}})\1 *", re.IGNORECASE
)
_FIELD = re.compile(r"([A-Za-z-]+): *([ -~\x80-\U0010ffff]*)")
_NAMED = re.compile(
    r'form-data; *name=(?:"([^"\\%;]{1,256})"|([A-Za-z0-9_.\[\]-]{1,256}))'
    r'(?P<file>(?:; *filename=(?:"[^"\\]*"|[^"\\;\s]+))?(?:; *filename\*=[^;" ]+)?)',
    re.IGNORECASE,
)
FILES = frozenset({"data", "file", "files"})
"""Fields whose content is a file of the client's, which may be JSON."""
_SEPARATORS = (re.compile(r"[^\w-]+"), re.compile(r"\W+"))
"""What may separate the steps of a name. Servers read a hyphen as an underscore or as one."""
_JSON_START = re.compile(r"[\s\x00\ufeff\ufffd]*([\[{]|\Z)")
"""What parsers skip before JSON: white space and byte order marks, also of other encodings. In a
long field JSON may follow what was read."""
_OTHER_CHARSET = re.compile(r"charset(?! *= *\"?(?:utf-?8|us-ascii)\b)", re.IGNORECASE)
_CODINGS = ("content-encoding", "content-transfer-encoding")
_AS_IT_IS = frozenset({"", "7bit", "8bit", "binary"})
_ODD = "must be well-formed multipart/form-data that every parser reads the same way"


def is_form(media_type: str) -> bool:
    """True if a body of a type is a form, or has parts that some servers read as one."""
    return media_type.strip().lower().startswith(("multipart/", URLENCODED))


class FormUpload:
    """An upload that is a form for a target: each piece is looked at before it is given on, so that
    an upstream never gets the end of one that is refused."""

    __slots__ = ("_ahead", "_parts", "_upload")

    def __init__(
        self,
        upload: Upload,
        media_type: str,
        target: Target,
        declared: Collection[str] | None = None,
        *,
        requires_model: bool = False,
    ) -> None:
        """Raise ``InvalidField`` for a type that does not say how its parts are set apart."""
        match = _BOUNDARY.fullmatch(media_type)
        if match is None:
            problem = f'must be "{FORM}; boundary=..." without other parameters'
            raise InvalidField("content-type", problem)
        self._upload = upload
        self._ahead: bytes | None = None
        self._parts = FormParts(match[2].encode(), target, declared, requires_model=requires_model)

    @property
    def length(self) -> int | None:
        return self._upload.length

    @property
    def begun(self) -> bool:
        return self._upload.begun

    async def read(self) -> bytes:
        """Return the next bytes once those after them are good: the last ones make it a request."""
        piece, self._ahead = self._ahead, None
        if piece is None:
            piece = await self._next()
        if piece:
            self._ahead = await self._next()
        return piece

    async def _next(self) -> bytes:
        piece = await self._upload.read()
        if piece:
            self._parts.feed(piece)
        else:
            self._parts.close()
        return piece


class FormParts:
    """Feed it the bytes of a form, however they are cut. It keeps no more of them than a head, or
    the text of a field. Raise ``InvalidField``, also for a field that is not ``declared``."""

    def __init__(
        self,
        boundary: bytes,
        target: Target,
        declared: Collection[str] | None = None,
        *,
        requires_model: bool = False,
    ) -> None:
        self._delimiter = b"--" + boundary
        self._target = target
        self._declared = declared
        self._lacks_model = requires_model
        self._held = b"\r\n"
        self._name = ""  # of the field that is read, if its content is checked
        self._in_head = False
        self._is_first = True
        self._ended = False
        self._left = MOST_PARTS

    def feed(self, piece: bytes) -> None:
        self._held += piece
        while not self._ended and (self._head() if self._in_head else self._data()):
            pass
        if self._ended and not LINE_END.startswith(self._held):
            raise InvalidField("form", _ODD)  # some readers take what is more for no end at all

    def close(self) -> None:
        """Take the end of the bytes, which has to be that of the form."""
        if not self._ended:
            raise InvalidField("form", _ODD)
        if self._lacks_model:
            raise _wrong_model(self._target)

    def _data(self) -> bool:
        """Read to the end of a part. False where that has not come yet."""
        held, delimiter = self._held, self._delimiter
        at = held.find(delimiter)
        end = at + len(delimiter)
        if at < 0 or len(held) < end + 2:
            if self._is_first and not (b"\r\n" + delimiter).startswith(held[: 2 + len(delimiter)]):
                raise InvalidField("form", _ODD)
            if self._name and len(held) <= MAX_JSON_BYTES + len(delimiter):
                return False
            self._check(held)
            if at < 0:  # what is left may be the begin of a delimiter, after an end of line
                self._held = held[-len(delimiter) - 2 :]
            return False
        if held[max(0, at - 2) : at] != b"\r\n" or (self._is_first and at != 2):
            raise InvalidField("form", _ODD)
        self._check(held[: at - 2])
        after, self._held = held[end : end + 2], held[end + 2 :]
        if after not in (b"\r\n", b"--"):
            raise InvalidField("form", _ODD)
        self._ended = after == b"--"
        self._in_head, self._is_first = True, False
        return True

    def _head(self) -> bool:
        """Read what stands before a part. False where that has not come yet."""
        end = self._held.find(b"\r\n\r\n")
        if end > MOST_HEAD or (end < 0 and len(self._held) > MOST_HEAD):
            raise InvalidField("form", _ODD)
        if end < 0:
            return False
        lines, self._held = self._held[:end], self._held[end + 4 :]
        self._name = self._named(lines.decode("utf-8", "replace"))
        self._in_head = False
        self._left -= 1
        if self._left < 0:
            raise InvalidField("form", f"must have at most {MOST_PARTS} parts")
        return True

    def _named(self, lines: str) -> str:
        """Return the name of a field whose content is checked: of a text, or of a file that a
        server may read as one."""
        fields: dict[str, str] = {}
        for line in lines.split("\r\n"):
            match = _FIELD.fullmatch(line)
            if match is None or match[1].lower() in fields:
                raise InvalidField("form", _ODD)
            fields[match[1].lower()] = match[2]
        named = _NAMED.fullmatch(fields.get("content-disposition", "").strip())
        is_coded = any(fields.get(name, "").lower() not in _AS_IT_IS for name in _CODINGS)
        media_type = fields.get("content-type", "")
        if named is None or is_coded or is_form(media_type):
            raise InvalidField("form", _ODD)
        name = named[1] or named[2]
        if squeezed(name) == "charset":  # some servers decode the other fields by its value
            raise InvalidField(ascii_word(name), NOT_ALLOWED)
        if named["file"]:
            check_form_field(name, "a file", self._target, self._declared)
            if name.removesuffix("[]") in FILES:
                return ""
        else:
            self._lacks_model &= name != MODEL
        if _OTHER_CHARSET.search(media_type):
            raise InvalidField(ascii_word(name), "must be UTF-8")
        return name

    def _check(self, value: bytes) -> None:
        """Check the text of a field, unless that was done already."""
        name, self._name = self._name, ""
        if name:
            check_form_field(name, _parse(name, value), self._target, self._declared)


def check_form_field(
    name: str, value: Any, target: Target, declared: Collection[str] | None = None
) -> None:
    """Raise ``InvalidField`` unless a client may set a field, such as ``tools[0][server_url]``."""
    paths = [[*_steps(separators, name)] for separators in _SEPARATORS]
    if declared is not None and not any(step in declared for step in paths[0][:1]):
        raise InvalidField(ascii_word(name), NOT_DECLARED)
    for path in filter(None, paths):
        _check_path(path, value, target)


def _steps(separators: re.Pattern[str], name: str) -> Iterator[str]:
    """Yield the steps of a name, without indexes."""
    for step in separators.split(normalize("NFKC", name)):
        letters = squeezed(step)
        if letters and not letters.isdecimal():
            yield step


def _check_path(steps: list[str], value: Any, target: Target) -> None:
    if squeezed(steps[0]) == MODEL:
        if value != target.model:
            raise _wrong_model(target)
        return
    for step in reversed(steps):
        value = {step: value}
    check_fields(value, target.upstream, target.model)


def _wrong_model(target: Target) -> InvalidField:
    problem = f'must be "{ascii_word(target.model)}", because forms are forwarded unchanged'
    return InvalidField(MODEL, problem)


def _parse(name: str, value: bytes) -> Any:
    """Return the text of a field, or the object or list that lenient parsers read as JSON."""
    text = value.decode("utf-8", "replace")
    start, is_long = _JSON_START.match(text), len(value) > MAX_JSON_BYTES
    if start is None or not (is_long or start[1]):
        return text
    if is_long:
        raise InvalidField(ascii_word(name), f"must have at most {MAX_JSON_BYTES} bytes of JSON")
    try:
        return _decode_json(text[start.start(1) :])
    except RecursionError:
        raise InvalidField(ascii_word(name), "is nested too deeply") from None
    except ValueError:
        if squeezed(name) in TEXTS:
            return text
        raise InvalidField(
            ascii_word(name), "must be valid JSON if it begins with { or ["
        ) from None


def _every_member(pairs: list[tuple[str, Any]]) -> Any:
    """Return an object, or one for each member if a name occurs twice: servers may read either."""
    members = dict(pairs)
    return members if len(members) == len(pairs) else [{name: value} for name, value in pairs]


_decode_json = json.JSONDecoder(
    object_pairs_hook=_every_member, parse_int=float, strict=False
).decode
