"""Values that guards must find, the forms and members that hide them, and an independent reader.

The reader shares no code with the product. It reads every string, name and part, joins the strings
of chunks at one path, and decodes each form listed here.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any
from urllib.parse import unquote_to_bytes

from tests.guards.text.test_walk import MARK, SHAPES

Form = Callable[[str], str]

VALUES: Mapping[str, str] = {
    "words": "forbidden",
    "secrets": "AKIA" + "Z7VRSQ5TJN2XMPLQ",
    "cards": "4111111111111111",
}
MEDIA = ("text/plain", "text/html", "application/json", "image/svg+xml", "image/png", "x/odd", "")
CHARSETS = ("", "utf-8", "utf-16", "utf-16le", "UTF-16BE", "iso-8859-1", "windows-1252", "no-such")


def _url(media: str, charset: str, payload: str) -> str:
    return f"data:{media}{charset and f';charset={charset}'};base64,{payload}"


def _base64(text: str, charset: str = "") -> str:
    codec = "utf-8" if charset in ("", "no-such") else charset
    return base64.b64encode(text.encode(codec)).decode()


def _encode_data(media: str, charset: str) -> Form:
    return lambda value: _url(media, charset, _base64(value, charset))


def _write_data(media: str, charset: str) -> Form:
    return lambda value: _url(media, charset, value + "A" * (-len(value) % 4))


PLAIN: Mapping[str, Form] = {
    "alone": lambda value: value,
    "in words": lambda value: f"see {value} now",
    "with escapes of JSON": lambda value: "".join(f"\\u{ord(letter):04x}" for letter in value),
    "in base64": lambda value: _base64(f"please look at {value} today"),
    "in wide base64": lambda value: _base64(f"see {value} now", "utf-16le"),
    "in a data URL without base64": lambda value: f"data:text/plain,{value}",
    "in percents": lambda value: "data:," + "".join(f"%{ord(letter):02x}" for letter in value),
    "as a media type": lambda value: f"data:image/{value.lower()};base64,QUJD",
    "as a charset": lambda value: _url("text/plain", value, "QUJD"),
    "as a name in a data URL": lambda value: f"data:text/plain;name={value};base64,QUJD",
    "in words of base64": lambda value: _url("text/plain", "", f"see/{value}/now/or"),
}
URLS: Mapping[str, Form] = {
    f"{verb} {media or 'nothing'} {charset}": form(media, charset)
    for (verb, form), media, charset in product(
        {"encoded as": _encode_data, "written as": _write_data}.items(), MEDIA, CHARSETS
    )
}
FORMS = {**PLAIN, **URLS}


def keeps_value(form: str, name: str) -> bool:
    """Return True if a form keeps a value unchanged. A media type has no capitals."""
    return VALUES[name].islower() or VALUES[name].isdigit() or form != "as a media type"


def _message(content: Any) -> Any:
    return {"messages": [{"role": "user", "content": content}]}


REQUESTS: Sequence[Any] = (
    *({"unknown": shape} for shape in SHAPES),
    *({"messages": shape} for shape in SHAPES if isinstance(shape, list)),
    {"prompt": MARK},
    {"prompt": [MARK]},
    {"metadata": {"k": MARK}},
    {"metadata": {MARK: "k"}},
    {MARK: 1},
    {"audio": {"voice": MARK}},
    {"response_format": {"json_schema": {"schema": {"title": MARK}}}},
    {"tools": [{"function": {"parameters": {"properties": {"image": {"default": MARK}}}}}]},
    _message([{"type": "image_url", "image_url": {"url": MARK}}]),
    _message([{"type": "image_url", "image_url": MARK}]),
    _message([{"type": "file", "file": {"filename": MARK, "file_data": "AAAA"}}]),
    _message([{"type": "file", "file": {"file_data": MARK}}]),
    _message([{"type": "input_audio", "input_audio": {"data": MARK, "format": "wav"}}]),
    _message([{"type": "input_audio", "input_audio": {"data": "AA", "format": MARK}}]),
    _message([{"source": {"type": "base64", "media_type": MARK, "data": "AA"}, "type": "image"}]),
    _message([{"type": "document", "document": {"title": MARK, "data": "AAAA"}}]),
    {"images": [MARK]},
    {"images": [{"url": MARK}]},
    {"documents": [{"text": MARK}]},
    {"video": {"url": MARK}},
)


def _choice(**choice: Any) -> Any:
    return {"choices": [{"index": 0, **choice}]}


def _call(**call: Any) -> Any:
    return _choice(delta={"tool_calls": [{"index": 0, **call}]})


RESPONSES: Sequence[Any] = (
    {"x": MARK},
    {"x": {"y": MARK}},
    {"x": [MARK]},
    {"x": [{"y": {"z": [MARK]}}]},
    {"x": {"arguments": MARK}},
    {MARK: 1},
    {"x": {MARK: 1}},
    {"usage": MARK},
    {"usage": {"note": MARK}},
    {"usage": {MARK: 1}},
    *({name: [MARK]} for name in ("id", "object", "model", "created", "system_fingerprint")),
    *({name: {"x": MARK}} for name in ("id", "object", "model", "created", "service_tier")),
    *({name: MARK} for name in ("name", "role", "type", "logprobs", "delta", "error", "created")),
    {"choices": MARK},
    {"choices": [MARK]},
    {"choices": [[MARK]]},
    {"choices": {"0": {"delta": {"content": MARK}}}},
    {"data": [{"object": [MARK]}]},
    *(_choice(**{name: MARK}) for name in ("index", "finish_reason", "delta", "message", "text")),
    *(_choice(**{name: MARK}) for name in ("name", "type", "role", "x", "logprobs")),
    _choice(x=[{"y": MARK}]),
    _choice(text=[MARK]),
    _choice(message={"content": MARK}),
    _choice(delta=[MARK]),
    *(_choice(delta={name: MARK}) for name in ("content", "role", "refusal", "name", "x")),
    *(_choice(delta={name: MARK}) for name in ("reasoning", "reasoning_content", "logprobs")),
    _choice(delta={MARK: 1}),
    _choice(delta={"x": {"y": [MARK]}}),
    _choice(delta={"content": [MARK]}),
    _choice(delta={"content": [{"type": "text", "text": MARK}]}),
    _choice(delta={"content": [{"type": MARK, "text": "a"}]}),
    _choice(delta={"content": [{"type": "thinking", "thinking": [{"text": MARK}]}]}),
    _choice(delta={"content": [{"thinking": [{"type": "text"}, {"text": MARK}]}]}),
    _choice(delta={"parts": [{"text": MARK}]}),
    _choice(delta={"audio": {"transcript": MARK}}),
    _choice(delta={"audio": {"data": MARK}}),
    _choice(delta={"annotations": [{"url_citation": {"title": MARK}}]}),
    _choice(delta={"reasoning_details": [{"type": "reasoning.text", "text": MARK, "index": 0}]}),
    _choice(delta={"function_call": {"name": MARK}}),
    _choice(delta={"function_call": {"arguments": MARK}}),
    _choice(delta={"tool_calls": MARK}),
    _choice(logprobs={"content": [{"token": MARK}]}),
    _call(type=MARK),
    _call(function={"name": MARK}),
    _call(function={"arguments": MARK}),
    _call(function={"arguments": {"x": [MARK]}}),
    _call(custom={"name": "f", "input": MARK}),
)


def _text_path(path: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the path at which a text continues. Parts of a content are one text."""
    part = path[:-1] if path[-1:] == ("text",) else path
    in_parts = part[-2:-1] != () and part[-2] in ("content", "parts", "system", "thinking")
    return part[:-1] if in_parts else path


