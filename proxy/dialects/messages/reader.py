"""Reads Messages responses, streamed and whole, into frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from proxy.dialects.family import ReadOptions, Shape, has_shape, make_incomplete_stream_error
from proxy.dialects.messages import schema
from proxy.dialects.messages.schema import USUAL_EVENTS, make_stream_events
from proxy.dialects.wire.strict_json import as_object, as_text, dump, get_int, is_null_or_word
from proxy.errors import ResponseTooLarge, UpstreamInvalid
from proxy.money.usage import USAGE_GROUPS, read_chat_usage
from proxy.types import Json
from proxy.types.events import (
    RESPONSE_END,
    VISIBLE_KINDS,
    Attach,
    AttachName,
    Delta,
    Event,
    Finish,
    Frame,
    Part,
    PartEnd,
    PartStart,
    ResponseStart,
    Slot,
    ToolCall,
    Unmapped,
    UsageReport,
)

MAX_BLOCKS = 4096
"""Maximum number of open blocks, and of ended ones in a stream that is inspected or converted."""
_BLOCK_EVENTS = frozenset({schema.BLOCK_START, schema.BLOCK_DELTA, schema.BLOCK_STOP})
_TRANSLATED_KINDS = frozenset({"text", "reasoning", "arguments"})
_ATTACHMENT_MEMBERS: Mapping[str, AttachName] = {
    "signature_delta": "signature",
    "citations_delta": "citation",
}


class MessageReader:
    """Reads the events of a Messages stream.

    A stream that is translated to another family has frames only for text, thinking and calls of
    the client's tools. If the stream is not split, its events may come in any order.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._splits = options.inspect or options.is_translated
        self._has_started = self._has_finished = False
        self._open: dict[int | None, Part] = {}  # blocks by index
        self._ended: set[int | None] = set()  # indexes of ended blocks of a split stream
        # Member with the text of an open block that guards inspect.
        self._members: dict[Part, str] = {}
        self._usage: Json = {}  # counts are cumulative
        self._part: Part | None = None  # part of the last usual delta
        self._index: int | None = None
        self._delta_type = self._member = ""
        self._slot: Slot = ()

    def read(self, doc: Json, raw: bytes) -> Sequence[Frame]:
        delta = doc.get("delta")
        if (
            self._part is not None
            and doc.get("type") == schema.BLOCK_DELTA
            and doc.get("index") == self._index
            and len(doc) == 3
            and delta.__class__ is dict
            and len(delta) == 2
            and delta.get("type") == self._delta_type
        ):
            text = delta.get(self._member)
            if text.__class__ is str:
                return [self._make_frame((Delta(self._part, text, self._slot),), doc, raw)]
        kind = doc.get("type")
        if kind.__class__ is not str or not kind.isprintable():
            return []
        return self._read_event(kind, doc, raw)

    def end(self, *, has_done_marker: bool = False) -> Sequence[Frame]:
        if not self._has_finished:
            raise make_incomplete_stream_error()
        return [self._make_frame((RESPONSE_END,), None, None)]

    def _read_event(self, kind: str, doc: Json, raw: bytes) -> list[Frame]:
        if kind == schema.MESSAGE_START:
            return self._read_message_start(doc, raw)
        if kind == schema.MESSAGE_DELTA:
            return self._read_message_delta(doc, raw)
        if kind == schema.MESSAGE_STOP:
            return self._read_message_stop(doc, raw)
        if kind in _BLOCK_EVENTS and not self._has_finished:
            index = doc.get("index")
            if self._options.inspect and index is not None and type(index) is not int:
                raise UpstreamInvalid("The upstream sent a content block with an invalid index.")
            if kind == schema.BLOCK_START:
                return self._read_block_start(doc, raw)
            read = self._read_block_delta if kind == schema.BLOCK_DELTA else self._read_block_stop
            return read(doc, raw)
        # Before the start, it may be a stream of another family.
        if kind == schema.KEEPALIVE_EVENTS or not self._has_started:
            return []
        return self._make_document_frames((), doc, raw)

    def _make_frame(self, events: tuple[Event, ...], doc: Json | None, raw: bytes | None) -> Frame:
        if self._options.inspect:  # ``raw`` may repeat a member, and guards read only one
            raw = None
        return Frame(events, "messages", doc, raw=raw, model_call=self._options.model_call)

    def _make_document_frames(
        self, events: tuple[Event, ...], doc: Json, raw: bytes, usual_shape: Shape | None = None
    ) -> list[Frame]:
        """Return the frame of a document, or none.

        ``events`` contain all texts of a document of ``usual_shape``. Guards inspect any other
        document as a whole.
        """
        if self._options.is_translated:
            return [self._make_frame(events, doc, raw)] if events else []
        if self._options.inspect and (usual_shape is None or not has_shape(doc, usual_shape)):
            parts = (e.part for e in events if isinstance(e, PartStart | Delta | Attach))
            events = (*events, Unmapped(next(parts, None)))
        return [self._make_frame(events, doc, raw)]

    def _read_safe_identifier(self, value: Any) -> str | None:
        # Guards do not read ids of translated streams, so an id must not carry text to the client.
        options = self._options
        if options.inspect and options.is_translated and not is_null_or_word(value):
            return None
        return value if value.__class__ is str else None

    def _make_missing_start_events(self) -> tuple[Event, ...]:
        if self._has_started:
            return ()
        self._has_started = True
        return (ResponseStart(None, None, None),)

    # The message

    def _read_message_start(self, doc: Json, raw: bytes) -> list[Frame]:
        if self._has_started:
            if self._splits:
                raise UpstreamInvalid("The upstream started a second message in one stream.")
            return self._make_document_frames((), doc, raw)
        self._has_started = True
        message = as_object(doc.get("message"))
        self._add_usage(message.get("usage"))
        start = ResponseStart(
            self._read_safe_identifier(message.get("id")),
            self._read_safe_identifier(message.get("model")),
            None,
        )
        events = (start, *self._make_usage_events(is_final=False))
        return self._make_document_frames(events, doc, raw, USUAL_EVENTS[schema.MESSAGE_START])

    def _read_message_delta(self, doc: Json, raw: bytes) -> list[Frame]:
        self._add_usage(doc.get("usage"))
        reason = as_object(doc.get("delta")).get("stop_reason")
        frames: list[Frame] = []
        events = self._make_missing_start_events()
        if reason is not None and not self._has_finished:
            events += self._end_blocks_and_finish(str(reason), frames)
        events += self._make_usage_events(is_final=True)
        if self._options.inspect and self._usage:
            doc = {**doc, "usage": dict(self._usage)}
        usual_shape = USUAL_EVENTS[schema.MESSAGE_DELTA]
        return frames + self._make_document_frames(events, doc, raw, usual_shape)

    def _read_message_stop(self, doc: Json, raw: bytes) -> list[Frame]:
        frames: list[Frame] = []
        events: tuple[Event, ...] = ()
        if not self._has_started:
            raise make_incomplete_stream_error()
        if not self._has_finished:
            events = self._end_blocks_and_finish(None, frames)
        if self._options.inspect and not has_shape(doc, USUAL_EVENTS[schema.MESSAGE_STOP]):
            events += (Unmapped(),)
        return [*frames, self._make_frame((*events, RESPONSE_END), doc, raw)]

    def _end_blocks_and_finish(self, reason: str | None, frames: list[Frame]) -> tuple[Event, ...]:
        # In a split stream, blocks that the upstream has not ended end in `frames`.
        self._has_finished = True
        parts = {index: part for index, part in self._open.items() if self._is_sent_to_client(part)}
        self._open.clear()
        self._part = None
        finish = Finish(0, "other" if reason is None else schema.FINISH_REASONS.get(reason, "stop"))
        if not self._splits:
            return (*map(PartEnd, parts.values()), finish)
        for index, part in parts.items():
            doc = {"type": schema.BLOCK_STOP, "index": index}
            frames.append(self._make_frame((PartEnd(part),), doc, None))
        return (finish,)

    def _add_usage(self, usage: Any) -> None:
        for name, value in as_object(usage).items():
            if value is not None or name not in self._usage:
                self._usage[name] = value

    def _make_usage_events(self, *, is_final: bool) -> tuple[Event, ...]:
        if not self._usage:
            return ()
        usage = dict(self._usage)
        tokens = read_chat_usage(schema.to_chat_usage(usage))
        if self._options.inspect and self._options.is_translated:
            usage = {
                name: value
                for name, value in usage.items()
                if name not in USAGE_GROUPS or has_shape(value, schema.USAGE_CHECKS[name])
            }
        return (UsageReport(tokens, usage, is_final),)

    # Blocks

    def _is_sent_to_client(self, part: Part) -> bool:
        return not self._options.is_translated or part.kind in _TRANSLATED_KINDS

    def _begin_block(self, index: int | None, part: Part) -> tuple[Event, ...]:
        """Open a block. Return the start of the message, and the end of a block that it closes."""
        events = self._make_missing_start_events()
        closed = self._open.pop(index, None)
        if closed is not None and self._splits:
            raise UpstreamInvalid("The upstream started a content block that had not ended.")
        if len(self._open) >= MAX_BLOCKS:
            raise ResponseTooLarge("The upstream sent too many content blocks.")
        self._open[index] = part
        self._ended.discard(index)
        self._part = None
        return events if closed is None else (*events, PartEnd(closed))

    def _read_block_start(self, doc: Json, raw: bytes) -> list[Frame]:
        index, block = get_int(doc, "index"), as_object(doc.get("content_block"))
        kind = block.get("type")
        block_type = kind if kind.__class__ is str and kind in schema.BLOCK_KINDS else ""
        number = len(self._open) if index is None else index
        name = self._read_safe_identifier(block.get("id")) or ""
        part = Part(schema.BLOCK_KINDS.get(block_type, "opaque"), number, id=name)
        events = self._begin_block(index, part)
        if not self._is_sent_to_client(part):
            return [self._make_frame(events, doc, raw)] if events else []
        if part.kind == "arguments":
            return self._read_tool_call_start(part, doc, raw, events)
        events += (PartStart(part),)
        text = as_text(block.get(block_type)) if part.kind in VISIBLE_KINDS else ""
        if text:
            events += (Delta(part, text, ("content_block", block_type)),)
        signature = block.get("signature")
        if signature and not self._options.is_translated:
            events += (Attach(part, "signature", signature, slot=("content_block", "signature")),)
        return self._make_document_frames(events, doc, raw, schema.USUAL_BLOCKS.get(block_type))

    def _read_tool_call_start(
        self, part: Part, doc: Json, raw: bytes, events: tuple[Event, ...]
    ) -> list[Frame]:
        block = doc["content_block"]
        call, arguments = ToolCall(part.id, as_text(block.get("name"))), block.get("input")
        events += (PartStart(part, call, ("content_block", "name") if call.name else ()),)
        usual_shape = schema.USUAL_BLOCKS["tool_use"]
        if not arguments:
            return self._make_document_frames(events, doc, raw, usual_shape)
        text = dump(arguments, 0).decode()
        if not self._splits:
            events += (Delta(part, text, ("content_block", "input")),)
            return [self._make_frame(events, doc, raw)]
        start = {**doc, "content_block": {**block, "input": {}}}
        inner = {"type": "input_json_delta", "partial_json": text}
        delta = {"type": schema.BLOCK_DELTA, "index": doc.get("index"), "delta": inner}
        event = Delta(part, text, ("delta", "partial_json"))
        frames = [
            *self._make_document_frames(events, start, raw, usual_shape),
            self._make_frame((event,), delta, raw),
        ]
        return [frame._replace(raw=None) for frame in frames]

    def _read_block_delta(self, doc: Json, raw: bytes) -> list[Frame]:
        index, delta = get_int(doc, "index"), as_object(doc.get("delta"))
        kind = delta.get("type")
        kind = kind if kind.__class__ is str else ""
        member, part_kind = schema.DELTA_TYPES.get(kind, ("", "opaque"))
        events = self._make_missing_start_events()
        part = self._open.get(index)
        if part is None:  # the upstream has not sent the start of the block
            if index in self._ended:
                raise UpstreamInvalid("The upstream continued a content block that had ended.")
            part = Part(part_kind, index or 0)
            events += self._begin_block(index, part)
            events += (PartStart(part),) if self._is_sent_to_client(part) else ()
        if not self._is_sent_to_client(part):
            return [self._make_frame(events, doc, raw)] if events else []
        text, name = delta.get(member), _ATTACHMENT_MEMBERS.get(kind)
        usual_shape = schema.USUAL_DELTA if len(delta) == 2 and index is not None else None
        if name is not None:
            if name in delta and not self._options.is_translated:
                events += (Attach(part, name, delta[name], slot=("delta", name)),)
            return self._make_document_frames(
                events, doc, raw, usual_shape if name in delta else None
            )
        if text.__class__ is not str or not self._is_unchanged_text_member(part, member):
            return self._make_document_frames(events, doc, raw)
        slot = "delta", member
        if usual_shape is not None:
            self._part, self._index, self._slot = part, index, slot
            self._delta_type, self._member = kind, member
        return self._make_document_frames((*events, Delta(part, text, slot)), doc, raw, usual_shape)

    def _is_unchanged_text_member(self, part: Part, member: str) -> bool:
        """Return False if an earlier delta of an inspected block had its text in another member.

        Raises ``UpstreamInvalid`` if a block of a known type has its text in another member.
        """
        options = self._options
        if not options.inspect or options.is_translated:
            return True
        if schema.DELTA_MEMBERS.get(part.kind, member) != member:
            raise UpstreamInvalid("The upstream sent a delta of another type than its block.")
        return self._members.setdefault(part, member) == member

    def _read_block_stop(self, doc: Json, raw: bytes) -> list[Frame]:
        index = get_int(doc, "index")
        part = self._open.pop(index, None)
        if part is not None:
            self._members.pop(part, None)
        self._part = None
        if self._splits and not self._options.whole:
            self._ended.add(index)
            if len(self._ended) > MAX_BLOCKS:
                raise ResponseTooLarge("The upstream sent too many content blocks.")
        events = () if part is None or not self._is_sent_to_client(part) else (PartEnd(part),)
        return self._make_document_frames(events, doc, raw, USUAL_EVENTS[schema.BLOCK_STOP])


class WholeMessageReader:
    """Reads a whole message by converting it to the events of a stream."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def read(self, doc: Json, raw: bytes) -> Sequence[Frame]:
        options = self._options
        reader = MessageReader(options if options.stream else replace(options, inspect=False))
        frames = [frame for event in make_stream_events(doc) for frame in reader.read(event, b"")]
        if options.stream:
            return [frame._replace(raw=None) for frame in frames]
        events = tuple(
            _set_whole_message_slot(event)
            for frame in frames
            for event in frame.events
            if not (isinstance(event, UsageReport) and not event.final)
        )
        return [Frame(events, "messages", doc, raw=raw, model_call=options.model_call)]

    def end(self, *, has_done_marker: bool = False) -> Sequence[Frame]:
        """Return no frames: ``read`` has returned the whole message."""
        return []


def _set_whole_message_slot(event: Event) -> Event:
    """Return a stream event with its slot in the whole message. Only visible texts have one."""
    if isinstance(event, Delta) and event.part.kind in VISIBLE_KINDS:
        return event._replace(slot=("content", event.part.number, event.slot[-1]))
    return event._replace(slot=()) if isinstance(event, PartStart | Delta | Attach) else event
