"""Converts documents of chat and of legacy completions.

The chunks of a stream are merged into a whole response, a whole response is cut into chunks, and
both families are converted into each other with their log-probabilities. Legacy completions have
lists of tokens, chat has a list of objects. Scale's servers and llama.cpp write chat's format into
legacy completions too. An invalid form is kept or removed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from itertools import accumulate
from typing import Any

from proxy.dialects import DIALECTS
from proxy.dialects.chat.requests import move_texts_to_members
from proxy.dialects.chat.tool_calls import ToolCallNumbering
from proxy.dialects.family import WriteOptions
from proxy.dialects.wire.strict_json import as_int, as_object, as_objects, as_text
from proxy.errors import UpstreamInvalid
from proxy.types import Json
from proxy.types.events import FamilyName, get_index

CHUNK_OBJECT, WHOLE_OBJECT = "chat.completion.chunk", "chat.completion"
_REPLACED_STRINGS = frozenset({"finish_reason", "id", "name", "object", "role", "type"})
"""Strings that a later chunk repeats or replaces. All other strings are continued."""
_PART_LISTS = frozenset({"content", "thinking"})  # members that are a text or a list of parts
_JOINED_PARTS = {"text": {"type", "text"}, "thinking": {"type", "thinking", "closed"}}
"""Members of the content parts that a later chunk may continue, by type."""


def merge_chunks(chunks: Iterable[Json]) -> Json:
    """Return the whole response, with id, time and model of the first chunk."""
    response: Json = {}
    choices: dict[int, Any] = {}
    numbers: defaultdict[int, ToolCallNumbering] = defaultdict(ToolCallNumbering)
    for chunk in chunks:
        added = chunk.get("choices")
        for position, choice in enumerate(added if isinstance(added, list) else ()):
            if isinstance(choice, dict):
                index = as_int(choice.get("index"))
                renumbered = _renumber_tool_calls(choice, numbers[get_index(choice, position)])
                choices[index] = _merge_values("choice", choices.get(index), renumbered)
        for name, value in chunk.items():
            is_new = name != "choices" and response.get(name) is None
            if is_new or (name == "usage" and value is not None):
                response[name] = value
    is_chat = response.get("object") == CHUNK_OBJECT
    if is_chat:
        response["object"] = WHOLE_OBJECT
    plain = [_to_plain_json(choices[index]) for index in sorted(choices)]
    response["choices"] = [*map(_make_whole_choice, plain)] if is_chat else plain
    if response.get("usage", response) is None:
        del response["usage"]
    return response


def _renumber_tool_calls(choice: Json, numbers: ToolCallNumbering) -> Json:
    delta = as_object(choice.get("delta"))
    calls = delta.get("tool_calls")
    if not isinstance(calls, list):
        return choice
    renumbered: list[Any] = []
    indexes: set[object] = set()
    for position, call in enumerate(calls):
        is_call = isinstance(call, dict)
        renumbered.append(numbers.renumber_fragment(call, position, indexes) if is_call else call)
        indexes.add(renumbered[-1]["index"] if is_call else None)
    return {**choice, "delta": {**delta, "tool_calls": renumbered}}


class _TextPieces(list[str]):
    """A text in pieces, which are joined once, however many there are."""


class _MergedObject(dict[str, Any]):
    """An object to which later chunks add."""


class _MergedList:
    """A list to which later chunks add.

    Items with the same ``index`` (tool calls) are merged, and so are consecutive parts of one
    type.
    """

    __slots__ = ("_positions", "items")

    def __init__(self, values: list[Any]) -> None:
        self.items = [*values]
        self._positions: dict[Any, int] = {}
        for position, value in enumerate(values):
            self._positions.setdefault(_get_index(value), position)

    def add_item(self, value: Any) -> None:
        index = _get_index(value)
        position = None if index is None else self._positions.get(index)
        if index is None and self.items and _is_continued_part(self.items[-1], value):
            self.items[-1] = _merge_values("part", self.items[-1], value)
        elif position is None:
            self._positions.setdefault(index, len(self.items))
            self.items.append(value)
        else:
            self.items[position] = _merge_values("item", self.items[position], value)


def _get_index(item: Any) -> Any:
    index = item.get("index") if isinstance(item, dict) else None
    return None if isinstance(index, list | dict) else index


def _merge_values(name: str, old: Any, new: Any) -> Any:
    # Values of the chunks are not changed.
    if old is None or new is None:
        return old if new is None else new
    if isinstance(old, dict) and isinstance(new, dict):
        fields = old if isinstance(old, _MergedObject) else _MergedObject(old)
        for key, value in new.items():
            fields[key] = _merge_values(key, fields.get(key), value)
        return fields
    if _is_list_or_merged_list(old) and isinstance(new, list):
        items = old if isinstance(old, _MergedList) else _MergedList(old)
        for value in new:
            items.add_item(value)
        return items
    if _is_text(old) and isinstance(new, str):
        return (new or old) if name in _REPLACED_STRINGS else _append_text(old, new)
    if name in _PART_LISTS and all(
        _is_text(value) or _is_list_or_merged_list(value) for value in (old, new)
    ):
        return _merge_values(name, _wrap_text_in_part(old), _wrap_text_in_part(new)) if new else old
    return old if _is_text(old) and name not in _REPLACED_STRINGS else new


def _append_text(old: str | _TextPieces, new: str) -> _TextPieces:
    text = old if isinstance(old, _TextPieces) else _TextPieces((old,))
    text.append(new)
    return text


def _is_text(value: Any) -> bool:
    return isinstance(value, str | _TextPieces)


def _is_list_or_merged_list(value: Any) -> bool:
    return type(value) is list or isinstance(value, _MergedList)


def _wrap_text_in_part(value: Any) -> Any:
    """Return a text as a list of one part, or of none if it is empty."""
    if not _is_text(value):
        return value
    text = "".join(value)
    return [{"type": "text", "text": text}] if text else []


def _is_continued_part(last_value: Any, part: Any) -> bool:
    """Return True if a part of a text or of thoughts continues the one before it."""
    if not (isinstance(last_value, dict) and isinstance(part, dict)):
        return False
    kind = as_text(part.get("type"))
    if last_value.get("type") != kind or kind not in _JOINED_PARTS:
        return False
    is_list = kind in _PART_LISTS or (_is_text(last_value.get(kind)) and _is_text(part.get(kind)))
    return is_list and (last_value.keys() | part.keys()) <= _JOINED_PARTS[kind]


def _to_plain_json(value: Any) -> Any:
    if isinstance(value, _MergedObject):
        return {name: _to_plain_json(member) for name, member in value.items()}
    if isinstance(value, _MergedList):
        return [_to_plain_json(item) for item in value.items]
    return "".join(value) if isinstance(value, _TextPieces) else value


def _make_whole_choice(choice: Json) -> Json:
    message = {"role": "assistant", "content": None, **as_object(choice.get("delta"))}
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        message["tool_calls"] = [
            {name: value for name, value in call.items() if name != "index"}
            if isinstance(call, dict)
            else call
            for call in calls
        ]
        message["content"] = message["content"] or None
    other_members = {name: value for name, value in choice.items() if name != "delta"}
    return {"index": other_members.pop("index", 0), "message": message, **other_members}


def split_into_chunks(doc: Json) -> list[Json]:
    """Return the chunks of a whole response, for a client that requested a stream."""
    is_chat = doc.get("object") in (WHOLE_OBJECT, CHUNK_OBJECT)
    choices = get_choices(doc)
    if doc.get("object") == WHOLE_OBJECT:
        choices = [*map(_make_delta_choice, choices)]
    kind = CHUNK_OBJECT if is_chat else "text_completion"
    head = {k: v for k, v in doc.items() if k not in ("choices", "usage", "object")}
    chunks: list[Json] = [{**head, "object": kind, "choices": choices}]
    if doc.get("usage") is not None:
        chunks.append({**head, "object": kind, "choices": [], "usage": doc["usage"]})
    return chunks


def _make_delta_choice(choice: Json) -> Json:
    message = get_message(choice)
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        numbered = [{**c, "index": n} for n, c in enumerate(calls) if isinstance(c, dict)]
        message = message | {"tool_calls": numbered}
    return {**{k: v for k, v in choice.items() if k != "message"}, "delta": message}


def get_choices(doc: Json) -> list[Json]:
    return as_objects(doc.get("choices"))


def get_message(choice: Json, *, is_chunk: bool = False) -> Json:
    """Return the message or the delta of a choice. Raises ``UpstreamInvalid``."""
    delta = choice.get("delta")
    message = (is_chunk and delta) or choice.get("message") or delta or {}
    if not isinstance(message, dict):
        raise UpstreamInvalid("The upstream sent a choice whose message is not an object.")
    return message


Converter = Callable[[Json], Json | None]
"""Returns a document in the form of the client, None for a document to omit."""


def make_converter_for_client(
    options: WriteOptions, client_family: FamilyName, upstream_family: FamilyName
) -> Converter | None:
    """Return the converter of a family's documents for a client, None if they stay unchanged."""
    if client_family == "chat" and upstream_family == "completions":
        return partial(convert_legacy_to_chat, None if options.whole else set())
    if client_family != "completions":
        return None
    if upstream_family == "chat":
        return partial(convert_chat_to_legacy, {})
    call = options.call
    takes_any = options.complete or DIALECTS[call.head.dialect].client.accepts_chat_logprobs
    has_logprobs = call.body.get("logprobs") is not None
    return partial(convert_logprobs_to_legacy, {}) if has_logprobs and not takes_any else None


