"""The API families by name, and by dialect and endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from proxy.dialects import DIALECTS
from proxy.dialects.base import Dialect
from proxy.dialects.chat.family import CHAT, COMPLETIONS
from proxy.dialects.chat.writer import KIN
from proxy.dialects.document import DOCUMENT, EMBEDDINGS
from proxy.dialects.family import Family
from proxy.dialects.messages.family import MESSAGES
from proxy.dialects.responses.family import RESPONSES, STORED
from proxy.types import Call, Endpoint
from proxy.types.events import FamilyName

FAMILIES: Final[Mapping[FamilyName, Family]] = {
    family.name: family
    for family in (CHAT, COMPLETIONS, MESSAGES, RESPONSES, EMBEDDINGS, STORED, DOCUMENT)
}
FAMILY_OF_ENDPOINT: Final[Mapping[Endpoint, FamilyName]] = {
    "chat": "chat",
    "completions": "completions",
    "responses": "responses",
    "embeddings": "embeddings",
    "stored": "stored",
    "conversations": "stored",
    "models": "document",
    "count_tokens": "document",
    "passthrough": "document",
}
"""The families of answers, unless a dialect has another one for those with parts."""


def family_name(dialect: Dialect, endpoint: Endpoint) -> FamilyName:
    """Return the family of the answers at an endpoint."""
    family = FAMILY_OF_ENDPOINT[endpoint]
    return family if family == "document" else dialect.families.get(endpoint, family)


def client_family(call: Call) -> FamilyName:
    """Return the family in which a call is answered."""
    return family_name(DIALECTS[call.head.dialect], call.head.endpoint)


def crosses(client: FamilyName, upstream: FamilyName) -> bool:
    """Return True if only events pass between two families.

    Documents of chat and of legacy completions are converted into each other.
    """
    return client != upstream and not KIN.issuperset((client, upstream))
