"""What is worked out of the patterns of this code, kept beside it: it is the same at each start, of
which it would take a fifth.

A pattern that is not kept, as that of a policy, is worked out as it comes. Whoever changes one of
ours, or how something is worked out, has ``python -m tools.worked_out`` write it anew.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import TypedDict

import orjson

FILE = Path(__file__).parent / "data" / "worked_out.json"


class WorkedOut(TypedDict):
    """What functions of a pattern return, by the pattern's ``digest``: ``beginnings``
    and ``needed``."""

    beginnings: dict[str, tuple[str | None, str | None]]
    needed: dict[str, list[str]]


@lru_cache(maxsize=1)
def worked_out() -> WorkedOut:
    """Return all that is kept; nobody changes it."""
    kept: WorkedOut = orjson.loads(FILE.read_bytes())
    return kept


def digest(pattern: str) -> str:
    return blake2b(pattern.encode(), digest_size=12).hexdigest()
