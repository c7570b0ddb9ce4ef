"""Converts configurations of other gateways to policies. Each gateway has a file.

Nothing is guessed: settings without an equivalent are listed. No secret is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from proxy.migrate import litellm, portkey
from proxy.migrate.draft import Draft

CONVERTERS: Mapping[str, Callable[[Any, str, Mapping[str, str]], Draft]] = {
    "litellm": litellm.convert_config,
    "portkey": portkey.convert_config,
}
"""Converters by gateway. They get the configuration, its name, and variables with URLs."""
