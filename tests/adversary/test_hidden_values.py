"""Searches for members, encodings and cuts of a text in which guards miss a value.

An independent reader looks for the value in what a blocking or masking guard lets pass.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count, cycle, islice, product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.guards.engine import Engine, Inspection
from proxy.guards.text.documents import collect_request_texts, collect_response_texts
from proxy.guards.text.replace import replace_texts
from proxy.guards.text.walk import Texts
from proxy.types.guard import Action, GuardRule
from tests.adversary.client_readers import read_documents
from tests.adversary.hidden_values import (
    FORMS,
    PLAIN,
    REQUESTS,
    RESPONSES,
    URLS,
    VALUES,
    find_text_with,
    keeps_value,
)
from tests.adversary.test_hidden_words import NAMES, build_event, text_choice
from tests.adversary.test_hidden_words import STREAMED as STREAMED_ROUTES
from tests.doubles import Json, ScriptedUpstream, chat, legacy_completion, respond, stream
from tests.for_each import for_each
from tests.guards.calls import ask_route, guarded
from tests.guards.doubles import Ticks, stream_inspector
from tests.guards.stream import frames as chat_frames
from tests.guards.test_coverage import bodies, fed, insert_text
from tests.guards.text.test_walk import MARK, PATHS
from tests.test_pipeline import ROUTES
from tools.measure import detector

FINDERS = {
    "words": detector("keywords", words=[VALUES["words"]], patterns=[], whole_words=False),
    "secrets": detector("secrets", reach=1200),
    "cards": detector("pii", entities=["card"], regions=[], threshold=0.5),
}
HEAD = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
STREAMED = [*PLAIN, "encoded as text/plain ", "encoded as text/html utf-16le"]


def rule(name: str, action: Action) -> GuardRule:
    return GuardRule(name, FINDERS[name], action, cased=name == "secrets")


async def inspect_texts(texts: Texts, action: Action, name: str) -> Inspection:
    return await Engine(Ticks()).inspect([rule(name, action)], texts)


def iter_forms(forms: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield endless pairs of a form and a value that cover all combinations."""
    for number in count():
        form, name = forms[number % len(forms)], [*VALUES][number // len(forms) % len(VALUES)]
        if keeps_value(form, name):
            yield form, name


async def find_leak(document: Json, texts: Texts, name: str) -> str | None:
    """Return the text that passes a blocking or masking guard, or None."""
    blocking = await inspect_texts(texts, "block", name)
    if blocking.blocked is None:
        [result] = blocking.results
        if find_text_with([document], VALUES[name]) and not (
            texts.opaque and result.verdict == "not_applicable"
        ):
            return f"{result.verdict}: {document}"
        return None
    masking = await inspect_texts(texts, "mask", name)
    masked = replace_texts(document, masking.changes)
    return None if find_text_with([masked], VALUES[name]) is None else f"masked: {masked}"


@for_each("form", FORMS)
async def test_every_text_of_a_request_is_inspected(form: str) -> None:
    for template, (_, name) in zip(REQUESTS, iter_forms([form]), strict=False):
        body = insert_text(template, FORMS[form](VALUES[name]))

        assert await find_leak(body, collect_request_texts(body), name) is None


@pytest.mark.parametrize(("dialect", "endpoint"), PATHS)
async def test_every_field_of_a_dialect_is_inspected(dialect: str, endpoint: str) -> None:
    drawn = iter_forms([*FORMS])
    for _ in range(len(FORMS) // 4):
        form, name = next(drawn)
        for where, body in bodies(dialect, endpoint, FORMS[form](VALUES[name])):
            assert await find_leak(body, collect_request_texts(body), name) is None, where


@for_each("form", [*PLAIN, *[*URLS][::5]])
async def test_every_text_of_a_response_is_inspected(form: str) -> None:
    for template, (_, name) in zip(RESPONSES, iter_forms([form]), strict=False):
        data = {**HEAD, **insert_text(template, FORMS[form](VALUES[name]))}

        assert await find_leak(data, collect_response_texts(data), name) is None


DAMAGES: Mapping[str, Callable[[bytes], bytes]] = {
    "NUL before it": lambda value: b"\0" + value,
    "NUL after it": lambda value: value + b"\0",
    "NUL in it": lambda value: b"see " + value[:-2] + b"\0" + value[-2:],
    "a letter of Latin-1": lambda value: b"h\xe9ron: " + value,
    "a byte of no letter": lambda value: value + b" \xff",
    "half a letter of UTF-8": lambda value: value + " \u00e9".encode()[:-1],
    "many bytes": lambda value: value + b" " + bytes(range(256)),
    "much text": lambda value: b"h\xe9ron: " + value + b" and so on" * 100,
}
TYPES = ("text/plain", "TEXT/html", "application/json", "image/svg+xml")
CHARSETS = ("utf-8", '"UTF-8"', "iso-8859-1", "us-ascii", "no-such")


def _of_type(media: str, name: str = "media_type") -> Callable[[str], Json]:
    return lambda payload: {name: media, "data": payload}


FIELDS: Mapping[str, Callable[[str], Json]] = {
    **{media: _of_type(media) for media in TYPES},
    **{f"{media} as mimeType": _of_type(media, "mimeType") for media in TYPES},
    **{charset: _of_type(f"text/plain; charset={charset}") for charset in CHARSETS},
    "a format": lambda payload: {"format": "txt", "data": payload},
    "a type": lambda payload: {"type": "text", "data": payload},
    "a URL": lambda payload: {"file_data": f"data:text/plain;base64,{payload}"},
    "a URL with a charset": lambda payload: {
        "url": f"data:text/csv;charset=us-ascii;base64,{payload}"
    },
    "a URL of JSON": lambda payload: {"url": f"data:application/json;base64,{payload}"},
    "a URL of bytes in a text": lambda payload: {
        "media_type": "text/plain",
        "data": f"data:application/octet-stream;base64,{payload}",
    },
    "lines of base64": lambda payload: {
        "media_type": "text/plain",
        "data": "\r\n".join(payload[at : at + 60] for at in range(0, len(payload), 60)),
    },
}
CONTAINERS: Mapping[str, Callable[[Json], Json]] = {
    "a source": lambda part: {"messages": [{"content": [{"type": "document", "source": part}]}]},
    "a file": lambda part: {"messages": [{"content": [{"type": "file", "file": part}]}]},
    "a tool's result": lambda part: {"messages": [{"content": [{"content": [part]}]}]},
    "unknown": lambda part: {"unknown": {"deep": [part]}},
}


@for_each("text", FIELDS)
@for_each("damage", DAMAGES)
async def test_invalid_byte_hides_no_text_in_data(damage: str, text: str) -> None:
    for container, name in product(CONTAINERS.values(), VALUES):
        raw = DAMAGES[damage](VALUES[name].encode())
        body = container(FIELDS[text](base64.b64encode(raw).decode()))

        inspection = await inspect_texts(collect_request_texts(body), "block", name)
        assert inspection.blocked is not None, body
        assert await find_leak(body, collect_request_texts(body), name) is None


@for_each("damage", [name for name in DAMAGES if name not in ("many bytes", "much text")])
@for_each("about", [{}, {"type": "base64"}, {"format": "odd"}, {"media_type": "a/b"}])
async def test_no_byte_hides_short_data(damage: str, about: Json) -> None:
    for name, value in VALUES.items():
        data = base64.b64encode(DAMAGES[damage](value.encode())).decode()
        body = CONTAINERS["a file"]({**about, "file_data": data})

        inspection = await inspect_texts(collect_request_texts(body), "block", name)
        assert inspection.blocked is not None, body


@for_each("word", ["Z\u00fcrich", "\u041c\u043e\u0441\u043a\u0432\u0430"])
@for_each("text", ["text/plain", "a URL"])
async def test_invalid_byte_changes_no_other_text(word: str, text: str) -> None:
    data = base64.b64encode(b"\0\xff " + f"off to {word} ".encode() * 6000).decode()
    result = detector("keywords", words=[word.lower()], patterns=[], whole_words=True)

    texts = collect_request_texts(CONTAINERS["a file"](FIELDS[text](data)))
    inspection = await Engine(Ticks()).inspect([GuardRule("words", result)], texts)

    assert inspection.results[0].findings == {"word": 6000}


def cuts(text: str) -> Iterator[list[str]]:
    """Yield a text in pieces: halves, all but the last letter, single letters."""
    yield [text[: len(text) // 2], text[len(text) // 2 :]]
    yield [text[:-2], text[-2:]]
    if len(text) < 40:
        yield [*text]


def iter_texts(value: Any) -> Iterator[str]:
    """Yield the strings of a value except names. Only these continue across chunks."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from iter_texts(inner)


async def find_leak_of_stream(template: Any, pieces: list[str], name: str, action: Action) -> Any:
    """Return what a client gets of a streamed text if it contains the value."""
    events = [{**HEAD, "choices": [], **insert_text(template, piece)} for piece in pieces]
    _, released = await fed(rule(name, action), events)
    return released if find_text_with(released, VALUES[name]) is not None else None


@pytest.mark.parametrize("action", ["block", "mask"])
@pytest.mark.parametrize("form", STREAMED)
async def test_every_text_of_a_stream_is_inspected(form: str, action: Action) -> None:
    for template, (_, name) in zip(RESPONSES, iter_forms([form]), strict=False):
        for pieces in cuts(FORMS[form](VALUES[name])):
            if MARK in iter_texts(template):
                assert await find_leak_of_stream(template, pieces, name, action) is None


@for_each("form", STREAMED)
async def test_flagging_guard_inspects_every_stream(form: str) -> None:
    for template, (_, name) in zip(RESPONSES, iter_forms([form]), strict=False):
        for pieces in cuts(FORMS[form](VALUES[name])):
            if MARK not in iter_texts(template):
                continue
            events = [{**HEAD, "choices": [], **insert_text(template, piece)} for piece in pieces]
            inspector = stream_inspector(rule(name, "flag"))
            released = [await inspector.inspect(frame) for frame in chat_frames.read(*events)]
            outputs = chat_frames.documents([frame for frames in released for frame in frames])

            [result] = inspector.get_results()
            assert result.verdict != "passed" or find_text_with(outputs, VALUES[name]) is None, (
                template
            )


WORDS = st.sampled_from(
    ["choices", "delta", "message", "content", "text", "index", "type", "role", "name",
     "usage", "tool_calls", "function", "arguments", "logprobs", "messages", "prompt",
     "image_url", "url", "file", "file_data", "data", "embedding", "metadata", "unknown", MARK]
)  # fmt: skip
JSON = st.recursive(
    st.sampled_from([MARK, "a", 0, 1.0, None]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(WORDS, inner, max_size=3)
        | st.lists(st.fixed_dictionaries({"delta": inner, "index": inner}), max_size=2)
    ),
    max_leaves=8,
)
DOCUMENTS = st.dictionaries(WORDS, JSON, max_size=4).filter(lambda document: MARK in str(document))
DRAWN = st.sampled_from(
    [(form, name) for form in FORMS for name in VALUES if keeps_value(form, name)]
)


@settings(deadline=None, max_examples=300)
@given(DOCUMENTS, DRAWN)
async def test_every_text_of_random_documents_is_inspected(document: Json, drawn: Any) -> None:
    form, name = drawn
    body = insert_text(document, FORMS[form](VALUES[name]))

    assert await find_leak(body, collect_request_texts(body), name) is None
    if "data" not in body:  # ``data`` contains vectors
        assert await find_leak(body, collect_response_texts(body), name) is None


def has_distinct_choices(document: Json) -> bool:
    """Return True if no two choices share an index, so that clients separate their texts."""
    choices = document.get("choices")
    listed = choices if isinstance(choices, list) else []
    indexes = [str(choice.get("index")) for choice in listed if isinstance(choice, dict)]
    return len({*indexes}) == len(indexes)


CHUNKS = DOCUMENTS.filter(lambda document: MARK in iter_texts(document)).filter(
    has_distinct_choices
)


@settings(deadline=None, max_examples=200)
@given(CHUNKS, st.sampled_from(STREAMED), st.data())
async def test_every_text_of_random_chunks_is_inspected(
    document: Json, form: str, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from([name for name in VALUES if keeps_value(form, name)]))
    text = FORMS[form](VALUES[name])
    cut = data.draw(st.integers(1, len(text) - 1))

    if "data" not in document:
        for action in ("block", "mask"):
            assert (
                await find_leak_of_stream(document, [text[:cut], text[cut:]], name, action) is None
            )


PIECES = st.sampled_from(["for", "bidden", "forb", "idden", "f", "orbidden", "", "x", "forbidde"])
CONTINUING = [template for template in RESPONSES if MARK in iter_texts(template)]


@settings(deadline=None, max_examples=200)
@given(st.lists(st.sampled_from(CONTINUING), min_size=1, max_size=2), st.data())
async def test_no_order_of_chunks_hides_a_word(templates: list[Json], data: st.DataObject) -> None:
    chunks = st.lists(st.tuples(st.sampled_from(templates), PIECES), min_size=2, max_size=5)
    events = [{"choices": [], **insert_text(*item)} for item in data.draw(chunks)]

    for action in ("block", "mask"):
        _, released = await fed(rule("words", action), events)
        assert find_text_with(released, VALUES["words"]) is None


GUARDS = "{guard: keywords, words: [forbidden], whole_words: false}, {guard: secrets}, {guard: pii}"
REQUEST_MEMBERS: Mapping[str, Callable[[str], Json]] = {
    "content": lambda text: {"messages": [{"role": "user", "content": text}], "prompt": text},
    "an unknown field": lambda text: {"zq": {"deep": [text]}},
    "a name": lambda text: {"zq": {text: 1}},
}


@pytest.mark.parametrize("name", NAMES)
async def test_every_route_guards_requests(
    name: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    route = ROUTES[name]
    upstream.answer_with(respond(chat("Fine.") if route.chat else legacy_completion("Fine.")))
    cases = islice(zip(cycle(REQUEST_MEMBERS), iter_forms([*FORMS]), strict=False), 60)
    async with guarded(tmp_path, upstream, f"input: [{GUARDS}]") as proxy:
        for member, (form, value) in cases:
            fields = REQUEST_MEMBERS[member](FORMS[form](VALUES[value]))
            allowed = {n: field for n, field in fields.items() if n in (*route.content, "zq")}
            reply = await ask_route(proxy, route, {**route.content, **allowed})

            assert b"guardrail_blocked" in reply.raw, (member, form, value)
    assert upstream.requests == []


BESIDE_CHOICES: Mapping[str, Json] = {
    "words": {"x": MARK},
    "secrets": {"x": {"y": [MARK]}},
    "cards": {"usage": MARK},
}


@pytest.mark.parametrize("name", STREAMED_ROUTES)
async def test_every_route_guards_members_beside_choices(
    name: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    route = ROUTES[name]
    async with guarded(tmp_path, upstream, f"output: [{GUARDS}]") as proxy:
        for value, member in BESIDE_CHOICES.items():
            for pieces in cuts(VALUES[value]):
                choice = text_choice(route, "a")
                events = [build_event(choice, **insert_text(member, piece)) for piece in pieces]
                upstream.answer_with(stream(events))
                reply = await ask_route(proxy, route, route.content, streamed=True)

                assert find_text_with(read_documents(reply.raw), VALUES[value]) is None, member
