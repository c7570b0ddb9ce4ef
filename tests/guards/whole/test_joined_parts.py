"""Findings across the parts of a message are masked in each part."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proxy.guards.engine import Engine, Inspection
from proxy.guards.findings import RuleTally, TextMatch
from proxy.guards.text.documents import collect_request_texts
from proxy.guards.text.replace import replace_texts
from proxy.guards.whole.joined_parts import MAX_JOINED_CHARS, iter_joined_message_parts
from proxy.guards.whole.text_batches import RuleInspection, split_into_batches
from proxy.types.guard import Finding, GuardRule
from tests.for_each import for_each
from tests.guards.doubles import Ticks, pieces, rule
from tests.guards.growth import lines
from tests.guards.stream.test_window import CUTS, RULES, TEXT

PARTS: list[Any] = [{"type": "text", "text": "the se"}, {"text": "c"}, "ret is out"]


def body(*parts: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [*parts]}]}


@dataclass(frozen=True, slots=True)
class NearbyWord:
    """Finds a word only shortly after, or directly before, another word."""

    lookback: int | None = 20

    def find(self, text: str) -> Sequence[Finding]:
        matches = re.finditer(r"the [^b]{0,4}(?P<a>secret)|(?P<b>cret|a+)(?=ab)", text)
        return [Finding(*m.span(m.lastgroup or 0), "word") for m in matches]


async def inspected(request: dict[str, Any], *rules: GuardRule) -> Inspection:
    return await Engine(Ticks()).inspect(rules, collect_request_texts(request).texts)


@for_each(
    "stored",
    [
        lambda parts: {"system": parts},
        lambda parts: {"contents": [{"role": "user", "parts": parts}]},
        lambda parts: {"messages": [{"content": [{"type": "thinking", "thinking": parts}]}]},
        lambda parts: {"input": [{"type": "function_call_output", "output": parts}]},
        lambda parts: {"input": [{"type": "custom_tool_call_output", "output": [*parts]}]},
    ],
)
async def test_parts_are_one_text_in_any_place(stored: Any) -> None:
    inspection = await inspected(stored(PARTS), rule("secret"))

    assert inspection.blocked is not None


async def masked_texts(rule: GuardRule, *parts: Any) -> list[Any]:
    request = body(*parts)
    changed = replace_texts(request, (await inspected(request, rule)).changes)
    return [*changed["messages"][0]["content"]]


async def test_finding_across_parts_is_masked_in_each() -> None:
    assert await masked_texts(rule("secret", action="mask"), *PARTS) == [
        {"type": "text", "text": "the [WORD]"},
        {"text": "[WORD]"},
        "[WORD] is out",
    ]


@for_each(
    ("parts", "masked"),
    [
        (("see the ", "secret"), ("see the ", "[WORD]")),
        (("see ", "the", " ", "secret here"), ("see ", "the", " ", "[WORD] here")),
        (("the se", "cret"), ("the [WORD]", "[WORD]")),
        (("a secret is the ", "secret"), ("a secret is the ", "[WORD]")),
        (("cr", "et", "ab"), ("[WORD]", "[WORD]", "ab")),
        (("a cret", "ab"), ("a [WORD]", "ab")),
        (("the ", "secret, the secret"), ("the ", "[WORD], the [WORD]")),
    ],
)
async def test_finding_with_context_in_another_part_is_masked(
    parts: tuple[str, ...], masked: tuple[str, ...]
) -> None:
    request = body(*({"text": name} for name in parts))

    inspection = await inspected(request, GuardRule("beside", NearbyWord(), action="mask"))

    [message] = replace_texts(request, inspection.changes)["messages"]
    assert tuple(part["text"] for part in message["content"]) == masked
    assert inspection.results[0].findings == {"word": 1 + masked[-1].count("[WORD], the ")}
    assert inspection.results[0].fields == len(parts)


async def test_data_in_a_part_is_found_once() -> None:
    url = "data:text/plain;base64," + base64.b64encode(b"all of it is a secret").decode()

    inspection = await inspected(body({"text": "see: "}, {"text": url}), rule("secret"))

    assert inspection.results[0].findings == {"word": 1}


Letters = set[tuple[int, int]]


def inspect(texts: Any, single_rule: GuardRule) -> RuleInspection:
    """Inspect texts by one rule without a deadline."""
    inspection = RuleInspection(RuleTally(replace(single_rule, deadline_s=99), Ticks()), 0)
    for batch in split_into_batches(texts, [inspection]):
        inspection.inspect(batch)
    return inspection


def letters_of(texts: Any, single_rule: GuardRule) -> Letters:
    """Return the text number and index of each letter that a rule finds."""
    matches = inspect(texts, single_rule).matches
    return {(number, index) for number, m in matches for index in range(m.start, m.end)}


def letters_alone(texts: Any, single_rule: GuardRule) -> Letters:
    """Return the same for texts that are inspected one by one."""
    return {
        (number, index)
        for number, text in enumerate(texts)
        for _, index in letters_of([text], single_rule)
    }


def lines_of(request: dict[str, Any], single_rule: GuardRule, match_count: int) -> int:
    """Return the number of Python lines that inspect a request with ``match_count`` matches."""
    texts, inspections = collect_request_texts(request).texts, list[RuleInspection]()
    count = lines(lambda: inspections.append(inspect(texts, single_rule)))
    assert len(inspections[0].matches) == match_count
    return count


WORDS = st.sampled_from(["the ", "secret", "se", "cret", "aa", "ab", "b", " ", "s e c r e t"])
DRAWN_PARTS = st.lists(st.lists(WORDS, min_size=1, max_size=3).map("".join), min_size=1, max_size=5)
CUT = st.builds(pieces, TEXT, CUTS)


@given(DRAWN_PARTS | CUT, st.sampled_from(RULES))
def test_parts_are_read_joined_and_alone(drawn: list[str], rules: tuple[GuardRule, ...]) -> None:
    parts = [name for name in drawn if name]
    starts = [*accumulate(map(len, parts), initial=0)]
    texts = collect_request_texts(body(*({"text": name} for name in parts))).texts

    for single_rule in (*rules, GuardRule("beside", NearbyWord())):
        if single_rule.detector.lookback is None:  # type: ignore[union-attr]
            continue
        together = letters_of(collect_request_texts(body("".join(parts))).texts, single_rule)
        alone, output = (
            {starts[number] + index for number, index in find(texts, single_rule)}
            for find in (letters_alone, letters_of)
        )
        assert output == {index for _, index in together} | alone


@for_each(
    "fields",
    [
        {"prompt": ["the se", "cret"]},
        {"messages": [{"role": "user", "content": "se"}, {"role": "tool", "content": "cret"}]},
        body({"text": "se"}, {"text": "x" * MAX_JOINED_CHARS}, {"text": "cret"}),
        body({"text": "se", "name": "cret"}),
    ],
    ids=["prompts", "messages", "long", "names"],
)
async def test_separate_texts_are_not_joined(fields: dict[str, Any]) -> None:
    assert not [*iter_joined_message_parts(collect_request_texts(fields).texts)]
    assert (await inspected(fields, rule("secret"))).blocked is None


async def test_whole_text_rule_inspects_each_part() -> None:
    inspection = await inspected(body(*PARTS), rule("secret", unbounded=True))

    assert inspection.blocked is None


@for_each(
    ("build", "match_count", "size"),
    [
        (
            lambda n: {"messages": [{"content": [{"text": "a secret"}, "the se", "cret"]}] * n},
            lambda n: 3 * n, 200,
        ),
        (
            lambda n: body({"text": "a secret. " * n}, {"text": "the "}, {"text": "secret"}),
            lambda n: n + 1, 400,
        ),
    ],
)  # fmt: skip
def test_many_messages_and_findings_take_linear_time(
    build: Any, match_count: Any, size: int
) -> None:
    short, long = (lines_of(build(n), rule("secret"), match_count(n)) for n in (size, 2 * size))
    assert long < 3 * short


def test_many_parts_are_mapped_in_linear_time() -> None:
    def placed(size: int) -> int:
        parts = [{"type": "text", "text": "a secret"}] * size
        read = collect_request_texts({"messages": [{"role": "user", "content": parts}]}).texts
        (seam,) = iter_joined_message_parts(read)
        matches = [TextMatch(8 * n + 6, 8 * n + 10, 0, "word") for n in range(size)]
        return lines(lambda: [*seam.split_matches(matches)])

    assert placed(800) < 3 * placed(400)
