"""What a call asks, for guards that judge by it, and rules bound to it.

A body in OpenAI's form is read as it is; what is not said, or not in words, is empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from proxy.runtime.frozen import frozen
from proxy.types import Json
from proxy.types.guard import (
    ContextualDetector,
    Finding,
    GuardRule,
    PromptContext,
    StageRules,
    is_contextual,
    is_service,
)

NOWHERE: frozenset[str] = frozenset()
_SYSTEM = frozenset({"system", "developer"})


@frozen
class FailedDetector:
    """A detector in the place of one that could not be made."""

    error: Exception
    lookback: int | None = 0

    def find(self, text: str) -> Sequence[Finding]:
        raise self.error


def bind(rules: Sequence[GuardRule], body: Json) -> Sequence[GuardRule]:
    """Return the rules with the detectors of one call. A rule that has nothing to judge by gets
    no text to look at. Services stay as they are."""
    if not any(is_contextual(rule.detector) for rule in rules):
        return rules
    question = question_of(body)
    return [
        _about(rule, rule.detector, question) if is_contextual(rule.detector) else rule
        for rule in rules
    ]


def bound(rules: StageRules, body: Json) -> tuple[Sequence[GuardRule], Sequence[GuardRule]]:
    """Return the rules of a stage as they are for one call: those with a detector of their own,
    then those that ask a service."""
    if not rules.contextual:
        return rules.detectors, rules.services
    return split_services(bind(rules.every, body))


def split_services(rules: Sequence[GuardRule]) -> tuple[list[GuardRule], list[GuardRule]]:
    """Return the rules with a detector of their own, then those that ask a service."""
    detectors = [rule for rule in rules if not is_service(rule.detector)]
    return detectors, [rule for rule in rules if is_service(rule.detector)]


def split_enforcing(rules: Sequence[GuardRule]) -> tuple[list[GuardRule], list[GuardRule]]:
    """Return the rules that enforce, then those that only watch."""
    return [rule for rule in rules if rule.enforces], [rule for rule in rules if not rule.enforces]


def _about(rule: GuardRule, contextual: ContextualDetector, question: PromptContext) -> GuardRule:
    try:
        detector = contextual.about(question)
    except Exception as bug:  # noqa: BLE001  # a guard that breaks must not let texts pass
        return replace(rule, detector=FailedDetector(bug))
    if detector is None:
        return replace(rule, detector=FailedDetector(LookupError()), fields=NOWHERE)
    return replace(rule, detector=detector)


def question_of(body: Json) -> PromptContext:
    """Read what a call asks."""
    turns = body["messages"] if "messages" in body else body.get("input")
    messages = [each for each in _list(turns) if isinstance(each, dict)]
    system = [_content(each) for each in messages if each.get("role") in _SYSTEM]
    for name in ("system", "instructions"):  # of Messages and Responses: it stands by itself
        if name in body:
            system = [_words(body[name]), *system]
    asked = [_content(each) for each in messages if each.get("role") == "user"]
    prompt = body.get("prompt", body.get("input"))
    context = body.get("context", body.get("enkrypt_context"))
    return PromptContext(
        system=_joined(system),
        asked=asked[-1] if asked else _words(prompt),
        context=_words(context),
    )


def _content(message: Json) -> str:
    return _words(message.get("content"))


def _words(value: Any) -> str:
    """Return the text of a value: a string, or a list of strings and parts with a text."""
    if isinstance(value, str):
        return value
    parts = (each.get("text") if isinstance(each, dict) else each for each in _list(value))
    return _joined(each for each in parts if isinstance(each, str))


def _joined(parts: Iterable[str]) -> str:
    return "\n".join(each for each in parts if each)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
