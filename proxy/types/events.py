"""Events of a response: the form that all API families share between upstream and client.

A reader turns each wire event of an upstream into a ``Frame``, a writer turns frames into bytes for
a client. Guards, meter, cache and record read the events and know no wire format.

A response consists of parts: a run of text, a tool call, or an opaque item. The order of events:

- ``ResponseStart`` is first, once for each model call.
- ``PartStart`` opens a new part. Its parent is open and its choice has not finished.
- ``Delta`` and ``Attach`` refer to an open part.
- ``PartEnd`` closes a part for good. None of its children is open.
- ``UsageReport`` follows ``ResponseStart``, anywhere in a frame. Counts are cumulative: the last
  event is the valid one.
- ``Finish`` occurs once for each choice. It closes the open parts of the choice that have no end
  marker on the wire. No part with an end marker is open.
- ``ResponseEnd`` is last, once. Every choice that began has finished.

``tests/checked.py`` implements these rules.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from proxy.money.usage import Tokens

MAX_INDEX_CHARS = 1024  # characters of a number that is written as a string
Json = dict[str, Any]
Slot = tuple[str | int, ...]
"""Path of a text in the document of its frame. Only the family of the frame interprets it. An empty
slot means that a later frame repeats the text, and the writer inserts it there."""
FamilyName = str
"""Name of an API family in ``proxy.dialects.families``, "" for a frame without a document."""
Kind = Literal[
    "text",
    "reasoning",
    "summary",  # of reasoning
    "refusal",
    "arguments",  # of a function call, JSON
    "input",  # of a custom tool call, free text
    "server_arguments",  # of a tool that the provider calls, JSON
    "code",  # code that the provider runs
    "audio",  # transcript of audio
    "item",  # a container of other parts, without a text of its own
    "opaque",  # anything else
]
VISIBLE_KINDS: Final[frozenset[Kind]] = frozenset({"text", "reasoning", "summary", "refusal"})
"""Kinds of text that an application shows to people."""
TOOL_CALL_KINDS: Final[frozenset[Kind]] = frozenset({"arguments", "input"})
"""Kinds of text of a tool call."""
Closing = Literal[
    "marked",  # an event of the wire ends the part
    "implicit",  # the part ends where another one begins
    "json",  # the part ends with the JSON object that its text forms
]
AttachName = Literal["signature", "encrypted", "citation", "logprobs", "audio"]
FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "other"]


class ToolCall(NamedTuple):
    """Identity of a tool call. ``id`` is empty if the upstream omits it."""

    id: str
    name: str
    type: Literal["function", "custom"] = "function"


@dataclass(slots=True, eq=False)
class Part:
    """A run of text or an opaque item of a response. Parts compare by identity.

    - ``number``: position among the parts of the choice, or among the children of ``parent``.
    - ``id``: identifier on the wire, if any.
    - ``continues``: the ended part that this one continues.
    """

    kind: Kind
    number: int
    choice: int = field(default=0, kw_only=True)
    closing: Closing = field(default="marked", kw_only=True, repr=False)
    parent: Part | None = field(default=None, kw_only=True, repr=False)
    id: str = field(default="", kw_only=True, repr=False)
    continues: Part | None = field(default=None, kw_only=True, repr=False)


class ResponseStart(NamedTuple):
    """The response of a model call begins. ``created`` is in seconds since the epoch."""

    id: str | None
    model: str | None
    created: int | None


class PartStart(NamedTuple):
    """A part begins. ``slot`` is the path of the tool name if the part is a tool call."""

    part: Part
    call: ToolCall | None = None
    slot: Slot = ()


class Delta(NamedTuple):
    """A piece of the text of a part."""

    part: Part
    text: str
    slot: Slot = ()


class Attach(NamedTuple):
    """A value that belongs to a part but is not its text."""

    part: Part
    name: AttachName
    value: Any
    slot: Slot = ()


class PartEnd(NamedTuple):
    """A part is complete."""

    part: Part


class UsageReport(NamedTuple):
    """Tokens used so far.

    ``tokens`` is None if the upstream reported an invalid value. ``native`` is the upstream's
    object. ``final`` is True if no later event corrects it.
    """

    tokens: Tokens | None
    native: Json
    final: bool = True


class Finish(NamedTuple):
    """A choice is complete. ``native`` is the upstream's reason."""

    choice: int
    reason: FinishReason
    native: str | None = None


