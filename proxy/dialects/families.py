"""The API families, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from proxy.dialects.chat.family import CHAT, COMPLETIONS
from proxy.dialects.family import Family
from proxy.dialects.messages.family import MESSAGES
from proxy.dialects.responses.family import RESPONSES
from proxy.types.events import FamilyName

FAMILIES: Final[Mapping[FamilyName, Family]] = {
    family.name: family for family in (CHAT, COMPLETIONS, MESSAGES, RESPONSES)
}
