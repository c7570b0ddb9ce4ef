"""Writes frames for clients of chat and of legacy completions, as a stream or as one document.

Both families have nearly the same documents. Documents of one family are converted for a client of
the other, so that members without an event reach the client too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import orjson

from proxy.dialects import DIALECTS
from proxy.dialects.chat.merging import (
    Converter,
    get_choices,
    make_converter_for_client,
    merge_chunks,
)
from proxy.dialects.chat.splitting import copy_with_only_text
from proxy.dialects.chat.tool_calls import CALL_TEXT_MEMBERS, CallType
from proxy.dialects.family import FamilyWriter, WriteOptions
from proxy.dialects.findings import DETECTIONS_MEMBER, HOOKS_MEMBER, drop_shadow_results
from proxy.dialects.wire import sse
from proxy.dialects.wire.strict_json import dump
from proxy.money.usage import USAGE_GROUPS, Tokens
from proxy.types import Json
from proxy.types.events import (
    TOOL_CALL_KINDS,
    Attach,
    Delta,
    Event,
    Extension,
    FamilyName,
    Fault,
    Finish,
    Frame,
    Kind,
    Part,
    PartStart,
    ResponseEnd,
    ResponseStart,
    Slot,
    UsageReport,
    replace_at_slot,
)
from proxy.types.guard import GuardResults

TEXT_MEMBERS: Final[dict[Kind, str]] = {
    "text": "content",
    "reasoning": "reasoning_content",
    "refusal": "refusal",
}
"""The members of a delta, by the kind of their text. Other kinds are tool calls or dropped."""


class ChunkMaker:
    """Makes the chunks of one response. ``created`` is the default time, in Unix seconds."""

    def __init__(self, created: int) -> None:
        self._created = created
        self._head: Json = self._make_chunk_head(ResponseStart(None, None, None))
        self._prefix = b""
        self._calls: dict[Part, int] = {}
        self._counts: dict[int, int] = {}  # number of tool calls, by choice
        self._templates: dict[Part, tuple[Json, Slot]] = {}

    def store_repeated_values(self, frame: Frame) -> None:
        """Store values that later chunks repeat.

        These are the identity of the response, the indexes of its tool calls, and unusual names of
        text members.
        """
        for event in frame.events:
            if type(event) is Delta:
                self._store_unusual_message_template(frame, event)
            elif type(event) is ResponseStart:
                self._head, self._prefix = self._make_chunk_head(event), b""
            elif type(event) is PartStart and event.part.kind in TOOL_CALL_KINDS:
                choice = event.part.choice
                self._calls[event.part] = number = self._counts.get(choice, 0)
                self._counts[choice] = number + 1

    def serialize_text_chunk(self, delta: Delta) -> bytes | None:
        """Return the JSON of a chunk with a text, None if its part has an unusual text member.

        The text must be in the first choice and not in a tool call.
        """
        if delta.part in self._templates:
            return None
        if not self._prefix:
            self._prefix = orjson.dumps({**self._head, "choices": None}).removesuffix(b"null}")
        return b'%b[{"index":0,"delta":{"%b":%b},"logprobs":null,"finish_reason":null}]}' % (
            self._prefix,
            TEXT_MEMBERS[delta.part.kind].encode(),
            orjson.dumps(delta.text),
        )

    def make_chunks(self, events: tuple[Event, ...]) -> Iterator[Json]:
        """Yield the chunks for a frame's events. Call ``store_repeated_values(frame)`` first."""
        listed = {e.part: e.value for e in events if type(e) is Attach and e.name == "logprobs"}
        for event in events:
            if type(event) is Delta:
                yield from self._make_delta_chunks(event, listed.get(event.part))
            elif type(event) is ResponseStart:
                yield self._make_chunk(0, {"role": "assistant", "content": ""})
            elif type(event) is PartStart and event.call is not None and event.part in self._calls:
                kind, call = event.call.type, event.call
                inner = {"name": call.name, CALL_TEXT_MEMBERS[kind]: ""}
                opened = {"id": call.id, "type": kind, kind: inner}
                yield self._make_tool_call_chunk(event.part, opened)
            elif type(event) is Finish:
                reason = event.native or "stop" if event.reason == "other" else event.reason
                yield self._make_chunk(event.choice, {}, finish=reason)
            elif type(event) is UsageReport and event.final and event.tokens is not None:
                usage = make_chat_usage(event.tokens, event.native)
                yield {**self._head, "choices": [], "usage": usage}

    def _store_unusual_message_template(self, frame: Frame, delta: Delta) -> None:
        """Store the message without its text, if the text is in an unusual member."""
        part, slot = delta.part, delta.slot
        depth = {"chat": 3, "completions": 2}.get(frame.family)
        if part in self._templates or frame.doc is None or depth is None:
            return
        usual: tuple[Slot, ...] = (), ("text",), (TEXT_MEMBERS.get(part.kind, ""),)
        if slot[depth:] in usual or "tool_calls" in slot:
            return
        message: Any = frame.doc
        for step in slot[:depth]:
            message = message[step]
        path = tuple(0 if type(step) is int else step for step in slot[depth:])
        self._templates[part] = copy_with_only_text(message, slot[depth:], ""), path

    def _make_chunk_head(self, start: ResponseStart) -> Json:
        created = self._created if start.created is None else start.created
        kind = "chat.completion.chunk"
        return {"id": start.id, "object": kind, "created": created, "model": start.model}

    def _make_delta_chunks(self, delta: Delta, logprobs: Any) -> Iterator[Json]:
        part, text = delta.part, delta.text
        template = self._templates.get(part)
        if template is not None:
            yield self._make_chunk(part.choice, replace_at_slot(*template, text), logprobs)
        elif part in self._calls:
            kind: CallType = "custom" if part.kind == "input" else "function"
            yield self._make_tool_call_chunk(part, {kind: {CALL_TEXT_MEMBERS[kind]: text}})
        elif part.kind in TEXT_MEMBERS and text:
            tokens = {"content": logprobs} if type(logprobs) is list else logprobs
            yield self._make_chunk(part.choice, {TEXT_MEMBERS[part.kind]: text}, tokens)

    def _make_tool_call_chunk(self, part: Part, call: Json) -> Json:
        return self._make_chunk(part.choice, {"tool_calls": [{"index": self._calls[part], **call}]})

    def _make_chunk(
        self, choice: int, delta: Json, logprobs: Any = None, finish: str | None = None
    ) -> Json:
        entry = {"index": choice, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        return {**self._head, "choices": [entry]}


def make_chat_usage(tokens: Tokens, native: Json) -> Json:
    """Return tokens as the usage of a chat completion.

    ``native`` holds the token groups of Messages and Responses.
    """
    prompt, completion = tokens.prompt_total, tokens.completion_total
    usage: Json = {"prompt_tokens": prompt, "completion_tokens": completion}
    usage["total_tokens"] = prompt + completion
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
    groups = {name: native[name] for name in USAGE_GROUPS if type(native.get(name)) is dict}
    for name, native_name, counts in _DETAILS:
        group = native.get(native_name)
        if type(group) is dict:
            groups[name] = {key: group[key] for key in counts if type(group.get(key)) is int}
    return usage | groups


_MODALITIES: Final = ("audio_tokens", "image_tokens", "text_tokens")
_DETAILS: Final = (
    ("prompt_tokens_details", "input_tokens_details",
     ("cached_tokens", "cache_write_tokens", *_MODALITIES)),
    ("completion_tokens_details", "output_tokens_details", ("reasoning_tokens", *_MODALITIES)),
)  # fmt: skip
"""Groups of counts: their names in a chat and in Responses, and their members. Other members are
omitted, because guards do not read them."""


DONE_EVENT: Final = sse.encode_event(sse.DONE)
CHAT_FORMATS: Final[frozenset[FamilyName]] = frozenset(
    {"chat", "completions", "embeddings", "stored", "document"}
)
"""The families whose documents pass, or can be converted into each other."""
SMALL_BYTES = 256
"""Estimated size of a frame without a size."""


def make_chat_writer(options: WriteOptions, family: FamilyName) -> FamilyWriter:
    """Return the writer for a client of chat, legacy completions, or documents without parts."""
    return (ChatWholeWriter if options.whole else ChatStreamWriter)(options, family)


class _ChatWriter:
    """Makes the documents and guard results for streams and whole responses."""

    def __init__(self, options: WriteOptions, family: FamilyName) -> None:
        head = options.call.head
        self.client = DIALECTS["openai" if options.complete else head.dialect].client
        self.family = family
        self._options = options
        self._converters: dict[tuple[int, FamilyName], Converter | None] = {}
        self._makers: dict[int, ChunkMaker] = {}
        self._findings: Json = {}  # results of the upstream's guards

    def get_chunk_maker(self, frame: Frame) -> ChunkMaker:
        maker = self._makers.get(frame.model_call)
        if maker is None:
            created = int(self._options.call.head.received_at.timestamp())
            maker = self._makers[frame.model_call] = ChunkMaker(created)
        return maker

    def make_documents(self, frame: Frame) -> Iterator[Json]:
        """Yield the documents of a frame in the form of the client."""
        events = frame.events
        if frame.family in CHAT_FORMATS and frame.doc is not None:
            family, documents = frame.family, [frame.doc]
            if not (events and type(events[-1]) is ResponseEnd):
                self.get_chunk_maker(frame).store_repeated_values(frame)
        else:
            maker = self.get_chunk_maker(frame)
            maker.store_repeated_values(frame)
            if frame.family in CHAT_FORMATS:  # only finish reasons that the upstream sent
                events = tuple([e for e in events if not (type(e) is Finish and e.native is None)])
            family, documents = "chat", [*maker.make_chunks(events)]
        key = frame.model_call, family
        if key not in self._converters:
            self._converters[key] = make_converter_for_client(self._options, self.family, family)
        convert = self._converters[key]
        for document in documents:
            converted = document if convert is None else convert(document)
            if converted is not None:
                yield converted

    def get_visible_guard_results(self) -> GuardResults:
        return drop_shadow_results(self._options.get_guard_results())

    def encode_error(self, document: bytes) -> bytes:
        return sse.encode_event(document)


class ChatStreamWriter(_ChatWriter):
    """Writes a stream.

    Unchanged documents are sent as received. A chunk with only usage is sent if the client
    requested it.
    """

    def __init__(self, options: WriteOptions, family: FamilyName) -> None:
        super().__init__(options, family)
        client = self.client
        self._add_results = client.add_guard_results if client.streams_guard_results else None
        self._wants_usage = options.complete or options.call.wants_usage
        self._passes_raw = (
            self._add_results is None and make_converter_for_client(options, family, family) is None
        )

    def feed(self, frame: Frame) -> bytes:
        doc, raw = frame.doc, frame.raw
        passes = raw is not None and self._passes_raw and frame.family == self.family
        if raw is None or doc is None or not passes or b"\n" in raw:
            event = self._write_changed_frame(frame)
        elif "usage" in doc and self._is_unrequested_usage(doc):
            event = b""
        else:
            event = b"data: " + raw + b"\n\n"
            if len(frame.events) > 1:
                self.get_chunk_maker(frame).store_repeated_values(frame)
        return event + DONE_EVENT if frame.last and self.client.sends_done else event

    def _write_changed_frame(self, frame: Frame) -> bytes:
        """Return the events of a frame whose bytes do not pass as received."""
        if frame.doc is None and not frame.events:
            return b"" if frame.last else sse.KEEPALIVE
        if frame.doc is None or frame.family not in CHAT_FORMATS:
            document = self._serialize_text_frame(frame)
            if document is not None:
                return document
        return b"".join([self._serialize_event(doc, frame) for doc in self.make_documents(frame)])

    def _serialize_text_frame(self, frame: Frame) -> bytes | None:
        if len(frame.events) != 1 or self.family != "chat":
            return None
        [event] = frame.events
        if type(event) is not Delta or event.part.choice or event.part.kind not in TEXT_MEMBERS:
            return None
        document = self.get_chunk_maker(frame).serialize_text_chunk(event) if event.text else b""
        return b"data: %b\n\n" % document if document else document

    def _serialize_event(self, document: Json, frame: Frame) -> bytes:
        if self._is_unrequested_usage(document):
            return b""
        if self._add_results is not None:
            self._findings |= _collect_upstream_findings(frame)
            # some servers send an empty finish reason in each chunk
            if any(choice.get("finish_reason") for choice in get_choices(document)):
                document = {**document, **self._findings}
                document = self._add_results(document, self.get_visible_guard_results(), ())
        return sse.encode_event(dump(document, frame.size))

    def _is_unrequested_usage(self, document: Json) -> bool:
        has_usage = document.get("usage") is not None
        return has_usage and document.get("choices") == [] and not self._wants_usage


class ChatWholeWriter(_ChatWriter):
    """Writes one document after the last frame."""

    def __init__(self, options: WriteOptions, family: FamilyName) -> None:
        super().__init__(options, family)
        self._responses: dict[int, Json] = {}  # by the index of the model call
        self._chunks: dict[int, list[Json]] = {}
        self._size = 0

    def feed(self, frame: Frame) -> bytes:
        self._size += frame.size or len(frame.raw or b"") or SMALL_BYTES
        self._add_frame(frame)
        if not frame.last:
            return b""
        client = self.client
        merged = {model_call: merge_chunks(chunks) for model_call, chunks in self._chunks.items()}
        responses = self._responses | merged
        document = responses.get(0, {})
        if client.merge_documents is not None:
            document = client.merge_documents(self._options.call, responses)
        if client.add_guard_results is not None:
            document = {**document, **self._findings} if self._findings else document
            document = client.add_guard_results(document, self.get_visible_guard_results(), ())
        if document is frame.doc and frame.raw is not None:
            return frame.raw
        return dump(document, self._size)

    def _add_frame(self, frame: Frame) -> None:
        model_call, events = frame.model_call, frame.events
        fault = next((event for event in events if type(event) is Fault), None)
        if fault is not None:
            choice = {"index": 0, "text": "", "finish_reason": "error", "logprobs": None}
            error = {"message": fault.message, "code": fault.code}
            self._responses[model_call] = {"choices": [choice], "error": error}
            return
        documents: Sequence[Json] = [*self.make_documents(frame)]
        is_whole = frame.doc is not None and bool(events) and type(events[-1]) is ResponseEnd
        if is_whole and frame.family in CHAT_FORMATS:
            self._responses[model_call] = documents[0] if documents else frame.doc or {}
        else:
            self._chunks.setdefault(model_call, []).extend(documents)
            self._findings |= _collect_upstream_findings(frame)


def _collect_upstream_findings(frame: Frame) -> Json:
    return {
        event.name: event.value
        for event in frame.events
        if type(event) is Extension and event.name in (DETECTIONS_MEMBER, HOOKS_MEMBER)
    }
