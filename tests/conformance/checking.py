"""A dialect's API document as data, and what holds a running proxy against it over sockets.

A document prints its ranges strictly (``0 < x < 2``) and means them inclusive, as its own defaults
lie on the bounds. Each check returns the problems that it found, so that a test shows all at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiohttp import ClientSession

from tests.conftest import KEY
from tests.doubles import ScriptedUpstream, legacy_completion, legacy_events, respond, stream, usage

Json = dict[str, Any]
Holds = Callable[[Any], bool]
TOLERANCE = 0.001
BEARER = {"authorization": f"Bearer {KEY}"}
FINGERPRINT = "fp_1"


@dataclass(frozen=True)
class Parameter:
    """A parameter with values at its inclusive bounds, and with some just outside or of a wrong
    type. ``sent`` says what an upstream of the dialect gets for a value, where it is not the same;
    null is as good as nothing, but where it ``means`` something.
    """

    name: str
    good: Sequence[Any]
    wrong: Sequence[Any] = ()
    null: bool = True
    beside: Mapping[str, Any] = field(default_factory=dict)
    sent: Callable[[Any], Json] | None = None
    means: Any = None

    def arrives(self, value: Any) -> Json:
        return {self.name: value} if self.sent is None else self.sent(value)


def number(name: str, low: float | None = None, high: float | None = None) -> Parameter:
    good = [item for item in (low, high, 0.5, 1) if item is not None]
    outside = [low - TOLERANCE] if low is not None else []
    outside += [high + TOLERANCE] if high is not None else []
    return Parameter(name, good, [*outside, "1", True, [1], {}])


def integer(
    name: str, low: int | None = None, high: int | None = None, **options: Any
) -> Parameter:
    good = [item for item in (low, high, 2) if item is not None]
    outside = [low - 1] if low is not None else []
    outside += [high + 1] if high is not None else []
    return Parameter(name, good, [*outside, 1.5, "1", True, [1]], **options)


def boolean(name: str, **options: Any) -> Parameter:
    return Parameter(name, [True, False], [1, "true", [], {}], **options)


def text(name: str, **options: Any) -> Parameter:
    return Parameter(name, ["x", "é ☃"], [1, True, ["x"], {}], **options)


def texts(name: str, **options: Any) -> Parameter:
    return Parameter(name, [["a"], ["a", "b", "c"]], [1, [1], ["a", None], {}], **options)


def mapping(name: str, value: Json | None = None, **options: Any) -> Parameter:
    return Parameter(name, [value or {"a": {"b": [1, None]}}], [1, "x", ["x"], True], **options)


def prompts(means: str | None = None) -> Parameter:
    """A required prompt. Null is accepted if it ``means`` a text."""
    good = ["p", ["a", "b"], [1, 2], [[1], [2, 3]]]
    wrong = [1, True, {}, [], ["a", 1], [[]], [1.5], [[1], "a"]]
    return Parameter("prompt", good, wrong, null=means is not None, means=means)


def stops() -> Parameter:
    return Parameter("stop", ["a", ["a"], list("abcd")], [list("abcde"), 1, [1], {}])


def biases() -> Parameter:
    bias = {"1": -100, "2": 100, "3": 0.5}
    return Parameter("logit_bias", [bias], [{"1": -101}, {"1": 101}, {"1": "x"}, [], 1])


@dataclass(frozen=True)
class Document:
    """One API document: where it is served, what it requires, and what it says of each field.

    ``reply`` is what its upstream answers, where that is no legacy completion. With ``named_first``
    an error names a field at the beginning of its message alone.
    """

    path: str
    credential: Mapping[str, str]
    deployment: str
    required: Json
    parameters: Sequence[Parameter]
    answer: Mapping[str, Holds]
    wrong_status: int = 400
    reply: Json | None = None
    named_first: bool = False

    @property
    def headers(self) -> dict[str, str]:
        return {**self.credential, "x-headrace-deployment": self.deployment}


def refused_field(document: Document, body: Json) -> str | None:
    if document.wrong_status == 422:
        place = body["detail"][0]["loc"]
        return str(place[1]) if place[:1] == ["body"] else None
    if document.named_first:
        return str(body["error"]["message"].partition(":")[0])
    param = body["error"]["param"]
    return None if param is None else str(param)


async def ask(
    document: Document, client: ClientSession, body: Json
) -> tuple[int, str, Mapping[str, str]]:
    async with client.post(document.path, headers=document.headers, json=body) as response:
        return response.status, await response.text(), response.headers


async def wrong_parameters(
    document: Document, client: ClientSession, upstream: ScriptedUpstream
) -> list[str]:
    """Send each good value, which must arrive, and each wrong one, which must be refused by name
    before anything leaves."""
    problems = []
    if document.reply is not None:
        upstream.answer_with(respond(document.reply))
    for parameter in document.parameters:
        for value in [*parameter.good, *([None] if parameter.null else [])]:
            problems += await _good(document, client, upstream, parameter, value)
        for value in [*parameter.wrong, *([] if parameter.null else [None])]:
            problems += await _wrong(document, client, upstream, parameter, value)
    return problems


async def _good(
    document: Document,
    client: ClientSession,
    upstream: ScriptedUpstream,
    parameter: Parameter,
    value: Any,
) -> list[str]:
    body = {**document.required, **parameter.beside, parameter.name: value}
    upstream.requests.clear()
    status, fields, _ = await ask(document, client, body)
    if status != 200 or len(upstream.requests) != 1:
        return [f"{parameter.name}={value!r} is refused: {status} {fields[:200]}"]
    sent_value = upstream.requests[0].json
    if value is None:
        known_values = {k: v for k, v in sent_value.items() if v is not None}
        silent = await _silent(document, client, upstream, parameter)
        return [] if known_values == silent else [f"null {parameter.name}: {known_values}"]
    return [
        f"{parameter.name}={value!r} arrives as {name}={sent_value.get(name)!r}"
        for name, expected in parameter.arrives(value).items()
        if name not in sent_value or json.dumps(sent_value[name]) != json.dumps(expected)
    ]


async def _silent(
    document: Document, client: ClientSession, upstream: ScriptedUpstream, parameter: Parameter
) -> Json:
    """Return what the upstream receives if the parameter is absent."""
    if parameter.name in document.required:
        model = upstream.requests[0].json["model"]
        return {**document.required, "model": model, parameter.name: parameter.means}
    await ask(document, client, {**document.required, **parameter.beside})
    sent_body: Json = upstream.requests[-1].json
    return sent_body


async def _wrong(
    document: Document,
    client: ClientSession,
    upstream: ScriptedUpstream,
    parameter: Parameter,
    value: Any,
) -> list[str]:
    body = {**document.required, **parameter.beside, parameter.name: value}
    upstream.requests.clear()
    status, fields, _ = await ask(document, client, body)
    output = f"{parameter.name}={value!r}"
    if upstream.requests:
        return [f"{output} is sent on"]
    if status != document.wrong_status:
        return [f"{output} is answered with {status}: {fields[:200]}"]
    name = refused_field(document, json.loads(fields))
    return [] if name == parameter.name else [f"{output}: the error names {name}"]


async def missing_fields(document: Document, client: ClientSession) -> list[str]:
    """Omit each required field that must not be null."""
    problems = []
    never_null = {parameter.name for parameter in document.parameters if not parameter.null}
    for name in document.required.keys() & never_null:
        body = {k: v for k, v in document.required.items() if k != name}
        status, fields, _ = await ask(document, client, body)
        if status != document.wrong_status or refused_field(document, json.loads(fields)) != name:
            problems.append(f"without {name}: {status} {fields[:200]}")
    return problems


async def without_credential(document: Document, client: ClientSession) -> int:
    async with client.post(document.path, json=document.required) as response:
        return response.status


def wrong_fields(document: Document, data: Json, *, absent: Sequence[str] = ()) -> list[str]:
    return [
        f"{name}: {data.get(name)!r}"
        for name, holds in document.answer.items()
        if name not in absent and (name not in data or not holds(data[name]))
    ]


async def whole_answer(
    document: Document, client: ClientSession, upstream: ScriptedUpstream
) -> Json:
    upstream.answer_with(respond(legacy_completion(system_fingerprint=FINGERPRINT)))
    status, fields, _ = await ask(document, client, document.required)
    assert status == 200, fields
    data: Json = json.loads(fields)
    return data


async def streamed_answer(
    document: Document,
    client: ClientSession,
    upstream: ScriptedUpstream,
    *,
    is_done: bool = True,
    **request: Any,
) -> tuple[list[Json], bool]:
    """Return the events that a client gets, and whether they end with ``[DONE]``."""
    events = [
        {**legacy_event, "system_fingerprint": FINGERPRINT}
        for legacy_event in legacy_events(" Par", "is.")
    ]
    upstream.answer_with(stream(events, is_done=is_done))
    status, fields, headers = await ask(
        document, client, {**document.required, "stream": True, **request}
    )
    assert (status, headers["content-type"].split(";")[0]) == (200, "text/event-stream"), fields
    parts = [part.removeprefix("data: ") for part in fields.split("\n\n") if part]
    ended = parts[-1:] == ["[DONE]"]
    return [json.loads(part) for part in (parts[:-1] if ended else parts)], ended


def is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def is_usage(value: Any) -> bool:
    return isinstance(value, dict) and {k: value.get(k) for k in usage()} == usage()


def is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def are_choices(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(item, dict)
        and type(item.get("index")) is int
        and isinstance(item.get("text"), str)
        and "logprobs" in item
        and item.get("finish_reason") in (None, "stop", "length", "content_filter")
        for item in value
    )


COMPLETION: Mapping[str, Holds] = {
    "id": is_text,
    "object": lambda value: value == "text_completion",
    "created": is_count,
    "model": is_text,
    "choices": are_choices,
    "usage": is_usage,
}
"""The fields of an answer that four of the five documents have."""


def texts_of(events: Sequence[Json]) -> str:
    return "".join(choice["text"] for event in events for choice in event["choices"])


async def wrong_streams(
    document: Document, client: ClientSession, upstream: ScriptedUpstream
) -> list[str]:
    """Check streamed events, with and without usage, against the document."""
    problems = []
    askings: list[Json] = [{}, {"stream_options": {"include_usage": True}}]
    for asking in askings:
        events, _ = await streamed_answer(document, client, upstream, **asking)
        *other_items, last_document = events
        bare = last_document["choices"] == []
        if bare is not bool(asking):
            problems.append(f"usage with {asking}: {last_document.get('usage')}")
        for item in events if not bare else other_items:
            problems += wrong_fields(document, item, absent=["usage"])
        if bare and not is_usage(last_document.get("usage")):
            problems.append(f"usage: {last_document.get('usage')}")
        if texts_of(events) != " Paris.":
            problems.append(texts_of(events))
    return problems
