"""What an API family is: how its answers are read into frames, and written for its clients.

A family is a wire format that several vendors share: chat, legacy completions, Messages or
Responses. What a vendor changes of it stays with the vendor (`proxy.dialects.base`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from proxy.runtime.frozen import frozen
from proxy.types import Call, Json
from proxy.types.events import FamilyName, Frame
from proxy.types.guard import GuardResults


@frozen
class ReadOptions:
    """How one answer is read.

    `whole`: the document is a whole answer, which becomes one frame. `stream`: it becomes the
    frames of a stream instead, because the client asked for one. `inspect`: guards read the
    answer, so each frame has at most one delta and members without a type yield `Native`.
    `crossing`: the client gets the events and not the documents, so each frame has one delta at
    most. `call` is the call that is answered. `finishes` are finish reasons that only the
    upstream's vendor uses, with their words in chat.
    """

    call: Call
    whole: bool = False
    stream: bool = False
    inspect: bool = False
    crossing: bool = False
    model_call: int = 0
    finishes: tuple[tuple[str, str], ...] = ()

    @property
    def split(self) -> bool:
        """True if a frame must not have more than one delta."""
        return self.inspect or self.crossing


class FamilyReader(Protocol):
    """Reads the documents of one answer."""

    def read(self, doc: Json, raw: bytes) -> Sequence[Frame]:
        """Return the frames of a document. `raw` are its bytes, without those of the transport.

        Raises `UpstreamInvalid` for a document that breaks the order of events, and
        `AnswerTooLarge` above a bound. The document may be part of the frames: nobody changes it.
        """
        ...

    def end(self, *, done: bool = False) -> Sequence[Frame]:
        """Return the frames that remain at the end of the bytes, the last one with `Stop`.

        `done`: a stream has ended with `[DONE]`, which completes a chat without a finish reason.
        Raises `UpstreamInvalid` if the answer is not complete. It is not called after `Stop`.
        """
        ...


@frozen
class WriteOptions:
    """How an answer is written. `whole`: as one document. `verdicts` returns those of the guards
    so far. `complete`: with all that the answer has, and nothing that only one vendor adds."""

    call: Call
    whole: bool
    verdicts: Callable[[], GuardResults]
    complete: bool = False


class FamilyWriter(Protocol):
    """Writes the frames of one exchange for its client."""

    @property
    def media_type(self) -> str: ...

    def weight(self, frame: Frame) -> int:
        """Return about how many bytes it takes to write a frame."""
        ...

    def feed(self, frame: Frame) -> bytes:
        """Return the bytes to send for a frame; a frame without events is a keep-alive."""
        ...

    def fail(self, document: bytes) -> bytes:
        """Return the events that end a stream with an error. `document` is the body of an error
        response."""
        ...


class RequestToChat(Protocol):
    """Returns a request as a chat, and the names of the fields that it leaves out.

    Raises `BadField` for a part without a counterpart. `keeps_thoughts`: the upstream requires the
    reasoning of earlier turns.
    """

    def __call__(self, body: Json, *, keeps_thoughts: bool) -> tuple[Json, Collection[str]]: ...


def _nothing(body: Json) -> Collection[str]:
    return ()


@frozen
class RequestForm:
    """How requests of a family differ from a chat.

    `to_chat` and `from_chat` convert a request; `from_chat` raises `BadField` for a part without a
    counterpart. `lost` names the fields of a chat that `from_chat` omits. `tidy` runs last on a
    request that stays in the family: it gives parameters that rules have set the family's names.
    `bound` is the limit of output tokens that a request gets if it has none and the family requires
    one.
    """

    to_chat: RequestToChat
    from_chat: Callable[[Json], Json]
    tidy: Callable[[Json], Json]
    lost: Callable[[Json], Collection[str]] = _nothing
    bound: int | None = None


@frozen
class Family:
    """One API family.

    `marks_parts`: events of the wire begin and end each part, so parts that take turns must be put
    in sequence. `reader` and `writer` make those of one answer. `failure` returns the error object
    of a document that reports an error elsewhere than in `error`. `answers` is the member that each
    whole answer has, a list; "" if there is none. `done`: a stream ends with `data: [DONE]`.
    `request` is None where requests are chats or legacy completions.
    """

    name: FamilyName
    reader: Callable[[ReadOptions], FamilyReader]
    writer: Callable[[WriteOptions], FamilyWriter]
    marks_parts: bool
    answers: str = ""
    done: bool = False
    failure: Callable[[Json], Json | None] | None = None
    request: RequestForm | None = None