class Extension(NamedTuple):
    """A declared member of a vendor, such as the verdicts of the vendor's guards."""

    name: str
    value: Any
    choice: int | None = None


class Unmapped(NamedTuple):
    """The document of the frame has members without an event.

    Guards inspect the whole document as JSON, except the texts of its deltas and the texts at
    ``repeats``, which deltas of other frames carry. ``part`` is the part it belongs to, if any.
    """

    part: Part | None = None
    repeats: tuple[Slot, ...] = ()


class Fault(NamedTuple):
    """One model call of several has failed. Its error replaces its response."""

    message: str
    code: str


class ResponseEnd(NamedTuple):
    """The response of a model call is complete."""


RESPONSE_END: Final = ResponseEnd()
Event = (
    ResponseStart
    | PartStart
    | Delta
    | Attach
    | PartEnd
    | UsageReport
    | Finish
    | Extension
    | Unmapped
    | Fault
    | ResponseEnd
)


class Frame(NamedTuple):
    """One wire event, or a whole response.

    - ``events``: empty for a keep-alive.
    - ``doc``: the parsed document in the API of ``family``. Frames made by a stage have none.
    - ``raw``: the bytes of ``doc`` as received. They are sent unchanged to a client of the same
      family. An edit removes them. Bytes without a document belong to a passthrough response that
      is not JSON.
    - ``model_call``: index of the model call in the plan.
    - ``size``: size of the source in bytes if it is above ``LARGE_BYTES``, otherwise 0.
    - ``quarters``: estimated output of a large frame, in quarters of a token.
    - ``last``: True for the last frame of all model calls.
    """

    events: tuple[Event, ...]
    family: FamilyName = ""
    doc: Json | None = None
    raw: bytes | None = None
    model_call: int = 0
    size: int = 0
    last: bool = False
    quarters: int | None = None


def has_response_start(frame: Frame) -> bool:
    """Return True if a response begins in the frame."""
    return any(type(event) is ResponseStart for event in frame.events)


def replace_only_delta_text(frame: Frame, text: str) -> Frame:
    """Return a frame with another text in its only delta and in its document."""
    doc, events = frame.doc, list(frame.events)
    for index, event in enumerate(events):
        if type(event) is Delta:
            events[index] = Delta(event.part, text, event.slot)
            if doc is not None and event.slot:
                doc = replace_at_slot(doc, event.slot, text)
    return frame._replace(events=tuple(events), doc=doc, raw=None)


def replace_at_slot(doc: Json, slot: Slot, value: Any) -> Json:
    """Return a copy of a document with another value at a path."""
    root: Json = dict(doc)
    node: Any = root
    for step in slot[:-1]:
        node[step] = node[step].copy()
        node = node[step]
    node[slot[-1]] = value
    return root


def get_index(item: object, position: int) -> int:
    """Return an item's ``index`` as an integer, or its ``position`` if it has none. Never raises.

    Numeric strings are parsed. Any other value is hashed, so that all stages join the deltas of
    an item by the same number.
    """
    index = item.get("index") if isinstance(item, dict) else None
    if index is None:
        return position
    if isinstance(index, str):
        return _parse_index_or_hash(index.strip()) if len(index) <= MAX_INDEX_CHARS else hash(index)
    if isinstance(index, int | float):
        return int(index) if isinstance(index, int) or index.is_integer() else hash(str(index))
    return hash(type(index).__name__)


def _parse_index_or_hash(text: str) -> int:
    for read in (int, float, lambda digits: int(digits, 0)):
        try:
            number = read(text)
        except ValueError:
            continue
        if number == number // 1:
            return int(number)
    return hash(text)