def _names_and_texts(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, str]]:
    """Yield each string with its path. Names have None, because they do not continue."""
    if isinstance(value, str):
        yield _text_path(path), value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield None, name
            yield from _names_and_texts(inner, (*path, name))
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            index = inner.get("index") if isinstance(inner, dict) else None
            step = str(index) if isinstance(index, str | int | float) else position
            yield from _names_and_texts(inner, (*path, step))


def _decode(text: str) -> Iterator[str]:
    """Yield the text decoded from each form."""
    yield text
    yield unquote_to_bytes(text).decode("latin-1")
    yield re.sub(r"\\u([0-9a-f]{4})", lambda match: chr(int(match[1], 16)), text)
    for run in re.findall(r"[A-Za-z0-9+/_-]{8,}", text):
        try:
            raw = base64.b64decode(run + "=" * (-len(run) % 4))
        except binascii.Error:
            continue
        for charset in ("latin-1", "utf-16le", "utf-16be"):
            yield raw.decode(charset, "replace")


def find_text_with(documents: Sequence[Any], value: str) -> str | None:
    """Return a text that contains a value, or None.

    The documents are one response, or the chunks of a stream, whose strings at one path are joined.
    """
    joined: dict[Any, str] = {}
    names: list[str] = []
    for document in documents:
        for path, text in _names_and_texts(json.loads(json.dumps(document))):
            if path is None:
                names.append(text)
            else:
                joined[path] = joined.get(path, "") + text
    neighbor = r"\d" if value.isdigit() else r"\0"  # a part of a longer number does not count
    pattern = re.compile(f"(?<!{neighbor}){value}(?!{neighbor})", re.IGNORECASE)
    for text in (*names, *joined.values()):
        if any(map(pattern.search, _decode(text))):
            return text
    return None
