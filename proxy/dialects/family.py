"""Interfaces of an API family: a wire format that several vendors share.

The families are chat, legacy completions, Messages and Responses. ``proxy.dialects.base`` has what
a single vendor changes. The reader of a family declares the shape of each ordinary event, in which
ids, types and counts hold no text. Guards read the whole document of any other event.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol

from proxy.errors import UpstreamInvalid
from proxy.runtime.frozen import frozen
from proxy.types import Call, Json
from proxy.types.events import Attach, AttachName, Event, FamilyName, Frame, Kind, Part
from proxy.types.guard import GuardResults


@frozen
class ReadOptions:
    """Options for reading one response.

    With ``inspect`` or ``is_translated`` the stream is split: a frame has at most one delta, and a
    frame with a delta has no ``PartEnd``, ``Finish`` or ``ResponseEnd``.
    """

    call: Call
    whole: bool = False
    """The document is a whole response and becomes one frame."""
    stream: bool = False
    """The client requested a stream, so a whole response becomes the frames of one."""
    inspect: bool = False
    """Guards read the response. Members without an event yield ``Unmapped``."""
    is_translated: bool = False
    """The client has another API family, so it gets the events but not the documents."""
    one_choice: bool = False
    """The client asked for one choice, and gets no other from an inspected stream."""
    model_call: int = 0
    finish_reasons: Mapping[str, str] = field(default_factory=dict)
    """Chat's finish reasons by those of the vendor."""
    shown_as: Mapping[Kind, Kind] = field(default_factory=dict)
    """The ``Family.shown_as`` of the client's family."""


def make_incomplete_stream_error() -> UpstreamInvalid:
    message = "The upstream ended the stream before the response was complete."
    return UpstreamInvalid(message).set_cause("closed")


class FamilyReader(Protocol):
    """Reads the documents of one response."""

    def read(self, doc: Json, raw: bytes) -> Sequence[Frame]:
        """Return the frames of a document, which may refer to ``doc``. ``raw`` are its bytes.

        Raises ``UpstreamInvalid`` for a document that breaks the order of events, and
        ``ResponseTooLarge`` above a bound.
        """
        ...

    def end(self, *, has_done_marker: bool = False) -> Sequence[Frame]:
        """Return the frames at the end of the bytes, the last one with ``ResponseEnd``.

        Not called after ``ResponseEnd``. ``has_done_marker``: the stream ended with ``[DONE]``,
        which completes a chat without a finish reason. Raises ``UpstreamInvalid`` if incomplete.
        """
        ...


@frozen
class WriteOptions:
    """Options for writing one response."""

    call: Call
    whole: bool
    """Write one document."""
    complete: bool = False
    """Write all members except those that only one vendor adds."""
    get_guard_results: Callable[[], GuardResults] = tuple
    """Returns the guard results so far."""


class FamilyWriter(Protocol):
    """Writes the frames of one exchange for its client."""

    def feed(self, frame: Frame) -> bytes:
        """Return the bytes of a frame. A frame without events is a keep-alive."""
        ...

    def encode_error(self, document: bytes) -> bytes:
        """Return the events that end a stream with the body of an error response.

        Not called for a whole response.
        """
        ...


class RequestToChat(Protocol):
    """Returns a request as a chat, and the names of removed fields.

    Raises ``InvalidField`` for a part without a counterpart. ``keeps_thoughts``: the upstream
    requires the reasoning of earlier turns.
    """

    def __call__(self, body: Json, *, keeps_thoughts: bool) -> tuple[Json, Collection[str]]: ...


@frozen
class RequestConversion:
    """Conversion of requests between a family and chat."""

    to_chat: RequestToChat
    from_chat: Callable[[Json], Json]
    """Raises ``InvalidField`` for a part without a counterpart."""
    rename_chat_fields: Callable[[Json], Json]
    """Renames fields that rules have set under chat's names, if the upstream has the family too."""
    find_lost_fields: Callable[[Json], Collection[str]] = lambda body: ()
    """Returns the fields of a chat that ``from_chat`` leaves out."""
    default_max_tokens: int | None = None
    """Output limit to add to a request without one. None if the family requires no limit."""


@frozen
class Family:
    """One API family."""

    name: FamilyName
    reader: Callable[[ReadOptions], FamilyReader]
    writer: Callable[[WriteOptions], FamilyWriter]
    has_part_events: bool
    """Events begin and end each part, so interleaved parts must be put in sequence."""
    result_list: str = ""
    """Member of a whole response with the list of its choices or items. Empty if there is none."""
    allows_error_with_results: bool = False
    """A document with an error is no failure if ``result_list`` is not empty."""
    sends_done: bool = False
    """Streams end with ``data: [DONE]``."""
    has_stored_ids: bool = False
    """Responses have ids of stored objects, which are sealed for the key."""
    has_vectors: bool = False
    """Responses have long lists of numbers."""
    find_failure: Callable[[Json], Json | None] | None = None
    """Returns the error of a document. None: errors are in the member ``error``."""
    request_conversion: RequestConversion | None = None
    """None if requests are chats or legacy completions."""
    shown_as: Mapping[Kind, Kind] = field(default_factory=dict)
    """Kinds of text that clients show as another kind. Guards read both as one text."""


def find_attached(events: Sequence[Event], part: Part, name: AttachName) -> Any:
    """Return the value of this name that is attached to a part, None without one."""
    attached = (event for event in events if type(event) is Attach and event.part is part)
    return next((event.value for event in attached if event.name == name), None)


Check = Callable[[Any], bool]
Shape = Check | Mapping[str, Any]
"""A check of a value, or the shapes of the members that an object may have."""

COUNT_NAMES = frozenset(
    {"accepted_prediction_tokens", "audio_tokens", "cache_creation_input_tokens"}
    | {"cache_read_input_tokens", "cache_write_tokens", "cached_tokens", "completion_tokens"}
    | {"completion_tokens_details", "cost", "image_tokens", "input_tokens", "output_tokens"}
    | {"input_tokens_details", "output_tokens_details", "prompt_tokens", "prompt_tokens_details"}
    | {"reasoning_tokens", "rejected_prediction_tokens", "text_tokens", "total_tokens"}
)
"""Members of the usage of a chat."""


def has_shape(value: Any, shape: Shape) -> bool:
    """Return True if a value has a shape. All members of an object's shape are optional."""
    if callable(shape):
        return shape(value)
    if value.__class__ is not dict:
        return False
    for name, member in value.items():
        inner = shape.get(name)
        if inner is None or not has_shape(member, inner):
            return False
    return True


def is_null_or_number(value: Any) -> bool:
    return value is None or value.__class__ in (int, float, bool)


def is_count_tree(value: Any, depth: int = 2) -> bool:
    """Return True for a number, or numbers named in ``COUNT_NAMES``, in up to two levels."""
    if value.__class__ is not dict:
        return is_null_or_number(value)
    if depth == 0 or not COUNT_NAMES.issuperset(value):
        return False
    return all([is_count_tree(part, depth - 1) for part in value.values()])


def is_text(value: Any) -> bool:
    """Return True for a string. In a shape, it is a text that guards read from an event."""
    return value.__class__ is str


def is_empty(value: Any) -> bool:
    return value is None or value in ("", [], {})


def make_word_check(*words: str) -> Check:
    """Return a check for null and for fixed strings."""
    return lambda value: value is None or (value.__class__ is str and value in words)


def allow_null(shape: Shape) -> Check:
    """Return a check for null and for values of a shape."""
    return lambda value: value is None or has_shape(value, shape)
