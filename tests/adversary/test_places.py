"""Guarded text is found in any place, form and split."""

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
from tests.adversary.places import ANSWERS, FORMS, PLAIN, PLANTS, REQUESTS, URLS, says, spells
from tests.adversary.test_hidden_words import NAMES, documents, event
from tests.adversary.test_hidden_words import STREAMED as STREAMED_ROUTES
from tests.doubles import Json, ScriptedUpstream, answer, chat, legacy, stream
from tests.for_each import for_each
from tests.guards.calls import ask_route, guarded
from tests.guards.doubles import Ticks, stream_inspector
from tests.guards.stream import frames as made
from tests.guards.test_coverage import bodies, fed, insert_text
from tests.guards.text.test_walk import MARK, PATHS
from tests.test_pipeline import ROUTES, Route
from tools.measure import detector

FINDERS = {
    "words": detector("keywords", words=[PLANTS["words"]], patterns=[], whole_words=False),
    "secrets": detector("secrets", reach=1200),
    "cards": detector("pii", entities=["card"], regions=[], threshold=0.5),
}
HEAD = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
STREAMED = [*PLAIN, "decoded from text/plain ", "decoded from text/html utf-16le"]


def rule(name: str, action: Action) -> GuardRule:
    return GuardRule(name, FINDERS[name], action, cased=name == "secrets")


async def inspected(texts: Texts, action: Action, name: str) -> Inspection:
    return await Engine(Ticks()).inspect([rule(name, action)], texts)


