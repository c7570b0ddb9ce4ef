"""Makes documents of a chat stream from the events of frames without one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import orjson

from proxy.dialects.chat.splitting import alone
from proxy.dialects.chat.tables import INPUTS
from proxy.money.usage import COUNT_GROUPS, Tokens
from proxy.types import Json
from proxy.types.events import (
    CALLS,
    Attach,
    Begin,
    Delta,
    Event,
    Finish,
    Frame,
    Kind,
    Part,
    Slot,
    Start,
    UsageReport,
    replaced,
)

MEMBERS: Final[dict[Kind, str]] = {
    "text": "content",
    "reasoning": "reasoning_content",
    "summary": "reasoning_content",
    "refusal": "refusal",
}
"""The members of a delta, by the kind of their text. Other kinds are tool calls or dropped."""


class ChunkMaker:
    """Makes the chunks of one answer. `created` is the time of an answer that has none."""

    __slots__ = ("_calls", "_counts", "_created", "_forms", "_head", "_prefix")

    def __init__(self, created: int) -> None:
        self._created = created
        self._head: Json = self._head_of(Start(None, None, None))
        self._prefix = b""
        self._calls: dict[Part, int] = {}
        self._counts: dict[int, int] = {}  # of calls, by choice
        self._forms: dict[Part, tuple[Json, Slot]] = {}

    def note(self, frame: Frame) -> None:
        """Note what later chunks repeat: the identity of the answer, the numbers of its calls, and
        the members of texts that have other names here than usual."""
        for event in frame.events:
            if type(event) is Delta:
                self._note_form(frame, event)
            elif type(event) is Start:
                self._head, self._prefix = self._head_of(event), b""
            elif type(event) is Begin and event.part.kind in CALLS:
                choice = event.part.choice
                self._calls[event.part] = number = self._counts.get(choice, 0)
                self._counts[choice] = number + 1

    def text(self, delta: Delta) -> bytes | None:
        """Return the document of a text in its usual member, None for any other text. It must be
        one of the first choice and no tool call."""
        if delta.part in self._forms:
            return None
        if not self._prefix:
            self._prefix = orjson.dumps({**self._head, "choices": None}).removesuffix(b"null}")
        return b'%b[{"index":0,"delta":{"%b":%b},"logprobs":null,"finish_reason":null}]}' % (
            self._prefix,
            MEMBERS[delta.part.kind].encode(),
            orjson.dumps(delta.text),
        )

    def chunks(self, events: tuple[Event, ...]) -> Iterator[Json]:
        """Yield the chunks of events of a frame that `note` has seen."""
        listed = {e.part: e.value for e in events if type(e) is Attach and e.name == "logprobs"}
        for event in events:
            if type(event) is Delta:
                yield from self._delta(event, listed.get(event.part))
            elif type(event) is Start:
                yield self._chunk(0, {"role": "assistant", "content": ""})
            elif type(event) is Begin and event.call is not None and event.part in self._calls:
                kind, call = event.call.type, event.call
                inner = {"name": call.name, INPUTS[kind][0]: ""}
                opened = {"id": call.id, "type": kind, kind: inner}
                yield self._call(event.part, opened)
            elif type(event) is Finish:
                reason = event.native or "stop" if event.reason == "other" else event.reason
                yield self._chunk(event.choice, {}, finish=reason)
            elif type(event) is UsageReport and event.final and event.tokens is not None:
                yield {**self._head, "choices": [], "usage": usage_of(event.tokens, event.native)}

    def _note_form(self, frame: Frame, delta: Delta) -> None:
        part, slot = delta.part, delta.slot
        if part in self._forms or frame.doc is None or frame.family != "chat" or len(slot) < 4:
            return
        if slot[3] == "tool_calls" or slot[3:] == (MEMBERS.get(part.kind),):
            return
        message = frame.doc["choices"][slot[1]][slot[2]]
        path = tuple(0 if type(step) is int else step for step in slot[3:])
        self._forms[part] = alone(message, slot[3:], ""), path

    def _head_of(self, start: Start) -> Json:
        created = self._created if start.created is None else start.created
        kind = "chat.completion.chunk"
        return {"id": start.id, "object": kind, "created": created, "model": start.model}

    def _delta(self, delta: Delta, logprobs: Any) -> Iterator[Json]:
        part, text = delta.part, delta.text
        form = self._forms.get(part)
        if form is not None:
            yield self._chunk(part.choice, replaced(*form, text), logprobs)
        elif part in self._calls:
            kind = "custom" if part.kind == "input" else "function"
            yield self._call(part, {kind: {INPUTS[kind][0]: text}})
        elif part.kind in MEMBERS and text:
            tokens = {"content": logprobs} if type(logprobs) is list else logprobs
            yield self._chunk(part.choice, {MEMBERS[part.kind]: text}, tokens)

    def _call(self, part: Part, call: Json) -> Json:
        return self._chunk(part.choice, {"tool_calls": [{"index": self._calls[part], **call}]})

    def _chunk(
        self, choice: int, delta: Json, logprobs: Any = None, finish: str | None = None
    ) -> Json:
        entry = {"index": choice, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        return {**self._head, "choices": [entry]}


def usage_of(tokens: Tokens, native: Json) -> Json:
    """Return tokens as the usage of a chat, with the groups of counts of Messages and Responses in
    `native`."""
    prompt, completion = tokens.prompt_total, tokens.completion_total
    usage: Json = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    details = {
        "cached_tokens": tokens.cached_input,
        "cache_write_tokens": tokens.cache_write,
        **({"audio_tokens": tokens.audio_input} if tokens.audio_input else {}),
    }
    if any(details.values()):
        usage["prompt_tokens_details"] = details
    if tokens.reasoning:
        usage["completion_tokens_details"] = {"reasoning_tokens": tokens.reasoning}
    if tokens.web_searches:
        usage["server_tool_use"] = {"web_search_requests": tokens.web_searches}
    groups = {name: native[name] for name in COUNT_GROUPS if type(native.get(name)) is dict}
    for name, (native_name, counts) in _DETAILS.items():
        group = native.get(native_name)
        if type(group) is dict:
            groups[name] = {key: group[key] for key in counts if type(group.get(key)) is int}
    return usage | groups


_DETAILS: Final = {
    "prompt_tokens_details": (
        "input_tokens_details",
        ("cached_tokens", "cache_write_tokens", "audio_tokens", "image_tokens", "text_tokens"),
    ),
    "completion_tokens_details": (
        "output_tokens_details",
        ("reasoning_tokens", "audio_tokens", "image_tokens", "text_tokens"),
    ),
}
"""The groups of counts of Responses and their members, by the name of a chat. Guards do not read
other members, so these do not cross."""
