"""Which call of a tool each part of a chat's stream is of, for clients that get one call after the
other.

Most servers number their calls by ``index``. Some give all of them the same one, and some none: so
ids and names tell calls apart as well, as in SDKs that heed them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from proxy.dialects.pieces import dump
from proxy.errors import ResponseTooLarge
from proxy.types import Json
from proxy.types.index import index_of

MOST_CALLS = 4096
"""Tool calls of a choice."""
SPACE = " \t\r\n"
EMPTY = "{}"
"""What some servers put where a call begins in place of its arguments."""
INNER: Mapping[str, str] = {"function": "arguments", "custom": "input"}
"""The members of a call that have its name, and the text beside that."""
LONGEST_ID = 256  # characters of an id or a name that is kept: a longer one is kept by its hash

_MARK = re.compile(r'["{}\[\]]')
_IN_STRING = re.compile(r'["\\]')
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_-]")

_Word = str | int


def text_of_call(call: Json) -> tuple[str, str]:
    """Return what a part of a call says, after the name of the member that says it."""
    for kind, name in INNER.items():
        inner = call.get(kind)
        if isinstance(inner, dict):
            text = inner.get(name)
            return name, text if isinstance(text, str) else ""
    return "arguments", ""


def with_text(call: Json, text: str) -> Json:
    """Return a part of a call that says another text."""
    kind = next((kind for kind in INNER if isinstance(call.get(kind), dict)), "function")
    return {**call, kind: {**(call.get(kind) or {}), INNER[kind]: text}}


def named_by_us(call: Json, answer: object, number: int) -> Json:
    """Return the first part of a call, or a whole one, with an id where its server gives none: what
    a tool returns is told by it. ``answer`` is the id of the answer."""
    id_ = call.get("id")
    if id_ is not None and _word(id_) is not None:
        return call if isinstance(id_, str) else {**call, "id": str(id_)}
    of = _NOT_IN_IDS.sub("_", answer)[:64] if isinstance(answer, str) else ""
    return {**call, "id": f"call_{of}_{number}" if of else f"call_{number}"}


def written_arguments(call: Json) -> Json:
    """Return a part of a call whose arguments are a text: some servers send the object itself."""
    function = call.get("function")
    arguments = function.get("arguments") if isinstance(function, dict) else None
    return with_text(call, dump(arguments, 0).decode()) if isinstance(arguments, dict) else call


def _word(value: object) -> _Word | None:
    """Return an id or a name as it is compared; None for one that says nothing."""
    if not isinstance(value, str | int) or value == "":
        return None
    return value if isinstance(value, int) or len(value) <= LONGEST_ID else hash(value)


def _name_of(call: Json) -> _Word | None:
    for kind in INNER:
        inner = call.get(kind)
        if isinstance(inner, dict):
            return _word(inner.get("name"))
    return None


class ObjectEnd:
    """Finds where the JSON object ends that comes piece by piece, in time linear in its text."""

    __slots__ = ("_begun", "_broken", "_depth", "_escaped", "_in_string")

    def __init__(self) -> None:
        self._begun = False
        self._broken = False  # there is more than one object, or another value
        self._depth = 0
        self._in_string = False
        self._escaped = False

    @property
    def is_over(self) -> bool:
        """True if the object is whole, and nothing but space follows it."""
        return self._begun and self._depth == 0 and not self._broken

    def feed(self, name: str, text: str) -> None:
        """Take the next piece of what a call says under a name: an ``input`` is no JSON."""
        at = 0
        self._broken = self._broken or name != "arguments"
        while at < len(text) and not self._broken:
            if self._in_string:
                at = self._of_string(text, at)
            elif self._depth:
                at = self._of_object(text, at)
            else:
                at = self._outside(text, at)

    def _outside(self, text: str, at: int) -> int:
        rest = text[at:].lstrip(SPACE)
        if not rest:
            return len(text)
        self._broken = self._begun or rest[0] != "{"
        self._begun, self._depth = True, 1
        return len(text) - len(rest) + 1

    def _of_object(self, text: str, at: int) -> int:
        mark = _MARK.search(text, at)
        if mark is None:
            return len(text)
        if mark[0] == '"':
            self._in_string = True
        else:
            self._depth += 1 if mark[0] in "{[" else -1
        return mark.end()

    def _of_string(self, text: str, at: int) -> int:
        if self._escaped:
            self._escaped = False
            return at + 1
        mark = _IN_STRING.search(text, at)
        if mark is None:
            return len(text)
        self._in_string = mark[0] != '"'
        self._escaped = self._in_string
        return mark.end()


@dataclass(slots=True)
class _Call:
    """A call; ``bare`` while it has said an empty object alone. It is ``again`` named, without an
    id, behind its end: only what follows tells whether that begins another."""

    number: int
    id: _Word | None
    name: _Word | None
    end: ObjectEnd = field(default_factory=ObjectEnd)
    begun: bool = False
    bare: bool = False
    again: bool = False


class CallNumbers:
    """Finds the number of the call that a part is of: calls are numbered as they begin. Raises
    ``ResponseTooLarge`` for too many.

    A part is of the call that was the last of its index, or that has its id. It begins another if
    it is named, with an id or a name that is not that call's; and if it is named and says something
    behind a call that is whole, or behind a part of one in the same chunk.
    """

    __slots__ = ("_by_id", "_count", "_last", "_most")

    def __init__(self, most: int = MOST_CALLS) -> None:
        self._most = most
        self._last: dict[int, _Call] = {}  # by the index of the upstream
        self._by_id: dict[tuple[int | None, _Word], _Call] = {}
        self._count = 0

    def numbered(self, call: Json, at: int, before: Collection[object], answer: object) -> Json:
        """Return a part of a call with its number as ``index``: the first with an id, the others
        without what that has said.

        It stands ``at`` a place of its chunk, ``before`` which there are parts of the calls with
        these numbers, in the ``answer`` of this id.
        """
        known, part = self._of(written_arguments(call), at, before)
        made = _without_names(part) if known.begun else named_by_us(part, answer, known.number)
        known.begun = True
        return {**made, "index": known.number}

    def renumbered(self, call: Json, at: int, before: Collection[object]) -> Json:
        """Return a part of a call with its number as ``index``, the very same one where it has
        that."""
        known, part = self._of(call, at, before)
        if part is call and known.number == call.get("index"):
            return call
        return {**part, "index": known.number}

    def _of(self, call: Json, at: int, before: Collection[object]) -> tuple[_Call, Json]:
        """Return the call that a part is of, and the part, named if it is to be."""
        index, id_ = index_of(call, at), _word(call.get("id"))
        known, text = self._known(call, index, id_), text_of_call(call)[1].strip(SPACE)
        if known is not None:
            known, call = _going_on(known, call, id_, text, known.number in before)
        if known is None:
            known = self._begun(index, call)
            known.bare = text == EMPTY
        else:
            known.bare = known.bare and not text
        if id_ is not None and known.id in (None, id_):
            known.id = id_
            self._by_id[index, id_] = self._by_id[None, id_] = known
        known.end.feed(*text_of_call(call))
        return known, call

    def _known(self, call: Json, index: int, id_: _Word | None) -> _Call | None:
        """Return the call that a part may go on with."""
        last = self._last.get(index)
        if id_ is None or (last is not None and last.id == id_):
            return last
        return self._by_id.get((None if call.get("index") is None else index, id_), last)

    def _begun(self, index: int, call: Json) -> _Call:
        if self._count >= self._most:
            raise ResponseTooLarge("The upstream sent too many tool calls.")
        made = self._last[index] = _Call(self._count, _word(call.get("id")), _name_of(call))
        self._count += 1
        return made


def _going_on(
    known: _Call, call: Json, id_: _Word | None, text: str, is_beside: bool
) -> tuple[_Call | None, Json]:
    """Return the call that a part goes on with, None where it begins another, and the part."""
    name = _name_of(call)
    if name is None:
        if not (known.again and text):
            return known, call
        return None, with_text({**call, "function": {"name": known.name}}, text_of_call(call)[1])
    if _begins(known, id_, name, text, is_beside):
        return None, call
    known.again = known.again or (id_ is None and known.end.is_over and isinstance(name, str))
    return known, call


def _without_names(call: Json) -> Json:
    """Return a part of a call that goes on without what its first part has said: some servers say
    that with each part, or give each another id."""
    kind = next((kind for kind in INNER if isinstance(call.get(kind), dict)), None)
    return {} if kind is None else {kind: {INNER[kind]: text_of_call(call)[1]}}


def _begins(known: _Call, id_: _Word | None, name: _Word, text: str, is_beside: bool) -> bool:
    """True if a named part begins another call than the one that it may go on with."""
    is_same = id_ is not None and id_ == known.id
    is_over = known.end.is_over and not (is_same and known.bare and text != EMPTY)
    if text and (is_over or (is_beside and not is_same)):
        return True
    if id_ is not None and known.id is not None:
        return not is_same
    return known.name is not None and name != known.name
