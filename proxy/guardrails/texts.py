"""Every text of a request and of an answer, in OpenAI's form, and a copy with texts changed.

What is not known to be without text is text: names no table has, at any depth, keys as well as
values. ``REQUEST`` and ``ANSWER`` only say of which kind the fields are that are known; what is
never looked at stands in ``SILENT`` with its reason. What cannot be read at all is reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from proxy.guardrails.arguments import segments
from proxy.types import Json

REQUEST: Mapping[str, str] = {
    "messages": "content",
    "prompt": "prompt",
    "input": "prompt",
    "suffix": "suffix",
    "prediction": "prediction",
    "context": "context",
    "enkrypt_context": "context",
    "tools": "tool",
    "functions": "tool",
    "tool_choice": "tool",
    "function_call": "tool",
    "web_search_options": "tool",
    "response_format": "schema",
    "guided_choice": "schema",
    "guided_grammar": "schema",
    "guided_json": "schema",
    "guided_regex": "schema",
    "stop": "stop",
    "stop_sequences": "stop",
    "metadata": "metadata",
    "inference_extra_headers": "metadata",
    "inference_extra_params": "other",
    "logit_bias": "other",
    "stream_options": "other",
    "user": "user",
    "safety_identifier": "user",
    "prompt_cache_key": "user",
    "prompt_cache_isolation_key": "user",
    "audio": "other",
    "context_length_exceeded_behavior": "other",
    "encoding_format": "other",
    "images": "other",
    "modalities": "other",
    "reasoning_effort": "other",
    "service_tier": "other",
    "verbosity": "other",
}
"""The kind of each request field that may hold text; one that is not here is ``other``."""

NESTED: Mapping[str, str] = {
    "name": "name",
    "arguments": "arguments",
    "refusal": "refusal",
    "reasoning": "reasoning",
    "reasoning_content": "reasoning",
    "thinking": "reasoning",
    "tool_calls": "tool",
    "function_call": "tool",
}
"""The kind of what stands under a name inside of messages and choices."""

SILENT: Mapping[str, str] = {"model": "names a model of the policy; the target's name is sent"}
"""Request fields that are never looked at, and why."""

SILENT_ANSWER: Mapping[str, str] = {
    "id": "given by the upstream to tell answers and calls apart",
    "object": "the kind of document",
    "created": "a time",
    "model": "which model has answered",
    "system_fingerprint": "which build of the model has answered",
    "service_tier": "how the upstream has ranked the call",
    "usage": "counts",
    "index": "a number",
    "finish_reason": "of a closed set",
    "embedding": "numbers, be they written in base64",
}
"""Names in answers that are never looked at, at any depth, and why."""

KINDS = frozenset({"content", "other", "logprobs"} | {*REQUEST.values()} | {*NESTED.values()})
"""The kinds of text that a rule can be narrowed to."""

ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})

_SAYS_TYPE = frozenset({"type", "role", "object", "detail", "encoding_format"})
_WORDS = ROLES | {
    "array", "auto", "boolean", "custom", "ephemeral", "float", "function", "high", "image_url",
    "input_audio", "input_text", "integer", "json_object", "json_schema", "low", "null", "number",
    "object", "output_text", "refusal", "string", "text",
}  # fmt: skip
_KEYS = (
    frozenset(REQUEST) | NESTED.keys() | SILENT.keys() | SILENT_ANSWER.keys() | _SAYS_TYPE
) | {
    "additionalProperties", "annotations", "anyOf", "best_of", "cache_control", "content", "data",
    "default", "delta", "description", "echo", "enum", "examples", "file", "format",
    "frequency_penalty", "function", "image_url", "include_usage", "input_audio", "items",
    "json_schema", "logprobs", "max_completion_tokens", "max_tokens", "maximum", "message",
    "minimum", "n", "parallel_tool_calls", "parameters", "presence_penalty", "properties",
    "required", "schema", "seed", "store", "stream", "strict", "temperature", "text",
    "tool_call_id", "top_logprobs", "top_p", "url",
}  # fmt: skip
_OPAQUE = frozenset(
    {"audio", "document", "file", "file_data", "file_id", "image", "image_url", "images",
     "input_audio", "input_file", "input_image", "video", "video_url"}
)  # fmt: skip
_PAYLOAD = frozenset({"b64_json", "bytes", "data", "file_data"})
_FORMS = frozenset({"arguments", "metadata", "schema", "tool"})  # numbers and names of any meaning


@dataclass(frozen=True, slots=True)
class Key:
    """The name of a member, as the last step of a path."""

    name: str


Path = tuple[str | int | Key, ...]


class Text(NamedTuple):
    """One text and its place. A number after a text's place is a segment of its arguments.

    ``escaped`` says that it stands inside of a JSON string, and is written as there.
    """

    path: Path
    text: str
    kind: str
    role: str | None = None
    escaped: bool = False


@dataclass(frozen=True, slots=True)
class Opaque:
    """A place that no guard of texts can read: tokens, images, audio, files."""

    path: Path
    kind: str


@dataclass(frozen=True, slots=True)
class Texts:
    """What there is to read, in its order, and what cannot be read."""

    texts: tuple[Text, ...]
    opaque: tuple[Opaque, ...] = ()


class _Place(NamedTuple):
    path: Path
    value: Any
    kind: str
    role: str | None
    sealed: bool = False  # inside of what is reported as opaque


def request_texts(body: Json) -> Texts:
    """Give all texts of a request in the order in which they stand."""
    places: list[_Place] = []
    opaque: list[Opaque] = []
    for name, value in body.items():
        if name in SILENT:
            continue
        kind = REQUEST.get(name, "other")
        role = "user" if kind in ("prompt", "suffix") else None
        sealed = name in _OPAQUE and name != "audio"  # there it is how an answer is to sound
        if sealed and value:
            opaque.append(Opaque((name,), name))
        if name not in _KEYS:
            places.append(_Place((Key(name),), name, "other", None))
        places.append(_Place((name,), value, kind, role, sealed))
    return _walked(places, opaque, frozenset())


def answer_texts(data: Json, *, cut: bool = False) -> Texts:
    """Give all texts of an answer; ``cut``: of one chunk of a stream, whose arguments are cut."""
    places = [
        _Place((name,), value, "content" if name == "choices" else "other", "assistant")
        for name, value in data.items()
        if name not in SILENT_ANSWER
    ]
    return _walked(places, [], frozenset(SILENT_ANSWER), cut=cut)


def _walked(
    places: list[_Place], opaque: list[Opaque], silent: frozenset[str], *, cut: bool = False
) -> Texts:
    texts: list[Text] = []
    stack = places[::-1]  # no recursion: an upstream chooses how deep its answers are
    while stack:
        place = stack.pop()
        value = place.value
        if isinstance(value, str):
            _read(place, texts, opaque, cut)
        elif isinstance(value, dict):
            stack += reversed([*_members(place, value, silent, opaque)])
        elif isinstance(value, list):
            if _tokens(place, value):
                opaque.append(Opaque(place.path, "tokens"))
            else:
                stack += reversed([*_items(place, value)])
    return Texts(tuple(texts), tuple(opaque))


def _read(place: _Place, texts: list[Text], opaque: list[Opaque], cut: bool) -> None:
    text, path = place.value, place.path
    last = path[-1]
    if not text or (text in _WORDS and last in _SAYS_TYPE):
        return
    if text.startswith("data:") and ";base64," in text[:200]:
        if not place.sealed:
            opaque.append(Opaque(path, "data"))
    elif place.sealed and last in _PAYLOAD:
        return
    elif last == "arguments" and not cut:
        for number, (start, end, kind) in enumerate(segments(text)):
            said = text[start:end]
            whole = (*path, number)
            texts.append(Text(whole, said, "arguments", place.role, escaped=kind == "string"))
    else:
        texts.append(Text(path, text, place.kind, place.role))


def _tokens(place: _Place, value: list[Any]) -> bool:
    if not value or place.kind in _FORMS or place.path[-1] == "stop_token_ids":
        return False
    return all(type(each) is int for each in value)


def _items(place: _Place, value: list[Any]) -> Iterator[_Place]:
    for number, each in enumerate(value):
        yield _Place((*place.path, number), each, place.kind, place.role, place.sealed)


def _members(
    place: _Place, value: Json, silent: frozenset[str], opaque: list[Opaque]
) -> Iterator[_Place]:
    role = place.role
    if place.path[0] == "messages" and len(place.path) == 2 and isinstance(value.get("role"), str):
        role = value["role"]
    for name, each in value.items():
        path = (*place.path, name)
        if name in silent:
            continue
        if name == "logprobs" and place.path[0] == "choices":
            yield from _logprobs(path, each, value, role)
            continue
        if name not in _KEYS:
            yield _Place((*place.path, Key(name)), name, place.kind, role, place.sealed)
        sealed = place.sealed or (name in _OPAQUE and place.kind not in _FORMS)
        if sealed and not place.sealed and each:
            opaque.append(Opaque(path, name))
        inside = place.path[0] in ("messages", "choices") and place.kind not in _FORMS
        kind = NESTED.get(name, place.kind) if inside or name == "arguments" else place.kind
        yield _Place(path, each, kind, role, sealed)


def _logprobs(path: Path, logprobs: Any, choice: Json, role: str | None) -> Iterator[_Place]:
    """Give tokens that the text does not show: all of them together, as one text."""
    chosen, others = spelled(logprobs)
    message = choice.get("message") or choice.get("delta") or choice
    shown = message.get("content", message.get("text")) if isinstance(message, dict) else None
    said = [*([] if chosen == shown else [chosen]), *others]
    if any(said):
        yield _Place(path, "\n".join(said), "logprobs", role)


def spelled(logprobs: Any) -> tuple[str, list[str]]:
    """Give what the chosen tokens spell, and every token that was not chosen, in either form."""
    if not isinstance(logprobs, dict):
        return "", []
    chosen: list[str] = []
    others: list[str] = []
    for part in ("tokens", "content", "refusal"):
        for each in logprobs.get(part) or ():
            token = each.get("token") if isinstance(each, dict) else each
            chosen.append(token if isinstance(token, str) else "")
            tops = each.get("top_logprobs") if isinstance(each, dict) else None
            others += (str(top.get("token")) for top in tops or () if isinstance(top, dict))
    for tops in logprobs.get("top_logprobs") or ():
        others += map(str, tops or ())
    return "".join(chosen), [each for each in dict.fromkeys(others) if each not in chosen]
