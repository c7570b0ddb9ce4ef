"""Forms that are passed on: their bytes stay as they are, but the names of their parts are read,
and the model that they ask for. A form that two readers could read otherwise is refused."""

from __future__ import annotations

import re

from proxy.errors import BadField
from proxy.field_problems import BAD_NAME, NOT_ALLOWED
from proxy.types import Target
from proxy.types.passthrough import Upload
from proxy.types.spelling import squeezed
from proxy.words import MAX_NAME, ascii_word

FORM, URLENCODED = "multipart/form-data", "application/x-www-form-urlencoded"
MOST_HEAD = 8 * 1024  # bytes of what stands before a part
LINE_END = b"\r\n"
MOST_PARTS = 1024  # of one form: each takes some microseconds
_BOUNDARY = re.compile(
    rf"{FORM} *; *boundary=(\"?)([A-Za-z0-9'()+_,./:=?-]{{1,70}})\1 *", re.IGNORECASE
)
_FIELD = re.compile(r"([A-Za-z-]+): *([ -~\x80-\U0010ffff]*)")
_NAMED = re.compile(
    r'form-data; *name=(?:"([^"\\%;]{1,256})"|([A-Za-z0-9_.\[\]-]{1,256}))'
    r'(?:; *filename=(?:"[^"\\]*"|[^"\\;\s]+))?(?:; *filename\*=[^;" ]+)?',
    re.IGNORECASE,
)
_AS_IT_IS = frozenset({"", "7bit", "8bit", "binary"})
_ODD = "must be well-formed multipart/form-data that every parser reads the same way"


def is_form(media_type: str) -> bool:
    """True if a body of a type is a form, or has parts that some servers read as one."""
    return media_type.strip().lower().startswith(("multipart/", URLENCODED))


class FormUpload:
    """An upload that is a form for a target: each piece is looked at before it is given on, so that
    an upstream never gets the end of one that is refused."""

    __slots__ = ("_ahead", "_parts", "_upload")

    def __init__(self, upload: Upload, media_type: str, target: Target) -> None:
        """Raise ``BadField`` for a type that does not say how its parts are set apart."""
        match = _BOUNDARY.fullmatch(media_type)
        if match is None:
            problem = f'must be "{FORM}; boundary=..." without other parameters'
            raise BadField("content-type", problem)
        self._upload = upload
        self._ahead: bytes | None = None
        self._parts = FormParts(match[2].encode(), target)

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
    the name of a model. Raise ``BadField``."""

    def __init__(self, boundary: bytes, target: Target) -> None:
        self._delimiter = b"--" + boundary
        self._target = target
        self._held = b"\r\n"
        self._name: str | None = None  # of the part that is read
        self._in_head = False
        self._is_first = True
        self._ended = False
        self._left = MOST_PARTS

    def feed(self, piece: bytes) -> None:
        self._held += piece
        while not self._ended and (self._head() if self._in_head else self._data()):
            pass
        if self._ended and not LINE_END.startswith(self._held):
            raise BadField("form", _ODD)  # some readers take what is more for no end at all

    def close(self) -> None:
        """Take the end of the bytes, which has to be that of the form."""
        if not self._ended:
            raise BadField("form", _ODD)

    def _data(self) -> bool:
        """Read to the end of a part. False where that has not come yet."""
        held, delimiter = self._held, self._delimiter
        at = held.find(delimiter)
        end = at + len(delimiter)
        if at < 0 or len(held) < end + 2:
            if self._is_first and not (b"\r\n" + delimiter).startswith(held[: 2 + len(delimiter)]):
                raise BadField("form", _ODD)
            if self._name == "model":
                self._check_length(len(held))
            elif at < 0:  # what is left may be the begin of a delimiter, after an end of line
                self._held = held[-len(delimiter) - 2 :]
            return False
        if held[max(0, at - 2) : at] != b"\r\n" or (self._is_first and at != 2):
            raise BadField("form", _ODD)
        if self._name == "model":
            self._check_model(held[: at - 2])
        after, self._held = held[end : end + 2], held[end + 2 :]
        if after not in (b"\r\n", b"--"):
            raise BadField("form", _ODD)
        self._ended = after == b"--"
        self._in_head, self._is_first, self._name = True, False, None
        return True

    def _head(self) -> bool:
        """Read what stands before a part. False where that has not come yet."""
        end = self._held.find(b"\r\n\r\n")
        if end > MOST_HEAD or (end < 0 and len(self._held) > MOST_HEAD):
            raise BadField("form", _ODD)
        if end < 0:
            return False
        lines, self._held = self._held[:end], self._held[end + 4 :]
        self._name = self._named(lines.decode("utf-8", "replace"))
        self._in_head = False
        self._left -= 1
        if self._left < 0:
            raise BadField("form", f"must have at most {MOST_PARTS} parts")
        return True

    def _named(self, lines: str) -> str:
        """Return the name of a part. Raise for one that is not the client's to say."""
        fields: dict[str, str] = {}
        for line in lines.split("\r\n"):
            match = _FIELD.fullmatch(line)
            if match is None or match[1].lower() in fields:
                raise BadField("form", _ODD)
            fields[match[1].lower()] = match[2]
        named = _NAMED.fullmatch(fields.get("content-disposition", "").strip())
        is_coded = fields.get("content-transfer-encoding", "").lower() not in _AS_IT_IS
        if named is None or is_coded or is_form(fields.get("content-type", "")):
            raise BadField("form", _ODD)
        name, upstream = (named[1] or named[2]).partition("[")[0].strip(), self._target.upstream
        spelled = squeezed(name)
        known = upstream.banned.get(spelled, "")
        if known in (upstream.refuses | upstream.drops) - upstream.accepts:
            raise BadField(ascii_word(name), NOT_ALLOWED)
        return spelled

    def _check_length(self, size: int) -> None:
        if size > MAX_NAME + len(self._delimiter) + 4:
            raise BadField("model", BAD_NAME)

    def _check_model(self, value: bytes) -> None:
        if value != self._target.model.encode():
            message = f'must be "{ascii_word(self._target.model)}", because forms are not rewritten'
            raise BadField("model", message)
