"""Other gateways' configurations, turned into a folder of policies: one file each, one table line.

Nothing is guessed: what has no counterpart here is told with its place, and no secret is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from proxy.lazy import LazyTable
from proxy.migrate.draft import Draft

FORMATS: LazyTable[Callable[[Any, str, Mapping[str, str]], Draft]] = LazyTable(
    {
        "litellm": "proxy.migrate.litellm:draft_of",
        "portkey": "proxy.migrate.portkey:draft_of",
    }
)
"""By the word of a gateway: what turns its configuration, a name for it, and the variables that may
hold addresses into a draft."""
