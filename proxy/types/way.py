"""What is the same of all requests that go one way: from a dialect's endpoint to an upstream."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Endpoint = Literal["completions", "chat", "embeddings", "models"]


@dataclass(eq=False, slots=True)
class Way:
    """Worked out when the first request goes this way, and kept with the upstream.

    ``endpoint`` is that of the upstream, ``url`` and ``headers`` are those of each request to it.
    Fields of the names ``passed`` go on as they came, if the upstream's ``checks`` have nothing
    against their values; those that are not ``unsure`` were checked so when they came.
    ``obeyed`` and ``takes_zero`` are those of ``Translated``.
    """

    endpoint: Endpoint
    url: str
    passed: frozenset[str]
    checks: Mapping[str, Callable[[Any], str | None]]
    unsure: frozenset[str]
    obeyed: Collection[str]
    takes_zero: bool
    headers: dict[str, str] = field(repr=False)  # our own credential is among them
