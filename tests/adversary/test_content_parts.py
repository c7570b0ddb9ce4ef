"""Searches for findings that depend on how a text is cut into the parts of a message.

A text in parts has the findings and the masks of the whole text, in requests and in responses.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
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
from tests.doubles import Json, ScriptedUpstream, chat, respond
from tests.for_each import for_each
from tests.guards.calls import ask_route, guarded
from tests.guards.doubles import Ticks, pieces
from tests.guards.whole.test_text_batches import KEY, OWN
from tests.test_pipeline import ROUTES
from tools.measure import detector

VALUE = KEY.removeprefix("ghp_")
WORD = "Hydropolis"
SENTENCES: Mapping[str, tuple[str, str]] = {
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
"""Sentences whose finding needs its surroundings, and the found text."""
RULES = (
    *OWN,
    GuardRule("words", detector("keywords", words=[WORD.lower()], patterns=[], whole_words=True)),
)
CONTENTS: Mapping[str, Callable[[Sequence[str]], Any]] = {
    "parts": lambda texts: [{"type": "text", "text": text} for text in texts],
    "parts without a type": lambda texts: [{"text": text} for text in texts],
    "strings": list,
    "thoughts": lambda texts: [
        {"type": "thinking", "thinking": [{"text": text} for text in texts]}
    ],
    "pictures between": lambda texts: [
        part
        for text in texts
        for part in ({"type": "image_url", "image_url": {"url": "x"}}, {"text": text})
    ],
}


def build_request(content: Any) -> Json:
    return {"messages": [{"role": "user", "content": content}]}


def build_response(content: Any) -> Json:
    message = {"role": "assistant", "content": content}
    return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}


SIDES = ((build_request, collect_request_texts), (build_response, collect_response_texts))


async def inspect_body(body: Json, collect: Any, action: Action) -> Inspection:
    rules = [GuardRule(rule.name, rule.detector, action, cased=rule.cased) for rule in RULES]
    return await Engine(Ticks()).inspect(rules, collect(body))


def join_texts(value: Any) -> str:
    """Return all texts of a content."""
    if isinstance(value, dict):
        return "".join(join_texts(value.get(name)) for name in ("text", "thinking"))
    if isinstance(value, list):
        return "".join(map(join_texts, value))
    return value if isinstance(value, str) else ""


async def mask_content(content: Any, build: Any, collect: Any) -> str:
    """Return what is left of a content without its masked values."""
    body = build(content)
    inspection = await inspect_body(body, collect, "mask")
    masked = replace_texts(body, inspection.changes)
    [message] = masked.get("messages") or [item["message"] for item in masked["choices"]]
    return re.sub(r"\[[A-Z0-9_-]+\]", "", join_texts(message["content"]))


async def find_difference(text: str, parts: Sequence[str], form: str) -> str | None:
    """Return how the findings or the masks of a text in parts differ from those of the whole text.

    The kind of a finding may differ, as a part may be enough to tell another kind.
    """
    contents = (text, CONTENTS[form](parts))
    for build, collect in SIDES:
        whole, joined = [await inspect_body(build(c), collect, "block") for c in contents]
        for one, other in zip(whole.results, joined.results, strict=True):
            is_changed = bool(one.findings) and one.verdict != other.verdict
            if is_changed or sum(one.findings.values()) != sum(other.findings.values()):
                return f"{build.__name__}, {one.guard}: {one.findings}, {other.findings}: {parts}"
        masked = [await mask_content(content, build, collect) for content in contents]
        if masked[0] != masked[1]:
            return f"{build.__name__}: {masked}"
    return None


@for_each("form", CONTENTS)
@pytest.mark.parametrize("sentence", SENTENCES)
async def test_no_cut_changes_the_findings(sentence: str, form: str) -> None:
    text, found = SENTENCES[sentence]
    inspection = await inspect_body(build_request(text), collect_request_texts, "block")
    assert inspection.blocked is not None
    masked = await mask_content(text, build_request, collect_request_texts)
    assert found == "" or found not in masked

    for index in range(1, len(text)):
        assert await find_difference(text, [text[:index], text[index:]], form) is None


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.sampled_from([*SENTENCES]), min_size=1, max_size=3),
    st.lists(st.integers(0, 400), min_size=1, max_size=8),
    st.sampled_from([*CONTENTS]),
)
async def test_masks_hold_at_every_cut(names: list[str], cuts: list[int], form: str) -> None:
    text = " and ".join(SENTENCES[name][0] for name in names)
    for build, collect in SIDES:
        masked = await mask_content(CONTENTS[form](pieces(text, cuts)), build, collect)
        remaining = iter(await mask_content(text, build, collect))

        assert all(letter in remaining for letter in masked), masked  # in order


GUARDS = "{guard: secrets}, {guard: pii}, {guard: keywords, words: [Hydropolis]}"


@pytest.mark.parametrize("name", [name for name in NAMES if ROUTES[name].chat])
async def test_value_cut_over_parts_reaches_nobody(
    name: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    masks = GUARDS.replace("}", ", action: mask}")
    async with guarded(tmp_path, upstream, f"input: [{GUARDS}], output: [{masks}]") as proxy:
        for text, found in SENTENCES.values():
            if "bad.example" in text:
                continue
            index = text.find(found) or 7
            for position in (index, index + len(found), len(text) // 2):
                parts = CONTENTS["parts"]([text[:position], text[position:]])
                reply = await ask_route(proxy, ROUTES[name], build_request(parts))

                assert b"guardrail_blocked" in reply.raw, (reply.status, parts)
            assert upstream.requests == []
            for form in ("parts", "strings") if found else ():
                parts = CONTENTS[form]([text[:index], text[index:]])
                upstream.answer_with(respond({**chat("a"), **build_response(parts)}))
                reply = await ask_route(proxy, ROUTES[name])

                assert found.encode() not in reply.raw, (reply.status, parts)
            upstream.requests.clear()
