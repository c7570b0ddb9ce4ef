"""The stream of a chat for a client of another form: one thing after the other.

A chat's chunks may say anything in any turn: a text, thoughts, calls of tools. Messages has a block
for each and Responses an item, so that what is held of one leaves before the next begins. A value
in the arguments of a call would leave in halves where calls take turns. So what follows a call
waits until its JSON object is whole, or until the choice has finished. What waits is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from proxy.dialects.base import OrderedEvent
from proxy.dialects.call_numbers import (
    EMPTY,
    INNER,
    SPACE,
    CallNumbers,
    ObjectEnd,
    text_of_call,
    with_text,
)
from proxy.dialects.pieces import dump
from proxy.dialects.waiting import NONE_OPEN, JoinedDelta, WaitingQueues, WaitingRoom
from proxy.errors import UpstreamInvalid
from proxy.types import Json

_TEXTS = ("reasoning_content", "content", "refusal")
_APART = frozenset({*_TEXTS, "block", "reasoning", "tool_calls"})
"""The members of a delta that say something, and ``block``, which only we may write."""

_HEAD = ("id", "object", "created", "model")

Key = str | int
"""What a part of a chunk is of: a kind of text, or the number of a call."""
Thing = tuple[Key, Json]
"""A part of a chunk: of what it is, and the delta that says it alone."""


class DocumentSize(NamedTuple):
    """How much came: a document of ``size`` bytes, which said one thing or ``many``."""

    size: int
    many: bool = False

    def weight(self, data: Json) -> int:
        """Return about how many bytes the chunk of one thing keeps while it waits."""
        return len(dump(data, self.size)) if self.many else self.size


class ChatOrder:
    """Feed it the chunks of one stream; it returns those whose turn it is, each of one thing, with
    a mark where another begins. Raises ``AnswerTooLarge`` where too much waits, and
    ``UpstreamInvalid`` where a call goes on that is over.

    Without ``waits`` things come in sequence. Where refusals are not ``apart``, they are said where
    the text is.

    A call that begins with an empty object for its arguments may say them later: some servers put
    it in their place. So it is held back until something else than a call follows, or the end.
    """

    __slots__ = ("_apart", "_end", "_held", "_now", "_numbers", "_over", "_queues", "_waits")

    def __init__(self, *, waits: bool, apart: bool) -> None:
        self._waits = waits
        self._apart = apart
        self._queues = WaitingQueues[Key](WaitingRoom(), _with_text)
        self._now: Key | None = None  # what was said last
        self._end = ObjectEnd()  # of the call that was
        self._held: Json | None = None  # the empty object of that
        self._numbers = CallNumbers()
        self._over: set[Key] = set()  # calls that others have followed

    def feed(self, data: Json, size: int) -> list[Json]:
        """Take the next chunk, of ``size`` bytes, and return those that follow now."""
        choice = _choice(data)
        if not choice:
            return [data]
        delta = choice.get("delta")
        delta = delta if isinstance(delta, dict) else {}
        is_end = bool(choice.get("finish_reason"))
        if is_end or data.get("usage") is not None:
            out = self._of_things(data, choice, self._things(delta, data), size)
            out += self.left() if is_end else ()
            beside = {} if out else _beside(delta)
            return [*out, _with_delta(data, {**choice, "logprobs": None}, beside)]
        if self._now == "content" and len(delta) == 1 and delta.get("content"):
            return [data]  # as nearly always
        things = self._things(delta, data)
        if things:
            return self._of_things(data, choice, things, size)
        return [_with_delta(data, choice, _beside(delta)) if "block" in delta else data]

    def _of_things(
        self, data: Json, choice: Json, things: Sequence[Thing], size: int
    ) -> list[Json]:
        """Return the chunks that follow of what a chunk says, which may be none."""
        document = DocumentSize(size, many=len(things) > 1)
        return [
            chunk
            for key, each in _parted(data, choice, things)
            for chunk in self._following(key, each, document)
        ]

    def left(self) -> list[Json]:
        """Return all that waits: the choice has finished, or the stream has ended."""
        queues = self._queues
        out = self._let_go()
        while queues:
            queues.open = NONE_OPEN
            out += [*self._released(), *self._let_go()]
        queues.open = NONE_OPEN
        return out

    def _following(self, key: Key, data: Json, document: DocumentSize) -> Iterator[Json]:
        """Return the chunks that a chunk of one thing lets follow, one after the other: thousands
        may wait."""
        while self._held is not None and isinstance(key, str):
            yield from self._let_go()
            yield from self._freed()
        yield from self._of(key, data, document)
        yield from self._freed()

    def _freed(self) -> Iterator[Json]:
        while self._queues and self._queues.open is NONE_OPEN:
            yield from self._released()

    def _released(self) -> Iterator[Json]:
        key, events = self._queues.next()
        for event in events:
            yield from self._of(key, event.event, DocumentSize(event.size))

    def _things(self, delta: Json, data: Json) -> list[Thing]:
        """Return what a delta says, in the order in which a chat's message has it."""
        things: list[Thing] = []
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if thought and isinstance(thought, str):
            things.append(("thinking", {"reasoning_content": thought}))
        for name in ("content", "refusal"):
            text = delta.get(name)
            if text and isinstance(text, str):
                member = name if self._apart else "content"
                things.append((member, {member: text}))
        calls = delta.get("tool_calls")
        before: set[object] = set()
        for at, call in enumerate(calls if isinstance(calls, list) else ()):
            if isinstance(call, dict):
                numbered = self._numbers.numbered(call, at, before, data.get("id"))
                before.add(numbered["index"])
                things.append((numbered["index"], {"tool_calls": [numbered]}))
        return things

    def _of(self, key: Key, data: Json, document: DocumentSize) -> Iterator[Json]:
        """Return a chunk of one thing if its turn is now."""
        queues = self._queues
        if not queues.is_free(key):
            queues.put(key, OrderedEvent(data, None, document.weight(data)), _delta_of(data))
            return
        if key in self._over:
            if _text_of(data)[1].strip(SPACE):
                raise UpstreamInvalid("The upstream continued a tool call that had ended.")
            return
        begins = key != self._now
        data = self._marked(key, data)
        if not self._waits or not isinstance(key, int):
            yield data
            return
        data = self._without_held(data, begins=begins)
        yield data
        self._end.feed(*_text_of(data))
        queues.open = NONE_OPEN if self._end.is_over else key

    def _marked(self, key: Key, data: Json) -> Json:
        """Return a chunk, with a mark where a block begins."""
        if key == self._now:
            return data
        if self._waits and isinstance(self._now, int):
            self._over.add(self._now)
        self._now, self._end = key, ObjectEnd()
        choice = _choice(data)
        return _with_delta(data, choice, {**choice["delta"], "block": {"start": {}}})

    def _without_held(self, data: Json, *, begins: bool) -> Json:
        """Return a chunk of the call that is now without an empty object that is held back."""
        text = _text_of(data)[1]
        if begins and _is_empty_object(data):
            self._held = _held_back(data, text)
            return _with_text(data, "")
        if self._held is None or not text.strip(SPACE):
            return data
        held, self._held = self._held, None
        if text.lstrip(SPACE).startswith("{"):  # these are the arguments
            return data
        return _with_text(data, _text_of(held)[1] + text)

    def _let_go(self) -> list[Json]:
        """Return what is held back of the call that is now: nothing has followed in its place."""
        if self._held is None:
            return []
        held, self._held = self._held, None
        self._end.feed(*_text_of(held))
        self._queues.open = NONE_OPEN
        return [held]


