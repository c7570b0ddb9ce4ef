"""Calls about a response that its provider keeps: to read, cancel and delete it, and its question.

None of them has a body. What they show is in chat's form for the guards of answers: the items as
those of an answer are, and beside them all else that the document has. No part of it is the
question of the call, so nothing is left out as repeated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import ClassVar, NamedTuple

from proxy.dialects.documents import Document, Documents, GatheredDocument
from proxy.dialects.pieces import dump
from proxy.dialects.reading import Seal
from proxy.dialects.responses.reading import member
from proxy.dialects.responses.writing import choice_of
from proxy.errors import BadField, UpstreamInvalid
from proxy.meter import answer_quarters
from proxy.offload import LARGE_BYTES
from proxy.types import Call, Chunk, Json, RequestHead, Untouched

INPUT_ITEMS, CANCEL = "/input_items", "/cancel"
MOST_INCLUDED = 16
NOT_STREAMED = "streaming is not supported for stored responses"


HEAD = ("id", "object", "model")
"""The names of a document, which stand where an answer has them."""


class StoredKind(NamedTuple):
    """What a call about a response is answered with: a document that has this list or, without one,
    that says ``deleted``. ``suffix`` ends the path."""

    suffix: str
    listed: str | None


LIST, DELETED = StoredKind(INPUT_ITEMS, "data"), StoredKind("", None)


def kind_of(head: RequestHead) -> StoredKind:
    """Return what a call wants of a response, by its method and its path."""
    if head.route.endswith(INPUT_ITEMS):
        return LIST
    if head.route.endswith(CANCEL):
        return StoredKind(CANCEL, "output")
    return DELETED if head.method == "DELETE" else StoredKind("", "output")


ASKED: Mapping[str, tuple[re.Pattern[str], str]] = {
    "after": (re.compile(r"[A-Za-z0-9._:=-]{1,256}"), "the id of an item"),
    "include": (
        re.compile(r"[a-z_.]{1,64}"),
        "the path of a field, such as message.output_text.logprobs",
    ),
    "limit": (re.compile(r"[1-9][0-9]?|100"), "an integer between 1 and 100"),
    "order": (re.compile(r"asc|desc"), "one of asc, desc"),
}
"""Query parameters of a response or its items: the pattern of a value, and its description."""
OF_STREAMS: Mapping[str, str] = {"stream": "false", "include_obfuscation": "", "starting_after": ""}
"""What is for streams alone, and the one word of it that asks for none."""


def asked_of(head: RequestHead) -> list[tuple[str, str]]:
    """Return what the query of a call asks, as its upstream is asked. Raises ``BadField``."""
    asked: list[tuple[str, str]] = []
    for written, value in head.parameters:
        name = written.removesuffix("[]")
        if name in OF_STREAMS and value not in (OF_STREAMS[name], "false"):
            raise BadField(name, NOT_STREAMED)
        if name not in ASKED:
            continue
        pattern, expected = ASKED[name]
        if pattern.fullmatch(value) is None:
            raise BadField(name, f"must be {expected}")
        if name != "include" and any(known == name for known, _ in asked):
            raise BadField(name, "must not be repeated")
        asked.append(("include[]" if name == "include" else name, value))
    if len(asked) > MOST_INCLUDED:
        raise BadField("include", f"must have at most {MOST_INCLUDED} items")
    return asked


class StoredReader:
    """One document about what is kept, with the ids that its client gets. ``in_chat`` puts it into
    chat's form, ``limit`` bounds its bytes."""

    __slots__ = ("_documents", "_in_chat", "_leg", "_seal", "_taken", "close", "feed")
    holds: ClassVar[bool] = True

    def __init__(
        self,
        leg: int,
        in_chat: Callable[[Json], Json],
        documents: Documents,
        *,
        limit: int,
        seal: Seal | None,
    ) -> None:
        self._leg = leg
        self._in_chat = in_chat
        self._documents = documents
        self._seal = seal
        body = GatheredDocument(limit)
        self.feed, self.close, self._taken = body.feed, body.close, body.taken

    def read(self, document: Document) -> list[Chunk]:
        whole = self._taken(document)
        data = self._documents.read(whole)
        sealed = None if self._seal is None else self._seal(data)
        if sealed is not None:
            data, whole = sealed, dump(sealed, len(whole))
        read = self._in_chat(data)
        size = len(whole)
        if size <= LARGE_BYTES:
            return [Chunk(read, Untouched(whole), self._leg, last=True)]
        quarters = answer_quarters(read)
        raw = Untouched(whole)
        return [Chunk(read, raw, leg=self._leg, last=True, size=size, quarters=quarters)]

    def end(self) -> list[Chunk]:
        return []


def in_chat(document: Json, kind: StoredKind) -> Json:
    """Return a document in chat's form. Raises ``UpstreamInvalid`` for one of another kind."""
    listed = kind.listed
    items = [] if listed is None else document.get(listed)
    if listed is None and document.get("deleted") is not True:
        raise UpstreamInvalid("The upstream did not confirm the deletion.")
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise UpstreamInvalid(f"The upstream's response lacks the field {listed}.")
    return in_chat_of(items, {name: each for name, each in document.items() if name != listed})


def in_chat_of(items: list[Json], document: Json) -> Json:
    """Return items as what an answer says, with all else that a document has beside them."""
    rest = {name: value for name, value in document.items() if name not in HEAD}
    words = {"role": "assistant", "content": items}
    head = {name: document[name] for name in HEAD if name in document}
    return {**head, "choices": [{"index": 0, "message": words, "rest": rest}]}


def whole_stored(call: Call, parts: Mapping[int, Json]) -> Json:
    """Return a document about a response as its upstream has it, but for what guards changed."""
    return whole_of(parts[0], kind_of(call.head).listed)


def whole_of(data: Json, listed: str | None) -> Json:
    """Return a document in chat's form as its upstream has it, with what it lists."""
    choice = choice_of(data)
    rest = {name: data[name] for name in HEAD if name in data} | member(choice.get("rest"))
    if listed is None:
        return rest
    return {**rest, listed: member(choice.get("message")).get("content")}