TextLengths = dict[int, int]
"""Lengths of the texts of a stream's choices so far, in characters."""


def _advance_text_offset(lengths: TextLengths, choice: Json, text: Any) -> int:
    """Return the offset of a text in its choice, then add its length."""
    number = get_index(choice, 0)
    begin = lengths.get(number, 0)
    lengths[number] = begin + len(as_text(text))
    return begin


def convert_chat_to_legacy(lengths: TextLengths, doc: Json) -> Json | None:
    """Return a legacy document, None for a chunk without text, finish reason and usage.

    Tool calls, refusal and reasoning of a message become members of the choice.
    """
    choices, is_chunk = list[Json](), doc.get("object") == CHUNK_OBJECT
    for choice in get_choices(doc):
        message = move_texts_to_members(get_message(choice, is_chunk=is_chunk))
        text = message.get("content") or ""
        begin = _advance_text_offset(lengths, choice, text)
        legacy: Json = {"index": choice.get("index", 0), "text": text}
        legacy["logprobs"] = to_legacy_logprobs(choice.get("logprobs"), begin)
        legacy["finish_reason"] = choice.get("finish_reason")
        other_members = {k: v for k, v in message.items() if k not in ("role", "content") and v}
        choices.append({**legacy, **other_members})
    has_text = any(c["text"] or c["finish_reason"] is not None or len(c) > 4 for c in choices)
    if choices and not has_text and not doc.get("usage"):
        return None
    return {**doc, "object": "text_completion", "choices": choices}


