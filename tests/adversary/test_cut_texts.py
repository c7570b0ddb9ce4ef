"""A text in parts is inspected as one text, wherever it is cut."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.guards.engine import Engine, Inspection
from proxy.guards.text.documents import collect_request_texts, collect_response_texts
from proxy.guards.text.replace import replace_texts
from proxy.types.guard import Action, GuardRule
from tests.adversary.test_hidden_words import NAMES
from tests.conftest import Proxy, Reply
from tests.doubles import Json, Script, ScriptedUpstream, answer, chat, stream
from tests.for_each import for_each
from tests.guards.calls import ask_route, guarded
from tests.guards.doubles import Ticks, pieces
from tests.guards.whole.test_text_batches import KEY, OWN
from tests.test_pipeline import MESSAGES, ROUTES
from tools.measure import detector

VALUE = KEY.removeprefix("ghp_")
WORD = "Hydropolis"
SAYS: Mapping[str, tuple[str, str]] = {
    "a name before it": (f'my api_key = "{VALUE}"', VALUE),
    "a maker before it": (f'datadog_api_key = "{(VALUE + VALUE[:8]).lower()}"', VALUE.lower()),
    "a header before it": (f'curl -H "Authorization: Bearer {VALUE}" x', VALUE),
    "a host after it": (f"see postgres://admin:{VALUE}@db.example.com/x", VALUE),
    "a word before it": ("my ssn is 856-45-6789, or not", "856-45-6789"),
    "a scheme before it": ("see https://bad.example/x now", "bad.example"),
    "a marker before it": (f"base64,{base64.b64encode(WORD.encode()).decode()} it is", ""),
    "letters around it": (f"we go to {WORD} today", WORD),
    "letters apart": (f"we go to {' '.join(WORD)} today", " ".join(WORD)),
    "percents": ("to " + "".join(f"%{ord(letter):02x}" for letter in WORD) + " now", ""),
}
RULES = (
    *OWN,
    GuardRule("words", detector("keywords", words=[WORD.lower()], patterns=[], whole_words=True)),
)
FORMS: Mapping[str, Callable[[Sequence[str]], Any]] = {
    "parts": lambda texts: [{"type": "text", "text": part_text} for part_text in texts],
    "parts without a type": lambda texts: [{"text": part_text} for part_text in texts],
    "strings": list,
    "thoughts": lambda texts: [
        {"type": "thinking", "thinking": [{"text": part_text} for part_text in texts]}
    ],
    "pictures between": lambda texts: [
        part
        for part_text in texts
        for part in ({"type": "image_url", "image_url": {"url": "x"}}, {"text": part_text})
    ],
}


def request_of(content: Any) -> Json:
    return {"messages": [{"role": "user", "content": content}]}


def response_of(content: Any) -> Json:
    message = {"role": "assistant", "content": content}
    return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}


SHOWN_MEMBERS = ("text", "thinking")
READ = ((request_of, collect_request_texts), (response_of, collect_response_texts))


async def inspected(body: Json, read: Any, action: Action) -> Inspection:
    rules = [GuardRule(rule.name, rule.detector, action, cased=rule.cased) for rule in RULES]
    return await Engine(Ticks()).inspect(rules, read(body))


def texts(value: Any) -> str:
    """Return all texts of a content."""
    if isinstance(value, dict):
        return "".join(texts(inner) for name, inner in value.items() if name in SHOWN_MEMBERS)
    if isinstance(value, list):
        return "".join(map(texts, value))
    return value if isinstance(value, str) else ""


def content(body: Json) -> Any:
    [message] = body.get("messages") or [choice["message"] for choice in body["choices"]]
    return message["content"]


async def masked_text(fields: Any, stored: Any, read: Any) -> str:
    """Return the unmasked text of a content."""
    body = stored(fields)
    inspection = await inspected(body, read, "mask")
    return re.sub(r"\[[A-Z0-9_-]+\]", "", texts(content(replace_texts(body, inspection.changes))))


async def differs(text: str, cut: Sequence[str], form: str) -> str | None:
    """Return how a text in parts is judged in another way than in one; None where it is not. Of
    which kind a finding is may differ: a part may tell it of another."""
    for stored, read in READ:
        inspection, joint = [
            await inspected(stored(c), read, "block") for c in (text, FORMS[form](cut))
        ]
        for result, other_result in zip(inspection.results, joint.results, strict=True):
            results, also = result.findings, other_result.findings
            if (results and result.verdict != other_result.verdict) or sum(results.values()) != sum(
                also.values()
            ):
                return f"{stored.__name__}, {result.guard}: {results}, but {also}: {cut}"
        outputs = [await masked_text(c, stored, read) for c in (text, FORMS[form](cut))]
        if outputs[0] != outputs[1]:
            return f"{stored.__name__}: {outputs}"
    return None


@for_each("form", FORMS)
@pytest.mark.parametrize("says", SAYS)
async def test_no_cut_changes_the_findings(says: str, form: str) -> None:
    text, plant = SAYS[says]
    assert (await inspected(request_of(text), collect_request_texts, "block")).blocked is not None
    assert plant == "" or plant not in await masked_text(text, request_of, collect_request_texts)

    for index in range(1, len(text)):
        assert await differs(text, [text[:index], text[index:]], form) is None


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.sampled_from([*SAYS]), min_size=1, max_size=3),
    st.lists(st.integers(0, 400), min_size=1, max_size=8),
    st.sampled_from([*FORMS]),
)
async def test_masks_hold_at_every_cut(says: list[str], cuts: list[int], form: str) -> None:
    text = " and ".join(SAYS[say][0] for say in says)
    for stored, read in READ:
        output = await masked_text(FORMS[form](pieces(text, cuts)), stored, read)
        remainder = iter(await masked_text(text, stored, read))

        assert all(letter in remainder for letter in output), output  # in order


GUARDS = "{guard: secrets}, {guard: pii}, {guard: keywords, words: [Hydropolis]}"
CHATS = [name for name in NAMES if ROUTES[name].chat]


@pytest.mark.parametrize("name", CHATS)
async def test_cut_stays_masked(name: str, tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(answer(chat("Fine.")))
    async with guarded(tmp_path, upstream, f"input: [{GUARDS}]") as proxy:
        for text, plant in SAYS.values():
            if "bad.example" in text:
                continue
            for index in (text.find(plant) or 7, text.find(plant) + len(plant), len(text) // 2):
                cut = [{"type": "text", "text": item} for item in (text[:index], text[index:])]
                reply = await ask_route(proxy, ROUTES[name], request_of(cut))

                assert b"guardrail_blocked" in reply.raw, (reply.status, cut)
    assert upstream.requests == []


@pytest.mark.parametrize("name", CHATS)
@pytest.mark.parametrize("action", ["block", "mask"])
async def test_word_cut_in_a_response_reaches_no_client(
    name: str, action: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    rules = GUARDS.replace("}", f", action: {action}}}")
    async with guarded(tmp_path, upstream, f"output: [{rules}]") as proxy:
        for text, plant in SAYS.values():
            if not plant or "bad.example" in text:
                continue
            for form in ("parts", "strings"):
                index = text.find(plant)
                cut = FORMS[form]([text[:index], text[index:]])
                upstream.answer_with(answer({**chat("a"), **response_of(cut)}))
                reply = await ask_route(proxy, ROUTES[name])

                assert plant.encode() not in reply.raw, (reply.status, cut)


GUARD = "output: [{{guard: keywords, words: [hydropolis], action: {}}}]"
ACTIONS = pytest.mark.parametrize("action", ["mask", "block"])
CLIENTS: dict[str, tuple[str, Json]] = {
    "chat": ("/v1/chat/completions", MESSAGES),
    "messages": ("/v1/messages", {**MESSAGES, "max_tokens": 9}),
    "responses": ("/v1/responses", {"input": "Hi"}),
    "completions": ("/v1/completions", {"prompt": "Hi"}),
}


def thoughts(text: str) -> list[Any]:
    return [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]


def text_parts(text: str) -> list[Any]:
    return [{"type": "text", "text": text}]


def chunks(*deltas: Json, finish: Any = "stop") -> Script:
    """Stream deltas of one choice, the last with its finish reason."""
    finishes = [None] * (len(deltas) - 1) + [finish]
    choices = [
        {"index": 0, "delta": delta, "finish_reason": reason}
        for delta, reason in zip(deltas, finishes, strict=True)
    ]
    return stream([{"id": "c1", "choices": [choice]} for choice in choices])


async def send(proxy: Proxy, client: str, **options: Any) -> Reply:
    path, body = CLIENTS[client]
    return await proxy.send(path, {"model": "search-answers", **body, **options})


CUT: dict[str, list[Any]] = {
    "thoughts": [thoughts("We go to hydro"), thoughts("polis today."), "So be it."],
    "texts": [thoughts("Where to?"), text_parts("We go to hydro"), text_parts("polis today.")],
    "a list and a text": [text_parts("We go to hydro"), "polis today."],
    "one list": [[*text_parts("We go to hydro"), *text_parts("polis today.")]],
}


@ACTIONS
@pytest.mark.parametrize("client", CLIENTS)
async def test_cut_word_is_found(
    client: str, action: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with guarded(tmp_path, upstream, GUARD.format(action)) as proxy:
        for cut, contents in CUT.items():
            upstream.answer_with(chunks(*({"content": item} for item in contents), {"content": ""}))
            reply = await send(proxy, client, stream=True)
            [record] = await proxy.sink.wait()
            proxy.sink.forget()

            assert not record.is_internal_error, cut
            assert record.outcome == ("blocked" if action == "block" else "success"), cut
            assert b"polis" not in reply.raw, cut
            if action == "mask":
                assert b"[WORD]" in reply.raw, cut
                assert record.billing.source == "partial_estimate", cut


@ACTIONS
@pytest.mark.parametrize("client", ["chat", "completions"])
async def test_cut_word_of_a_legacy_text_is_found(
    client: str, action: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    parts = text_parts("We go to hydro"), text_parts("polis today.")
    document = {"choices": [{"index": 0, "text": [*parts[0], *parts[1]], "finish_reason": "stop"}]}
    events = [{"choices": [{"index": 0, "text": part}]} for part in parts]
    async with guarded(tmp_path, upstream, GUARD.format(action)) as proxy:
        scripts = (stream(events), True), (stream([document]), True), (answer(document), False)
        for script, is_stream in scripts:
            upstream.answer_with(script)
            reply = await send(proxy, client, model="legacy-only", stream=is_stream)
            assert b"polis" not in reply.raw


IN_LAST_CHUNK: Mapping[str, Callable[[str], Json]] = {
    "a text": lambda text: {"content": text},
    "strings": lambda text: {"content": [text]},
    "parts without a type": lambda text: {"content": [{"text": text}]},
    "an object": lambda text: {"content": {"text": text}},
    "a transcript": lambda text: {"audio": {"transcript": text}},
    "details of reasoning": lambda text: {
        "reasoning_details": [{"index": 0, "type": "reasoning.text", "text": text}]
    },
    "an unknown member": lambda text: {"zzz": text},
    "arguments": lambda text: {"function_call": {"arguments": text}},
}


@ACTIONS
@pytest.mark.parametrize("client", ["chat", "completions"])
async def test_word_that_ends_in_the_last_chunk_is_found(
    client: str, action: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with guarded(tmp_path, upstream, GUARD.format(action)) as proxy:
        for (name, form), finish in product(IN_LAST_CHUNK.items(), ("stop", {"x": None})):
            upstream.answer_with(chunks(form("to hydro"), form("polis"), finish=finish))
            reply = await send(proxy, client, stream=True)
            assert b"polis" not in reply.raw, name
            assert (reply.status == 400) == (action == "block"), name
            assert (b"[WORD]" in reply.raw) == (action == "mask"), name


@for_each("client", CLIENTS)
async def test_word_cut_over_parts_with_and_without_a_type_is_found(
    client: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with guarded(tmp_path, upstream, GUARD.format("mask")) as proxy:
        for untyped in range(3):
            parts = [part for text in ("to hydro", "polis", " now") for part in text_parts(text)]
            del parts[untyped]["type"]
            upstream.answer_with(answer(response_of(parts)))
            reply = await send(proxy, client)
            assert reply.status == 200
            assert b"polis" not in reply.raw, (untyped, reply.raw)


CONTENT_FORMS: Mapping[str, Callable[[str], Json]] = {
    "text": lambda text: {"content": text},
    "typed part": lambda text: {"content": [{"type": "text", "text": text}]},
    "part without a type": lambda text: {"content": [{"text": text}]},
    "string in a list": lambda text: {"content": [text]},
    "object": lambda text: {"content": {"text": text}},
    "refusal": lambda text: {"refusal": text},
}


def shown_texts(raw: bytes) -> list[str]:
    """Return the texts that a client joins from a stream, one for each block and member."""
    texts: dict[object, str] = {}
    for line in raw.decode().splitlines():
        if not line.startswith("data: {"):
            continue
        event = json.loads(line.removeprefix("data: "))
        for choice in event.get("choices") or ():
            delta = {"text": choice.get("text"), **choice.get("delta", {})}
            for name, value in delta.items():
                for part in value if isinstance(value, list) else [value]:
                    text = part.get("text") if isinstance(part, dict) else part
                    texts[name] = texts.get(name, "") + (text if isinstance(text, str) else "")
        if event.get("type", "").endswith("delta"):
            delta = event["delta"]
            place = event["type"], event.get("index"), event.get("content_index")
            text = delta if isinstance(delta, str) else delta.get("text", "")
            texts[place] = texts.get(place, "") + text
    return [*texts.values()]


@for_each("client", CLIENTS)
async def test_word_cut_over_two_forms_of_content_is_not_shown(
    client: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with guarded(tmp_path, upstream, GUARD.format("mask")) as proxy:
        for first, second in product(CONTENT_FORMS, repeat=2):
            cut = CONTENT_FORMS[first]("to hydro"), CONTENT_FORMS[second]("polis now")
            upstream.answer_with(chunks(*cut, {}))
            reply = await send(proxy, client, stream=True)
            assert reply.status == 200
            texts = shown_texts(reply.raw)
            assert first != "text" or any("to " in text for text in texts), (second, texts)
            assert not any("hydropolis" in text for text in texts), (first, second, texts)
