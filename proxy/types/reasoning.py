"""Which models think before they answer: in tokens that are billed, and that nobody may see."""

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
    """True if the model is known to reason by its name, or the request asks it to."""
    return _asked(body) or (bool(_NAMES.search(model)) and not _NOT.search(model))


def may_reason(model: str, body: Mapping[str, Any]) -> bool:
    """True unless the model is known by its name not to reason, and the request does not ask it
    to."""
    return _asked(body) or not _NOT.search(model)


def _asked(body: Mapping[str, Any]) -> bool:
    if WISHES.isdisjoint(body):
        return False
    thinking = body.get("thinking")
    if isinstance(thinking, dict):
        thinking = thinking.get("type")
    effort, reasoning = body.get("reasoning_effort"), body.get("reasoning")
    return effort not in _OFF or reasoning not in _OFF or thinking not in _OFF
