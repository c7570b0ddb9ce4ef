"""Other gateways' configurations, turned into a folder of policies: one file each, one table line.

Nothing is guessed: what has no counterpart here is told with its place, and no secret is copied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proxy.lazy import LazyTable
from proxy.migrate.draft import Draft

FORMATS: LazyTable[Callable[[Any, str], Draft]] = LazyTable(
    {
        "litellm": "proxy.migrate.litellm:draft_of",
        "portkey": "proxy.migrate.portkey:draft_of",
    }
)
"""By the word of a gateway: what turns its configuration, and a name for it, into a draft."""