def turns(forms: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield endless pairs of a form and a planted word that cover all combinations."""
    for number in count():
        form, name = forms[number % len(forms)], [*PLANTS][number // len(forms) % len(PLANTS)]
        if says(form, name):
            yield form, name


async def slips(document: Json, texts: Texts, name: str) -> str | None:
    """Return the text that passes a blocking or masking guard, or None."""
    blocking = await inspected(texts, "block", name)
    if blocking.blocked is None:
        [result] = blocking.results
        if spells([document], PLANTS[name]) and not (
            texts.opaque and result.verdict == "not_applicable"
        ):
            return f"{result.verdict}: {document}"
        return None
    masking = await inspected(texts, "mask", name)
    masked = replace_texts(document, masking.changes)
    return None if spells([masked], PLANTS[name]) is None else f"masked: {masked}"


@for_each("form", FORMS)
async def test_every_text_of_a_request_is_inspected(form: str) -> None:
    for place, (_, name) in zip(REQUESTS, turns([form]), strict=False):
        body = insert_text(place, FORMS[form](PLANTS[name]))

        assert await slips(body, collect_request_texts(body), name) is None


@pytest.mark.parametrize(("dialect", "endpoint"), PATHS)
async def test_every_field_of_a_dialect_is_inspected(dialect: str, endpoint: str) -> None:
    drawn = turns([*FORMS])
    for _ in range(len(FORMS) // 4):
        form, name = next(drawn)
        for where, body in bodies(dialect, endpoint, FORMS[form](PLANTS[name])):
            assert await slips(body, collect_request_texts(body), name) is None, where


@for_each("form", [*PLAIN, *[*URLS][::5]])
async def test_every_text_of_a_response_is_inspected(form: str) -> None:
    for place, (_, name) in zip(ANSWERS, turns([form]), strict=False):
        data = {**HEAD, **insert_text(place, FORMS[form](PLANTS[name]))}

        assert await slips(data, collect_response_texts(data), name) is None


BROKEN: Mapping[str, Callable[[bytes], bytes]] = {
    "NUL before it": lambda plant: b"\0" + plant,
    "NUL after it": lambda plant: plant + b"\0",
    "NUL in it": lambda plant: b"see " + plant[:-2] + b"\0" + plant[-2:],
    "a letter of Latin-1": lambda plant: b"h\xe9ron: " + plant,
    "a byte of no letter": lambda plant: plant + b" \xff",
    "half a letter of UTF-8": lambda plant: plant + " \u00e9".encode()[:-1],
    "many bytes": lambda plant: plant + b" " + bytes(range(256)),
    "much text": lambda plant: b"h\xe9ron: " + plant + b" and so on" * 100,
}
TYPES = ("text/plain", "TEXT/html", "application/json", "image/svg+xml")
NAMED_CHARSETS = ("utf-8", '"UTF-8"', "iso-8859-1", "us-ascii", "no-such")


def _of_type(media: str, name: str = "media_type") -> Callable[[str], Json]:
    return lambda payload: {name: media, "data": payload}


FIELDS: Mapping[str, Callable[[str], Json]] = {
    **{media: _of_type(media) for media in TYPES},
    **{f"{media} as mimeType": _of_type(media, "mimeType") for media in TYPES},
    **{charset: _of_type(f"text/plain; charset={charset}") for charset in NAMED_CHARSETS},
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
PENDING: Mapping[str, Callable[[Json], Json]] = {
    "a source": lambda part: {"messages": [{"content": [{"type": "document", "source": part}]}]},
    "a file": lambda part: {"messages": [{"content": [{"type": "file", "file": part}]}]},
    "a tool's result": lambda part: {"messages": [{"content": [{"content": [part]}]}]},
    "unknown": lambda part: {"unknown": {"deep": [part]}},
}


@for_each("text", FIELDS)
@for_each("broken", BROKEN)
async def test_invalid_byte_hides_no_text_in_data(broken: str, text: str) -> None:
    for pending, name in product(PENDING.values(), PLANTS):
        raw = BROKEN[broken](PLANTS[name].encode())
        body = pending(FIELDS[text](base64.b64encode(raw).decode()))

        assert (await inspected(collect_request_texts(body), "block", name)).blocked is not None, (
            body
        )
        assert await slips(body, collect_request_texts(body), name) is None


@for_each("broken", [name for name in BROKEN if name not in ("many bytes", "much text")])
@for_each("about", [{}, {"type": "base64"}, {"format": "odd"}, {"media_type": "a/b"}])
async def test_no_byte_hides_short_data(broken: str, about: Json) -> None:
    for name, plant in PLANTS.items():
        data = base64.b64encode(BROKEN[broken](plant.encode())).decode()
        body = PENDING["a file"]({**about, "file_data": data})

        assert (await inspected(collect_request_texts(body), "block", name)).blocked is not None, (
            body
        )


@for_each("word", ["Z\u00fcrich", "\u041c\u043e\u0441\u043a\u0432\u0430"])
@for_each("text", ["text/plain", "a URL"])
async def test_invalid_byte_changes_no_other_text(word: str, text: str) -> None:
    data = base64.b64encode(b"\0\xff " + f"off to {word} ".encode() * 6000).decode()
    result = detector("keywords", words=[word.lower()], patterns=[], whole_words=True)

    texts = collect_request_texts(PENDING["a file"](FIELDS[text](data)))
    looking = await Engine(Ticks()).inspect([GuardRule("words", result)], texts)

    assert looking.results[0].findings == {"word": 6000}


def cuts(text: str) -> Iterator[list[str]]:
    """Yield a text in pieces: halves, all but the last letter, single letters."""
    yield [text[: len(text) // 2], text[len(text) // 2 :]]
    yield [text[:-2], text[-2:]]
    if len(text) < 40:
        yield [*text]


def texts_of(value: Any) -> Iterator[str]:
    """Yield the strings of a value except names. Only these continue across chunks."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from texts_of(inner)


async def slips_in_a_stream(place: Any, pieces: list[str], name: str, action: Action) -> Any:
    """Return what a client gets of a streamed text if it contains the planted word."""
    events = [{**HEAD, "choices": [], **insert_text(place, piece)} for piece in pieces]
    _, released = await fed(rule(name, action), events)
    return released if spells(released, PLANTS[name]) is not None else None


@pytest.mark.parametrize("action", ["block", "mask"])
@pytest.mark.parametrize("form", STREAMED)
async def test_every_text_of_a_stream_is_inspected(form: str, action: Action) -> None:
    for place, (_, name) in zip(ANSWERS, turns([form]), strict=False):
        for pieces in cuts(FORMS[form](PLANTS[name])):
            if MARK in texts_of(place):
                assert await slips_in_a_stream(place, pieces, name, action) is None


@for_each("form", STREAMED)
async def test_flagging_guard_inspects_every_stream(form: str) -> None:
    for place, (_, name) in zip(ANSWERS, turns([form]), strict=False):
        for pieces in cuts(FORMS[form](PLANTS[name])):
            if MARK not in texts_of(place):
                continue
            events = [{**HEAD, "choices": [], **insert_text(place, piece)} for piece in pieces]
            watching = stream_inspector(rule(name, "flag"))
            released = [await watching.inspect(frame) for frame in made.read(*events)]
            outputs = made.documents([frame for frames in released for frame in frames])

            [result] = watching.results()
            assert result.verdict != "passed" or spells(outputs, PLANTS[name]) is None, place


WORDS = st.sampled_from(
    ["choices", "delta", "message", "content", "text", "index", "type", "role", "name",
     "usage", "tool_calls", "function", "arguments", "logprobs", "messages", "prompt",
     "image_url", "url", "file", "file_data", "data", "embedding", "metadata", "unknown", MARK]
)  # fmt: skip
VALUES = st.recursive(
    st.sampled_from([MARK, "a", 0, 1.0, None]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(WORDS, inner, max_size=3)
        | st.lists(st.fixed_dictionaries({"delta": inner, "index": inner}), max_size=2)
    ),
    max_leaves=8,
)
DOCUMENTS = st.dictionaries(WORDS, VALUES, max_size=4).filter(
    lambda document: MARK in str(document)
)
DRAWN = st.sampled_from([(form, name) for form in FORMS for name in PLANTS if says(form, name)])


@settings(deadline=None, max_examples=300)
@given(DOCUMENTS, DRAWN)
async def test_every_text_of_random_documents_is_inspected(document: Json, drawn: Any) -> None:
    form, name = drawn
    body = insert_text(document, FORMS[form](PLANTS[name]))

    assert await slips(body, collect_request_texts(body), name) is None
    if "data" not in body:  # ``data`` contains vectors
        assert await slips(body, collect_response_texts(body), name) is None


def is_told_apart(document: Json) -> bool:
    """Return True if no two choices share an index, so that clients separate their texts."""
    choices = document.get("choices")
    item = (
        [choice for choice in choices if isinstance(choice, dict)]
        if isinstance(choices, list)
        else []
    )
    return len({str(choice.get("index")) for choice in item}) == len(item)


CHUNKS = DOCUMENTS.filter(lambda document: MARK in texts_of(document)).filter(is_told_apart)


@settings(deadline=None, max_examples=200)
@given(CHUNKS, st.sampled_from(STREAMED), st.data())
async def test_every_text_of_random_chunks_is_inspected(
    document: Json, form: str, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from([name for name in PLANTS if says(form, name)]))
    text = FORMS[form](PLANTS[name])
    cut = data.draw(st.integers(1, len(text) - 1))

    if "data" not in document:
        for action in ("block", "mask"):
            assert await slips_in_a_stream(document, [text[:cut], text[cut:]], name, action) is None


PIECES = st.sampled_from(["for", "bidden", "forb", "idden", "f", "orbidden", "", "x", "forbidde"])
GOING_ON = [place for place in ANSWERS if MARK in texts_of(place)]


@settings(deadline=None, max_examples=200)
@given(st.lists(st.sampled_from(GOING_ON), min_size=1, max_size=2), st.data())
async def test_no_order_of_chunks_hides_a_word(places: list[Json], data: st.DataObject) -> None:
    chunks = st.lists(st.tuples(st.sampled_from(places), PIECES), min_size=2, max_size=5)
    events = [{"choices": [], **insert_text(*item)} for item in data.draw(chunks)]

    for action in ("block", "mask"):
        _, released = await fed(rule("words", action), events)
        assert spells(released, PLANTS["words"]) is None


GUARDS = "{guard: keywords, words: [forbidden], whole_words: false}, {guard: secrets}, {guard: pii}"
REQUEST: Mapping[str, Callable[[str], Json]] = {
    "content": lambda plant: {"messages": [{"role": "user", "content": plant}], "prompt": plant},
    "a field that nobody knows": lambda plant: {"zq": {"deep": [plant]}},
    "a name": lambda plant: {"zq": {plant: 1}},
}


@pytest.mark.parametrize("name", NAMES)
async def test_random_requests_are_guarded(
    name: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    route = ROUTES[name]
    upstream.answer_with(answer(chat("Fine.") if route.chat else legacy("Fine.")))
    tried = islice(zip(cycle(REQUEST), turns([*FORMS]), strict=False), 60)
    async with guarded(tmp_path, upstream, f"input: [{GUARDS}]") as proxy:
        for place, (form, plant) in tried:
            fields = REQUEST[place](FORMS[form](PLANTS[plant]))
            known_values = {
                key: value for key, value in fields.items() if key in (*route.content, "zq")
            }
            reply = await ask_route(proxy, route, {**route.content, **known_values})

            assert b"guardrail_blocked" in reply.raw, (place, form, plant)
    assert upstream.requests == []


BESIDE_CHOICES: Mapping[str, Json] = {
    "words": {"x": MARK},
    "secrets": {"x": {"y": [MARK]}},
    "cards": {"usage": MARK},
}


@pytest.mark.parametrize("name", STREAMED_ROUTES)
async def test_random_chunks_are_guarded(
    name: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    route = ROUTES[name]
    async with guarded(tmp_path, upstream, f"output: [{GUARDS}]") as proxy:
        for plant, place in BESIDE_CHOICES.items():
            for pieces in cuts(PLANTS[plant]):
                events = [event(a_word(route), **insert_text(place, piece)) for piece in pieces]
                upstream.answer_with(stream(events))
                reply = await ask_route(proxy, route, route.content, streamed=True)

                assert spells(documents(reply.raw.decode()), PLANTS[plant]) is None, place


def a_word(route: Route) -> Json:
    return {"delta": {"content": "a"}} if route.chat else {"text": "a"}