def convert_legacy_to_chat(begun: set[int] | None, doc: Json) -> Json:
    """Return a chat document. The first chunk of a choice has the role.

    ``begun``: the choices of a stream that have begun. None for a whole response.
    """
    kind, holder = (WHOLE_OBJECT, "message") if begun is None else (CHUNK_OBJECT, "delta")
    choices: list[Json] = []
    for choice in get_choices(doc):
        number = get_index(choice, 0)
        role = {"role": "assistant"} if begun is None or number not in begun else {}
        message: Json = {**role, "content": choice.get("text") or ""}
        if begun is not None:
            begun.add(number)
        chat = {"index": choice.get("index", 0), holder: message}
        chat["logprobs"] = to_chat_logprobs(choice.get("logprobs"))
        choices.append({**chat, "finish_reason": choice.get("finish_reason")})
    return {**doc, "object": kind, "choices": choices}


def convert_logprobs_to_legacy(lengths: TextLengths, doc: Json) -> Json:
    """Return a legacy document with legacy log-probabilities, or ``doc`` if it has no others."""
    is_changed, choices = False, []
    for choice in doc["choices"] if isinstance(doc.get("choices"), list) else ():
        if isinstance(choice, dict):
            begin = _advance_text_offset(lengths, choice, choice.get("text"))
            logprobs = to_legacy_logprobs(choice.get("logprobs"), begin)
            if logprobs is not None:
                is_changed, choice = True, {**choice, "logprobs": logprobs}  # noqa: PLW2901
        choices.append(choice)
    return {**doc, "choices": choices} if is_changed else doc


def to_legacy_logprobs(logprobs: Any, begin: int) -> Json | None:
    """Return log-probabilities in chat's format as legacy lists, None for any other format.

    ``begin`` is the position of the first token in the text of the choice.
    """
    content = as_object(logprobs).get("content")
    if not isinstance(content, list):
        return None
    content = as_objects(content)
    tokens = [as_text(item.get("token")) for item in content]
    tops = [as_objects(item.get("top_logprobs")) for item in content]
    return {
        "tokens": tokens,
        "token_logprobs": [item.get("logprob") for item in content],
        "top_logprobs": [{str(t.get("token")): t.get("logprob") for t in top} for top in tops],
        "text_offset": [*accumulate(map(len, tokens[:-1]), initial=begin)] if tokens else [],
    }


def to_chat_logprobs(logprobs: Any) -> Any:
    """Return legacy lists of log-probabilities in chat's format. Other values stay unchanged."""
    if not isinstance(logprobs, dict) or "content" in logprobs:
        return logprobs
    tokens, chosen, tops = (
        value if isinstance(value := logprobs.get(name), list) else []
        for name in ("tokens", "token_logprobs", "top_logprobs")
    )
    empty = [None] * len(tokens)
    content: list[Json] = []
    for token, logprob, top in zip(tokens, chosen or empty, tops or empty, strict=False):
        alternatives = [_make_token_entry(*entry) for entry in as_object(top).items()]
        content.append({**_make_token_entry(token, logprob), "top_logprobs": alternatives})
    return {"content": content}


def _make_token_entry(token: Any, logprob: Any) -> Json:
    spelling = list(token.encode()) if isinstance(token, str) else None
    return {"token": token, "logprob": logprob, "bytes": spelling}
