"""Names of members of API documents and their known values, from ``data/members.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

_TABLES = tomllib.loads((Path(__file__).parent / "data" / "members.toml").read_text("utf-8"))
MEMBERS: Mapping[str, frozenset[str]]
VALUES: Mapping[str, frozenset[str]]
MEMBERS, VALUES = (
    {key: frozenset(words.split()) for key, words in _TABLES[table].items()}
    for table in ("members", "values")
)
