"""The stream of a chat for a client of another form: one thing after the other.

A chat's chunks may say anything in any turn: a text, thoughts, calls of tools. Messages has a block
for each and Responses an item, so that what is held of one leaves before the next begins. A value
in the arguments of a call would leave in halves where calls take turns. So what follows a call
waits until its JSON object is whole, or until the choice has finished. What waits is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from proxy.dialects.base import OrderedEvent
from proxy.dialects.waiting import (
    MOST_EVENTS,
    NONE_OPEN,
    JoinedDelta,
    WaitingQueues,
    WaitingRoom,
)
from proxy.errors import AnswerTooLarge, UpstreamInvalid
from proxy.index import index_of
from proxy.types import Json

_SPACE = " \t\r\n"
_MARK = re.compile(r'["{}\[\]]')
_IN_STRING = re.compile(r'["\\]')
_TEXTS = ("reasoning_content", "content", "refusal")
_APART = frozenset({*_TEXTS, "block", "reasoning", "tool_calls"})
"""The members of a delta that say something, and ``block``, which only we may write."""
_INNER: Mapping[str, str] = {"function": "arguments", "custom": "input"}

Key = str | int
"""What a part of a chunk is of: a kind of text, or the number of a call."""
Thing = tuple[Key, Json]
"""A part of a chunk: of what it is, and the delta that says it alone."""


class ChatOrder:
    """Feed it the chunks of one stream; it returns those whose turn it is, each of one thing, with
    a mark where another begins. Raises ``AnswerTooLarge`` where too much waits, and
    ``UpstreamInvalid`` where a call goes on that is over.

    Without ``waits`` things come in sequence. Where refusals are not ``apart``, they are said where
    the text is.
    """

    __slots__ = ("_apart", "_calls", "_count", "_end", "_now", "_over", "_queues", "_waits")

    def __init__(self, *, waits: bool, apart: bool) -> None:
        self._waits = waits
        self._apart = apart
        self._queues = WaitingQueues[Key](WaitingRoom(), _with_text)
        self._now: Key | None = None  # what was said last
        self._end = ObjectEnd()  # of the call that was
        self._calls: dict[int, int] = {}  # the numbers of calls, by those of the upstream
        self._count = 0  # of calls
        self._over: set[Key] = set()  # calls that others have followed

    def feed(self, data: Json, size: int) -> list[Json]:
        """Take the next chunk, of ``size`` bytes, and return those that follow now."""
        choice = _choice(data)
        if not choice:
            return [data]
        delta = choice.get("delta")
        delta = delta if isinstance(delta, dict) else {}
        is_end = choice.get("finish_reason") is not None
        if is_end or data.get("usage") is not None:
            out = self._of_things(data, choice, self._things(delta), size)
            out += self.left() if is_end else ()
            beside = {} if out else _beside(delta)
            return [*out, _with_delta(data, {**choice, "logprobs": None}, beside)]
        if self._now == "content" and len(delta) == 1 and delta.get("content"):
            return [data]  # as nearly always
        things = self._things(delta)
        if things:
            return self._of_things(data, choice, things, size)
        return [_with_delta(data, choice, _beside(delta)) if "block" in delta else data]

    def _of_things(
        self, data: Json, choice: Json, things: Sequence[Thing], size: int
    ) -> list[Json]:
        """Return the chunks that follow of what a chunk says, which may be none."""
        return [
            chunk
            for key, each in _parted(data, choice, things)
            for chunk in self._following(key, each, size)
        ]

    def left(self) -> list[Json]:
        """Return all that waits: the choice has finished, or the stream has ended."""
        queues = self._queues
        queues.open = NONE_OPEN
        out: list[Json] = []
        while queues:
            out += self._released()
            queues.open = NONE_OPEN
        return out

    def _following(self, key: Key, data: Json, size: int) -> Iterator[Json]:
        """Return the chunks that a chunk of one thing lets follow, one after the other: thousands
        may wait."""
        yield from self._of(key, data, size)
        while self._queues and self._queues.open is NONE_OPEN:
            yield from self._released()

    def _released(self) -> Iterator[Json]:
        key, events = self._queues.next()
        for event in events:
            yield from self._of(key, event.event, event.size)

    def _things(self, delta: Json) -> list[Thing]:
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
        for at, call in enumerate(calls if isinstance(calls, list) else ()):
            if isinstance(call, dict):
                number = self._number(index_of(call, at), call, {key for key, _ in things})
                things.append((number, {"tool_calls": [{**call, "index": number}]}))
        return things

    def _number(self, index: int, call: Json, before: Collection[Key]) -> int:
        """Return the number of a call, ``before`` which others are in its chunk: some servers give
        each call the index 0, and a call that is named anew behind a whole one is another."""
        number = self._calls.get(index)
        if number is None or ((number in before or self._is_whole(number)) and _is_named(call)):
            number = self._calls[index] = self._count
            self._count += 1
        if number >= MOST_EVENTS:
            raise AnswerTooLarge("The upstream sent too many calls of tools.")
        return number

    def _is_whole(self, number: int) -> bool:
        return number in self._over or (number == self._now and self._end.is_over)

    def _of(self, key: Key, data: Json, size: int) -> Iterator[Json]:
        """Return a chunk of one thing if its turn is now."""
        queues = self._queues
        if not queues.is_free(key):
            queues.put(key, OrderedEvent(data, None, size), _delta_of(data))
            return
        if key in self._over:
            if _text_of(data)[1].strip(_SPACE):
                raise UpstreamInvalid("The upstream sent more of a call that was over.")
            return
        yield self._marked(key, data)
        if not self._waits or not isinstance(key, int):
            return
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
        rest = text[at:].lstrip(_SPACE)
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
    beside them goes first, log-probs with the text; the end and what was used stay behind."""
    delta = choice.get("delta")
    delta = delta if isinstance(delta, dict) else {}
    beside = _beside(delta)
    bare = {**choice, "finish_reason": None}
    is_whole = bare == choice and data.get("usage") is None and len(things) == 1
    for key, part in things:
        if is_whole and part == {name: delta[name] for name in _APART & delta.keys()}:
            yield key, data
            return
        listed = choice.get("logprobs") if "content" in part else None
        alone = _with_delta(data, {**bare, "logprobs": listed}, {**beside, **part})
        yield key, {name: value for name, value in alone.items() if name != "usage"}
        beside = {}


