"""Converts configurations of other gateways to policies. Each gateway has a file.

Nothing is guessed: settings without an equivalent are listed. No secret is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from proxy.migrate.draft import Draft
from proxy.runtime.lazy import LazyTable

FORMATS: LazyTable[Callable[[Any, str, Mapping[str, str]], Draft]] = LazyTable(
    {"litellm": "proxy.migrate.litellm:draft_of", "portkey": "proxy.migrate.portkey:draft_of"}
)
"""Converters by gateway. They get the configuration, its name, and variables with URLs."""
