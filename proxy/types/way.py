"""What is the same of all requests that go one way: from a dialect's endpoint to an upstream."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from proxy.fields.rules import FieldRules

Endpoint = Literal[
    "completions", "chat", "responses", "embeddings", "models", "count_tokens", "passthrough",
    "stored", "conversations"
]  # fmt: skip
ABOUT_STATE: frozenset[Endpoint] = frozenset({"stored", "conversations"})
"""Endpoints of calls about what a provider keeps."""
UNBILLED: frozenset[Endpoint] = ABOUT_STATE | {"count_tokens"}
"""Endpoints of calls for which no model works: they cost nothing, and count for limits of calls
alone. Of their answers none is kept."""
MODEL_FREE_METHODS = frozenset({"DELETE", "GET", "HEAD"})
"""Methods by which what is passed on puts no model to work."""
TargetEndpoint = Literal["completions", "chat", "responses"]
"""What a target may speak alone."""


class ChangedFields(NamedTuple):
    """What becomes of the fields of a request that say how much may be answered, or that rules look
    at: those fields as they are sent, and the tokens that an answer to one prompt may have."""

    fields: Mapping[str, Any]
    most: int


AskedNumbers = tuple[str, tuple[tuple[str, int], ...]]
"""The model of a target, and what a request says in such fields: all of them are whole numbers."""


@dataclass(eq=False, slots=True)
class TargetRoute:
    """Worked out when the first request goes this way, and kept with the upstream.

    ``endpoint`` is that of the upstream, ``url`` and ``headers`` are those of each request to it.
    Fields of the names ``passed`` go on as they came, if the upstream's ``checks`` have nothing
    against their values, and none of the ``rules`` applies to a field; those that are not
    ``unsure`` were checked so when they came.
    ``asked_for_usage`` is true where a stream must be asked to tell its usage. ``obeyed`` and
    ``takes_zero`` are those of ``Translated``. ``unchanged`` has what becomes of fields that no
    rule changes.
    """

    endpoint: Endpoint
    url: str
    rules: FieldRules
    passed: frozenset[str]
    checks: Mapping[str, Callable[[Any], str | None]]
    unsure: frozenset[str]
    obeyed: Collection[str]
    takes_zero: bool
    asked_for_usage: bool
    headers: dict[str, str] = field(repr=False)  # our own credential is among them
    unchanged: dict[AskedNumbers, ChangedFields | None] = field(default_factory=dict, repr=False)
