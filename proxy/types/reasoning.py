"""Recognizes reasoning models, whose hidden reasoning tokens are billed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_NAMES = re.compile(
    r"""(?:^|[/:._-])(?:
        o[1-9](?![0-9.])                  # OpenAI: o1, o3-mini, o4-mini
      | gpt-(?:[5-9]|oss)(?!.*chat)       # gpt-5 and later, but for those of the chat
      | (?:deepseek-)?(?:r1|reasoner)(?![0-9])
      | qwq | magistral
      | grok-(?:[4-9]|3-mini)
      | gemini-(?:2\.5|[3-9])
    )|thinking|reasoning""",
    re.IGNORECASE | re.VERBOSE,
)
_NOT = re.compile("non[-_]?(?:thinking|reasoning)", re.IGNORECASE)
WISHES = frozenset({"reasoning", "reasoning_effort", "thinking"})
_OFF = (None, False, "none", "disabled", "off", 0)


def is_reasoning_model(model: str, body: Mapping[str, Any]) -> bool:
    """Return True if the model's name is known to reason, or the request enables reasoning."""
    return _requests_reasoning(body) or (bool(_NAMES.search(model)) and not _NOT.search(model))


def may_reason(model: str, body: Mapping[str, Any]) -> bool:
    """Return True unless the model's name excludes reasoning and the request does not enable it."""
    return _requests_reasoning(body) or not _NOT.search(model)


def _requests_reasoning(body: Mapping[str, Any]) -> bool:
    if WISHES.isdisjoint(body):
        return False
    thinking = body.get("thinking")
    if isinstance(thinking, dict):
        thinking = thinking.get("type")
    effort, reasoning = body.get("reasoning_effort"), body.get("reasoning")
    return effort not in _OFF or reasoning not in _OFF or thinking not in _OFF