def _choice(data: Json) -> Json:
    """Return the only choice of a chunk; an empty one where there is none."""
    choices = data.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else {}


def _beside(delta: Json) -> Json:
    """Return what a delta has beside what it says."""
    return {name: value for name, value in delta.items() if name not in _APART}


def _with_delta(data: Json, choice: Json, delta: Json) -> Json:
    return {**data, "choices": [{**choice, "delta": delta}]}


def _parted(data: Json, choice: Json, things: Sequence[Thing]) -> Iterator[tuple[Key, Json]]:
    """Return each thing with a chunk that says it alone, the very same one where it does. What is
    beside them goes with the first, log-probs with the text; the end and what was used stay
    behind."""
    delta = choice.get("delta")
    delta = delta if isinstance(delta, dict) else {}
    beside = _beside(delta)
    bare = {**choice, "finish_reason": None}
    is_whole = bare == choice and data.get("usage") is None and len(things) == 1
    for key, part in things:
        if is_whole and _says(delta, key, part):
            yield key, data
            return
        listed = choice.get("logprobs") if "content" in part else None
        alone = _with_delta(data, {**bare, "logprobs": listed}, {**beside, **part})
        yield key, {name: value for name, value in alone.items() if name != "usage"}
        data, bare, beside = _head(data), _bare(choice), {}


def _says(delta: Json, key: Key, part: Json) -> bool:
    """True if a delta says a part alone, and a call under its number: 0.0 and False equal it."""
    if part != {name: delta[name] for name in _APART & delta.keys()}:
        return False
    return isinstance(key, str) or type(delta["tool_calls"][0]["index"]) is int


def _head(data: Json) -> Json:
    """Return what each chunk of an answer has."""
    return {name: data[name] for name in _HEAD if name in data}


def _bare(choice: Json) -> Json:
    return {"index": choice.get("index", 0), "finish_reason": None}


def _text_of(data: Json) -> tuple[str, str]:
    """Return what a chunk of one thing says, after the name under which it says it."""
    delta = _choice(data)["delta"]
    calls = delta.get("tool_calls")
    if calls:
        return text_of_call(calls[0])
    return next((name, delta[name]) for name in _TEXTS if delta.get(name))


def _delta_of(data: Json) -> JoinedDelta | None:
    """Return what a chunk of one thing says that may be joined with more of that."""
    choice = _choice(data)
    if choice.get("logprobs"):
        return None
    delta = choice["delta"]
    name, text = _text_of(data)
    call = delta["tool_calls"][0] if delta.get("tool_calls") else {}
    return JoinedDelta((name, _named(call)), text)


def _named(call: Json) -> tuple[object, ...]:
    """Return what a part of a call says beside its text: only what says the same is joined."""
    kinds = [(kind, call[kind].get("name")) for kind in INNER if isinstance(call.get(kind), dict)]
    return call.get("id"), *kinds


def _is_empty_object(data: Json) -> bool:
    """True if a named part of a call says an empty object for its arguments."""
    function = _choice(data)["delta"]["tool_calls"][0].get("function")
    if not isinstance(function, dict) or not function.get("name"):
        return False
    text = function.get("arguments")
    return isinstance(text, str) and text.strip(SPACE) == EMPTY


def _held_back(data: Json, text: str) -> Json:
    """Return a chunk that says a text of the call of another chunk, and nothing else."""
    choice = _choice(data)
    number = choice["delta"]["tool_calls"][0]["index"]
    call = {"index": number, "function": {"arguments": text}}
    return _with_delta(_head(data), _bare(choice), {"tool_calls": [call]})


def _with_text(data: Json, text: str) -> Json:
    choice = _choice(data)
    delta = choice["delta"]
    name, _ = _text_of(data)
    if name in _TEXTS:
        return _with_delta(data, choice, {**delta, name: text})
    return _with_delta(
        data, choice, {**delta, "tool_calls": [with_text(delta["tool_calls"][0], text)]}
    )
