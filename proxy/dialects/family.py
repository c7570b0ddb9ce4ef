"""Interfaces of an API family: a wire format that several vendors share.

The families are chat, legacy completions, Messages and Responses. `proxy.dialects.base` has what a
single vendor changes. The reader of a family declares the shape of each ordinary event, in which
ids, types and counts hold no text. Guards read the whole document of any other event.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol

from proxy.errors import UpstreamInvalid
from proxy.runtime.frozen import frozen
from proxy.types import Call, Json
from proxy.types.events import FamilyName, Frame, Kind
from proxy.types.guard import GuardResults


@frozen
class ReadOptions:
    """Options for reading one response.

    Attributes:
    - call: The call of the response.
    - whole: The document is a whole response and becomes one frame.
    - stream: The client requested a stream, so a whole response becomes the frames of one.
    - inspect: Guards read the response: members without an event yield `Native`.
    - crossing: The client gets the events but not the documents.
    - one_choice: The client asked for one choice, and gets no other from an inspected stream.
    - finishes: Finish reasons of the vendor and their equivalents in chat.
    - shown_as: The `Family.shown_as` of the client's family.

    With `inspect` or `crossing` the stream is split: a frame has at most one delta, and a frame
    with a delta has no `End`, `Finish` or `Stop`.
    """

    call: Call
    whole: bool = False
    stream: bool = False
    inspect: bool = False
    crossing: bool = False
    one_choice: bool = False
    model_call: int = 0
    finishes: tuple[tuple[str, str], ...] = ()
    shown_as: Mapping[Kind, Kind] = field(default_factory=dict)


def make_incomplete_stream_error() -> UpstreamInvalid:
    message = "The upstream ended the stream before the response was complete."
    return UpstreamInvalid(message).with_cause("closed")


class FamilyReader(Protocol):
    """Reads the documents of one response."""

    def read(self, doc: Json, raw: bytes) -> Sequence[Frame]:
        """Return the frames of a document, which may share it. `raw` are its bytes.

        Raises `UpstreamInvalid` for a document that breaks the order of events, and
        `ResponseTooLarge` above a bound.
        """
        ...

    def end(self, *, done: bool = False) -> Sequence[Frame]:
        """Return the frames at the end of the bytes, the last one with `Stop`.

        Not called after `Stop`. `done`: the stream ended with `[DONE]`, which completes a chat
        without a finish reason. Raises `UpstreamInvalid` for an incomplete response.
        """
        ...


@frozen
class WriteOptions:
    """Options for writing one response.

    Attributes:
    - whole: Write one document.
    - verdicts: Returns the guard results so far.
    - complete: Write all members except those that only one vendor adds.
    """

    call: Call
    whole: bool
    verdicts: Callable[[], GuardResults]
    complete: bool = False


class FamilyWriter(Protocol):
    """Writes the frames of one exchange for its client."""

    @property
    def media_type(self) -> str: ...

    def weight(self, frame: Frame) -> int:
        """Return the approximate number of bytes that must be serialized for a frame."""
        ...

    def feed(self, frame: Frame) -> bytes:
        """Return the bytes of a frame. A frame without events is a keep-alive."""
        ...

    def fail(self, document: bytes) -> bytes:
        """Return the events that end a stream with the body of an error response."""
        ...


class RequestToChat(Protocol):
    """Returns a request as a chat, and the names of removed fields.

    Raises `InvalidField` for a part without a counterpart. `keeps_thoughts`: the upstream requires
    the reasoning of earlier turns.
    """

    def __call__(self, body: Json, *, keeps_thoughts: bool) -> tuple[Json, Collection[str]]: ...


@frozen
class RequestForm:
    """Conversion of requests between a family and chat.

    Attributes:
        from_chat: Raises `InvalidField` for a part without a counterpart.
        tidy: Renames parameters that rules have set, in a request that stays in the family.
        lost: Returns the fields of a chat that `from_chat` leaves out.
        bound: Limit of output tokens to add if the family requires one.
    """

    to_chat: RequestToChat
    from_chat: Callable[[Json], Json]
    tidy: Callable[[Json], Json]
    lost: Callable[[Json], Collection[str]] = lambda body: ()
    bound: int | None = None


@frozen
class Family:
    """One API family.

    Attributes:
        marks_parts: Events begin and end each part, so interleaved parts must be put in sequence.
        answers: List of the choices or items in a whole response; "" if there is none.
        answers_prevail: A document with this list and an error is not a failure.
        done: Streams end with `data: [DONE]`.
        seals_ids: Responses have ids of stored objects, which are sealed for the key.
        has_vectors: Responses have long lists of numbers.
        failure: Returns the error object of a document that has it elsewhere than in `error`.
        request: None if requests are chats or legacy completions.
        shown_as: Kinds of text that clients show as another kind. Guards read both as one text.
    """

    name: FamilyName
    reader: Callable[[ReadOptions], FamilyReader]
    writer: Callable[[WriteOptions], FamilyWriter]
    marks_parts: bool
    answers: str = ""
    answers_prevail: bool = False
    done: bool = False
    seals_ids: bool = False
    has_vectors: bool = False
    failure: Callable[[Json], Json | None] | None = None
    request: RequestForm | None = None
    shown_as: Mapping[Kind, Kind] = field(default_factory=dict)


Check = Callable[[Any], bool]
Shape = Check | Mapping[str, Any]
"""A check of a value, or the shapes of the members that an object may have."""

COUNTS = frozenset(
    {"accepted_prediction_tokens", "audio_tokens", "cache_creation_input_tokens"}
    | {"cache_read_input_tokens", "cache_write_tokens", "cached_tokens", "completion_tokens"}
    | {"completion_tokens_details", "cost", "image_tokens", "input_tokens", "output_tokens"}
    | {"input_tokens_details", "output_tokens_details", "prompt_tokens", "prompt_tokens_details"}
    | {"reasoning_tokens", "rejected_prediction_tokens", "text_tokens", "total_tokens"}
)
"""Members of the usage of a chat."""


def has_shape(value: Any, shape: Shape) -> bool:
    """Return True if a value has a shape. An object needs none of the members that it may have."""
    if callable(shape):
        return shape(value)
    if value.__class__ is not dict:
        return False
    for name, member in value.items():
        inner = shape.get(name)
        if inner is None or not has_shape(member, inner):
            return False
    return True


def is_number(value: Any) -> bool:
    return value is None or value.__class__ in (int, float, bool)


def is_count_tree(value: Any, depth: int = 2) -> bool:
    """Return True for a number, and for numbers under the names of `COUNTS` in up to two levels."""
    if value.__class__ is not dict:
        return is_number(value)
    return depth > 0 and all(
        name in COUNTS and is_count_tree(part, depth - 1) for name, part in value.items()
    )


def is_text(value: Any) -> bool:
    """Return True for a string, which a typed event carries to the guards."""
    return value.__class__ is str


def is_empty(value: Any) -> bool:
    return value is None or value in ("", [], {})


def make_word_check(*words: str) -> Check:
    """Return a check for null and for fixed strings."""
    return lambda value: value is None or (value.__class__ is str and value in words)


def allow_null(shape: Shape) -> Check:
    """Return a check for null and for values of a shape."""
    return lambda value: value is None or has_shape(value, shape)
