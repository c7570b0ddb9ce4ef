"""Context of a prompt is read from a body, and rules are bound to it."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.guards.engine import Engine, bind_to_prompt, build_prompt_context
from proxy.guards.text.documents import collect_request_texts
from proxy.types.guard import Detector, GuardRule, PromptContext, StageRules
from tests.for_each import for_each
from tests.guards.doubles import EchoOfPrompt, SlowService, Ticks, rule

REQUEST = StageRules.from_rules((GuardRule("asked", EchoOfPrompt()),))
SERVICE = GuardRule("service", SlowService())


@for_each(
    ("body", "prompt"),
    [
        ({}, PromptContext()),
        ({"prompt": "Hi"}, PromptContext(user_message="Hi")),
        ({"prompt": ["Hi", "there"]}, PromptContext(user_message="Hi\nthere")),
        ({"prompt": [1, 2]}, PromptContext()),
        ({"input": "Hi"}, PromptContext(user_message="Hi")),
        (
            {
                "messages": [
                    {"role": "system", "content": "Be kind."},
                    {"role": "user", "content": "One"},
                    {"role": "assistant", "content": "Yes?"},
                    {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
                    {
                        "role": "user",
                        "content": [
                            {"type": "image_url", "image_url": {"url": "x"}},
                            {"type": "text", "text": "Two"},
                            {"type": "text", "text": "three"},
                        ],
                    },
                ],
                "context": ["A fact.", {"text": "Another."}, 7],
            },
            PromptContext("Be kind.\nBe brief.", "Two\nthree", "A fact.\nAnother."),
        ),
        ({"enkrypt_context": "A fact."}, PromptContext(context="A fact.")),
        ({"messages": [{"role": "user", "content": None}, 3]}, PromptContext()),
        ({"messages": "no list", "context": {"text": 3}}, PromptContext()),
    ],
)
def test_context_contains_texts_of_a_prompt(body: dict[str, Any], prompt: PromptContext) -> None:
    assert build_prompt_context(body) == prompt


def test_static_rules_are_not_copied() -> None:
    rules = StageRules.from_rules((rule("secret"), SERVICE))

    assert bind_to_prompt(rules, {"prompt": "Hi"}) is rules


async def test_rule_is_bound_to_the_prompt() -> None:
    body = {"prompt": "hippo"}
    texts = collect_request_texts(body).texts
    inspection = await Engine(Ticks()).inspect(bind_to_prompt(REQUEST, body).detectors, texts)

    assert [result.verdict for result in inspection.results] == ["blocked"]


async def test_rule_without_context_is_not_applicable() -> None:
    body = {"suffix": "a text"}
    texts = collect_request_texts(body).texts
    inspection = await Engine(Ticks()).inspect(bind_to_prompt(REQUEST, body).detectors, texts)

    [result] = inspection.results
    assert (result.verdict, result.bytes, inspection.blocked) == ("not_applicable", 0, None)


class Clumsy:
    """Raises when it is bound to a context."""

    lookback = None

    def for_prompt(self, prompt: PromptContext) -> Detector | None:
        raise ZeroDivisionError


@pytest.mark.parametrize(("on_error", "stops"), [("closed", True), ("open", False)])
async def test_rule_that_raises_when_bound_has_failed(on_error: Any, stops: bool) -> None:
    body = {"prompt": "hippo"}
    clumsy = StageRules.from_rules((GuardRule("clumsy", Clumsy(), on_error=on_error),))
    rules = bind_to_prompt(clumsy, body)
    inspection = await Engine(Ticks()).inspect(rules.detectors, collect_request_texts(body).texts)

    assert inspection.results[0].error == "ZeroDivisionError"
    assert (inspection.blocked is not None) is stops
