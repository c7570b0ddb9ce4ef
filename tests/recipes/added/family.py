"""Notes: an API family and its dialect. Requests and responses have ``notes``. In a stream each
note opens, gets its text, and closes.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from proxy.dialects.base import ClientDialect, Dialect, UpstreamDialect
from proxy.dialects.family import Family, ReadOptions, RequestConversion, WriteOptions
from proxy.dialects.vendors import openai
from proxy.dialects.wire import sse
from proxy.errors import UpstreamInvalid
from proxy.fields.checks import make_required, object_array
from proxy.fields.field_table import get_fields
from proxy.money.usage import read_chat_usage
from proxy.types import Json, events
from proxy.types.events import Delta, Event, Finish, Frame, Part, Slot

WORDS: dict[str, str] = {"stop": "said", "length": "full", "tool_calls": "called"}
REASONS: dict[str, events.FinishReason] = {"said": "stop", "full": "length", "called": "tool_calls"}


class NoteReader:
    """Reads the events of a stream. A whole answer has the same events."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._parts: list[Part] = []

    def read(self, doc: Json, raw: bytes) -> Sequence[Frame]:
        if not self._options.whole:
            return [self._frame(self._events(doc), doc, raw)]
        docs: list[Json] = [{"begin": doc["id"], "model": doc["model"]}]
        for at, note in enumerate(doc["notes"]):
            docs += {"open": {**note, "text": ""}}, {"at": at, "text": note["text"]}, {"close": at}
        docs.append({"end": doc["end"], "used": doc["used"]})
        if self._options.stream:
            return [self._frame(self._events(each), each, None) for each in docs]
        read = [event for each in docs for event in self._events(each, whole=True)]
        return [self._frame(read, doc, raw)]

    def _frame(self, read: list[Event], doc: Json, raw: bytes | None) -> Frame:
        native = [events.Unmapped()] if self._options.inspect else []
        return Frame((*native, *read), "notes", doc, raw, self._options.model_call)

    def _events(self, doc: Json, *, whole: bool = False) -> list[Event]:
        place: Slot = ("notes", len(self._parts)) if whole else ("open",)
        match doc:
            case {"begin": name, "model": model}:
                return [events.ResponseStart(name, model, None)]
            case {"open": _}:
                note = doc["open"]
                call = events.ToolCall(note["call"], note["tool"]) if "tool" in note else None
                self._parts.append(Part("arguments" if call else "text", len(self._parts)))
                return [events.PartStart(self._parts[-1], call, (*place, "tool") if call else ())]
            case {"at": int(at), "text": str(text)} if at < len(self._parts):
                return [Delta(self._parts[at], text, ("notes", at, "text") if whole else ("text",))]
            case {"close": int(at)} if at < len(self._parts):
                return [events.PartEnd(self._parts[at])]
            case {"end": str(word), "used": used}:
                usage = events.UsageReport(read_chat_usage(used), used)
                return [Finish(0, REASONS.get(word, "other"), word), usage, events.RESPONSE_END]
            case _:
                raise UpstreamInvalid("The upstream sent an event that notes do not have.")

    def end(self, *, has_done_marker: bool = False) -> Sequence[Frame]:
        raise UpstreamInvalid("The upstream ended before all notes were said.")


class NoteWriter:
    """Writes the events of a stream, or one document at the end."""

    def __init__(self, options: WriteOptions) -> None:
        self._is_whole = options.whole
        self._answer: Json = {"notes": []}
        self._numbers: dict[Part, int] = {}
        self._end: Json = {"end": "said", "used": {}}

    def feed(self, frame: Frame) -> bytes:
        doc = frame.doc if frame.family == "notes" else None
        if doc is not None and "notes" in doc:
            return orjson.dumps(doc)
        docs = [each for each in map(self._doc, frame.events) if each] if doc is None else [doc]
        if not self._is_whole:
            return b"".join([sse.encode_event(orjson.dumps(each)) for each in docs])
        for each in docs:
            self._add(each)
        return orjson.dumps(self._answer) if frame.last else b""

    def _doc(self, event: Event) -> Json | None:
        match event:
            case events.ResponseStart(name, model):
                return {"begin": name, "model": model}
            case events.PartStart(part, call) if (
                part.kind == "text" or part.kind in events.TOOL_CALL_KINDS
            ):
                self._numbers[part] = len(self._numbers)
                tool = {"tool": call.name, "call": call.id} if call else {}
                return {"open": {"text": "", **tool}}
            case Delta(part, text) if part in self._numbers:
                return {"at": self._numbers[part], "text": text}
            case events.PartEnd(part) if part in self._numbers:
                return {"close": self._numbers[part]}
            case events.UsageReport(native=native):
                self._end["used"] = native
            case Finish(_, reason):
                self._end["end"] = WORDS.get(reason, "said")
            case events.ResponseEnd():
                return self._end
            case _:
                pass
        return None

    def _add(self, doc: Json) -> None:
        if "open" in doc:
            self._answer["notes"].append(dict(doc["open"]))
        elif "at" in doc:
            self._answer["notes"][doc["at"]]["text"] += doc["text"]
        elif "close" not in doc:
            self._answer |= {"id" if name == "begin" else name: doc[name] for name in doc}

    def encode_error(self, document: bytes) -> bytes:
        return sse.encode_event(document)


def to_chat(body: Json, *, keeps_thoughts: bool) -> tuple[Json, tuple[str, ...]]:
    messages = [{"role": note["by"], "content": note["text"]} for note in body["notes"]]
    return {**{k: body[k] for k in body if k != "notes"}, "messages": messages}, ()


def from_chat(body: Json) -> Json:
    notes = [{"by": each["role"], "text": each["content"]} for each in body["messages"]]
    return {**{k: body[k] for k in body if k != "messages"}, "notes": notes}


REQUEST = RequestConversion(to_chat=to_chat, from_chat=from_chat, rename_chat_fields=dict)
NOTES = Family(
    "notes", NoteReader, NoteWriter, True, result_list="notes", request_conversion=REQUEST
)
SAME = {name: get_fields("chat")[name] for name in ("model", "stream", "max_tokens", "tools")}
DIALECT = Dialect(
    name="notes",
    fields={"chat": {"notes": make_required(object_array()), **SAME}},
    families={"chat": "notes"},
    client=ClientDialect({("POST", "/notes"): "chat"}, openai.make_error_response),
    server=UpstreamDialect("", {"chat": "/notes"}),
)
