"""The API families, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from proxy.dialects.chat.family import CHAT, COMPLETIONS
from proxy.dialects.chat.writer import KIN
from proxy.dialects.document import DOCUMENT, EMBEDDINGS
from proxy.dialects.family import Family
from proxy.dialects.messages.family import MESSAGES
from proxy.dialects.responses.family import RESPONSES, STORED
from proxy.types.events import FamilyName

FAMILIES: Final[Mapping[FamilyName, Family]] = {
    family.name: family
    for family in (CHAT, COMPLETIONS, MESSAGES, RESPONSES, EMBEDDINGS, STORED, DOCUMENT)
}


def crosses(client: FamilyName, upstream: FamilyName) -> bool:
    """Return True if a client of one family gets an answer of another by its events alone.
    Documents of chat and of legacy completions are converted into each other."""
    return client != upstream and not KIN.issuperset((client, upstream))