def _text_of(data: Json) -> tuple[str, str]:
    """Return what a chunk of one thing says, after the name under which it says it."""
    delta = _choice(data)["delta"]
    calls = delta.get("tool_calls")
    if not calls:
        return next((name, delta[name]) for name in _TEXTS if delta.get(name))
    for kind, name in _INNER.items():
        inner: Any = calls[0].get(kind)
        if isinstance(inner, dict):
            text = inner.get(name)
            return name, text if isinstance(text, str) else ""
    return "arguments", ""


def _delta_of(data: Json) -> JoinedDelta | None:
    """Return what a chunk of one thing says that may be joined with more of that."""
    choice = _choice(data)
    if choice.get("logprobs"):
        return None
    delta = choice["delta"]
    name, text = _text_of(data)
    call = delta["tool_calls"][0] if delta.get("tool_calls") else {}
    return JoinedDelta((name, _named(call)), text)


def _is_named(call: Json) -> bool:
    """True if a part of a call says its name, and something of its text."""
    for kind, name in _INNER.items():
        inner = call.get(kind)
        if isinstance(inner, dict) and inner.get("name"):
            text = inner.get(name)
            return isinstance(text, str) and bool(text.strip(_SPACE))
    return False


def _named(call: Json) -> tuple[object, ...]:
    """Return what a part of a call says beside its text: only what says the same is joined."""
    kinds = [(kind, call[kind].get("name")) for kind in _INNER if isinstance(call.get(kind), dict)]
    return call.get("id"), *kinds


def _with_text(data: Json, text: str) -> Json:
    choice = _choice(data)
    delta = choice["delta"]
    name, _ = _text_of(data)
    if name in _TEXTS:
        return _with_delta(data, choice, {**delta, name: text})
    call = delta["tool_calls"][0]
    kind = next((kind for kind in _INNER if isinstance(call.get(kind), dict)), "function")
    called = {**call, kind: {**(call.get(kind) or {}), name: text}}
    return _with_delta(data, choice, {**delta, "tool_calls": [called]})
