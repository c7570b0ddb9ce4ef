"""Binds rules to the request of a call, for detectors that judge texts by its prompt.

Reads the request in any API format. Missing members and members without a text count as empty.
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

NO_FIELDS: frozenset[str] = frozenset()
_SYSTEM_ROLES = frozenset({"system", "developer"})


@frozen
class FailedDetector:
    """Raises the error that prevented a detector or a service from being used."""

    error: Exception
    lookback: int | None = 0

    def find(self, text: str) -> Sequence[Finding]:
        raise self.error


def bind(rules: Sequence[GuardRule], body: Json) -> Sequence[GuardRule]:
    """Return the rules with the detectors of one call; services stay as they are.

    A rule whose context the call lacks applies to no text.
    """
    if not any(is_contextual(rule.detector) for rule in rules):
        return rules
    context = prompt_context(body)
    return [
        _bind_rule(rule, rule.detector, context) if is_contextual(rule.detector) else rule
        for rule in rules
    ]


def bind_stage(rules: StageRules, body: Json) -> tuple[Sequence[GuardRule], Sequence[GuardRule]]:
    """Return the rules of one call that have a detector, and those that call a service."""
    if not rules.contextual:
        return rules.detectors, rules.services
    return split_services(bind(rules.every, body))


def split_services(rules: Sequence[GuardRule]) -> tuple[list[GuardRule], list[GuardRule]]:
    """Return the rules that have a detector, and those that call a service."""
    detectors = [rule for rule in rules if not is_service(rule.detector)]
    return detectors, [rule for rule in rules if is_service(rule.detector)]


def split_enforcing(rules: Sequence[GuardRule]) -> tuple[list[GuardRule], list[GuardRule]]:
    """Return the rules that enforce, and those that only record findings."""
    return [rule for rule in rules if rule.enforces], [rule for rule in rules if not rule.enforces]


def _bind_rule(
    rule: GuardRule, contextual: ContextualDetector, context: PromptContext
) -> GuardRule:
    try:
        detector = contextual.about(context)
    except Exception as error:  # noqa: BLE001  # a broken guard must not pass texts
        return replace(rule, detector=FailedDetector(error))
    if detector is None:
        return replace(rule, detector=FailedDetector(LookupError()), fields=NO_FIELDS)
    return replace(rule, detector=detector)


def prompt_context(body: Json) -> PromptContext:
    """Return the system prompt, the last user message and the declared context of a request."""
    turns = body["messages"] if "messages" in body else body.get("input")
    messages = [message for message in _as_list(turns) if isinstance(message, dict)]
    system = [
        _text_of(message.get("content"))
        for message in messages
        if message.get("role") in _SYSTEM_ROLES
    ]
    for name in ("system", "instructions"):  # fields of Messages and Responses
        if name in body:
            system.insert(0, _text_of(body[name]))
    prompts = [
        _text_of(message.get("content")) for message in messages if message.get("role") == "user"
    ]
    return PromptContext(
        system=_join(system),
        asked=prompts[-1] if prompts else _text_of(body.get("prompt", body.get("input"))),
        context=_text_of(body.get("context", body.get("enkrypt_context"))),
    )


def _text_of(value: Any) -> str:
    """Return the text of a string, or of a list of strings and of parts with a text."""
    if isinstance(value, str):
        return value
    parts = (part.get("text") if isinstance(part, dict) else part for part in _as_list(value))
    return _join(part for part in parts if isinstance(part, str))


def _join(texts: Iterable[str]) -> str:
    return "\n".join(text for text in texts if text)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
