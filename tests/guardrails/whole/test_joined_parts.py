"""What goes across the parts of a message is found, and masked in each of them."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.guardrails.engine import Engine, Inspection
from proxy.guardrails.findings.mask import TextMatch
from proxy.guardrails.findings.tally import RuleTally
from proxy.guardrails.text.replace import replaced
from proxy.guardrails.text.walk import request_texts
from proxy.guardrails.whole.joined_parts import MOST, joined_parts
from proxy.guardrails.whole.sheets import RuleLook, sheets
from proxy.types.guard import GuardRule
from tests.guardrails.doubles import Ticks, rule
from tests.guardrails.growth import lines

PARTS: list[Any] = [{"type": "text", "text": "the se"}, {"text": "c"}, "ret is out"]


def body(*parts: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [*parts]}]}


async def inspected(asked: dict[str, Any], *rules: GuardRule) -> Inspection:
    return await Engine(Ticks()).inspect(rules, request_texts(asked).texts)


async def test_a_word_that_is_cut_across_parts_is_found_once() -> None:
    looked = await inspected(body(*PARTS), rule("secret"), rule("the", name="other"))

    assert looked.blocked is not None
    assert [result.findings for result in looked.results] == [{"word": 1}, {"word": 1}]


@pytest.mark.parametrize(
    "put",
    [
        lambda parts: {"system": parts},
        lambda parts: {"contents": [{"role": "user", "parts": parts}]},
        lambda parts: {"messages": [{"content": [{"type": "thinking", "thinking": parts}]}]},
    ],
)
async def test_parts_are_one_text_wherever_a_message_has_them(put: Any) -> None:
    looked = await inspected(put(PARTS), rule("secret"))

    assert looked.blocked is not None


async def test_its_mask_is_in_each_part_that_it_is_in() -> None:
    asked = body(*PARTS)

    looked = await inspected(asked, rule("secret", action="mask"))

    [message] = replaced(asked, looked.changes)["messages"]
    assert message["content"] == [
        {"type": "text", "text": "the [WORD]"},
        {"text": "[WORD]"},
        "[WORD] is out",
    ]


async def test_what_is_in_one_part_is_not_counted_again() -> None:
    looked = await inspected(body({"text": "a secret, "}, {"text": "a secret"}), rule("secret"))

    assert looked.results[0].findings == {"word": 2}
    assert looked.results[0].fields == 2


@pytest.mark.parametrize(
    "asked",
    [
        {"prompt": ["the se", "cret"]},
        {"messages": [{"role": "user", "content": "se"}, {"role": "user", "content": "cret"}]},
        body({"text": "se"}, {"text": "x" * MOST}, {"text": "cret"}),
        body({"text": "se", "name": "cret"}),
    ],
    ids=["prompts", "messages", "long", "names"],
)
async def test_what_is_not_read_as_one_is_not_joined(asked: dict[str, Any]) -> None:
    assert not [*joined_parts(request_texts(asked).texts)]
    assert (await inspected(asked, rule("secret"))).blocked is None


async def test_what_judges_a_whole_text_judges_each_part() -> None:
    looked = await inspected(body(*PARTS), rule("secret", unbounded=True))

    assert looked.blocked is None


async def test_findings_in_many_messages_of_parts_are_looked_through_in_linear_time() -> None:
    def looked(size: int) -> int:
        parts = [{"text": "a secret"}, {"text": "the se"}, {"text": "cret"}]
        asked = {"messages": [{"role": "user", "content": parts}] * size}
        texts = request_texts(asked).texts
        look = RuleLook(RuleTally(rule("secret", deadline_s=99), Ticks()), 0)

        def seen() -> None:
            for sheet in sheets(texts, [look]):
                look.see(sheet)

        count = lines(seen)
        assert len(look.matches) == 3 * size
        return count

    assert looked(400) < 3 * looked(200)


def test_many_findings_in_many_parts_are_placed_in_linear_time() -> None:
    def placed(size: int) -> int:
        parts = [{"type": "text", "text": "a secret"}] * size
        read = request_texts({"messages": [{"role": "user", "content": parts}]}).texts
        (seam,) = joined_parts(read)
        matches = [TextMatch(8 * n + 6, 8 * n + 10, 0, "word") for n in range(size)]
        return lines(lambda: [*seam.across(matches)])

    assert placed(800) < 3 * placed(400)
