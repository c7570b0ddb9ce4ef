"""Calls about a response that its provider keeps: to read, cancel and delete it, and its question.

None of them has a body. Guards of answers read the whole document: no part of it repeats the
request of the call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from proxy.dialects.document import Content
from proxy.dialects.responses.usage import chat_usage
from proxy.errors import InvalidField, UpstreamInvalid
from proxy.money.estimate import value_quarters
from proxy.money.usage import read_usage
from proxy.types import Json, RequestHead
from proxy.types.events import UsageReport

INPUT_ITEMS, CANCEL = "/input_items", "/cancel"
MOST_INCLUDED = 16
NOT_STREAMED = "streaming is not supported for stored responses"


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
    """Return what the query of a call asks, as its upstream is asked. Raises ``InvalidField``."""
    asked: list[tuple[str, str]] = []
    for written, value in head.parameters:
        name = written.removesuffix("[]")
        if name in OF_STREAMS and value not in (OF_STREAMS[name], "false"):
            raise InvalidField(name, NOT_STREAMED)
        if name not in ASKED:
            continue
        pattern, expected = ASKED[name]
        if pattern.fullmatch(value) is None:
            raise InvalidField(name, f"must be {expected}")
        if name != "include" and any(known == name for known, _ in asked):
            raise InvalidField(name, "must not be repeated")
        asked.append(("include[]" if name == "include" else name, value))
    if len(asked) > MOST_INCLUDED:
        raise InvalidField("include", f"must have at most {MOST_INCLUDED} items")
    return asked


def read_stored(doc: Json, head: RequestHead) -> Content:
    """Read what a call about a response returns. Raises `UpstreamInvalid` for a document of another
    kind. The estimate of the output is used if the provider does not report the usage."""
    listed = check_kind(doc, kind_of(head))
    usage = chat_usage(doc) if listed == "output" else None
    report = None if usage is None else UsageReport(read_usage(usage), doc["usage"])
    return Content(report, value_quarters(doc[listed]) if listed else None)


def check_kind(doc: Json, kind: StoredKind) -> str | None:
    """Return the name of the list that a document has. Raises `UpstreamInvalid` for a document of
    another kind."""
    listed = kind.listed
    if listed is None:
        if doc.get("deleted") is not True:
            raise UpstreamInvalid("The upstream did not confirm the deletion.")
        return None
    items = doc.get(listed)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise UpstreamInvalid(f"The upstream's response lacks the field {listed}.")
    return listed
