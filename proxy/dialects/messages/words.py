"""What a chat and Messages have different words for, and what neither can say of the other."""

from __future__ import annotations

from collections.abc import Mapping

CHOICES: Mapping[str, str] = {"auto": "auto", "required": "any", "none": "none"}
"""Whether a tool is to be asked, in a chat's words and in those of Messages."""
TIERS: Mapping[str, str] = {"auto": "auto", "default": "standard_only"}
"""The tiers of service, likewise."""


def turned(words: Mapping[str, str]) -> Mapping[str, str]:
    """Return the words of Messages, each with the chat's."""
    return {own: chat for chat, own in words.items()}
