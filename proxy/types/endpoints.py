"""Precomputed routes from a client's endpoint to an upstream."""

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
"""Endpoints that manage state stored by a provider."""
UNBILLED: frozenset[Endpoint] = ABOUT_STATE | {"count_tokens"}
"""Endpoints that run no model: free of charge, counted only by request limits, never cached."""
MODEL_FREE_METHODS = frozenset({"DELETE", "GET", "HEAD"})
"""Methods of passthrough requests that run no model."""
TargetEndpoint = Literal["completions", "chat", "responses"]
"""Endpoints that a target may be restricted to."""


class ChangedFields(NamedTuple):
    """Output bounds and rule-controlled fields of a request as sent.

    ``most`` is the maximum number of output tokens for one prompt.
    """

    fields: Mapping[str, Any]
    most: int


NumericFields = tuple[str, tuple[tuple[str, int], ...]]
"""Key of a cache of ``ChangedFields``: the target's model and the values of these fields."""


@dataclass(eq=False, slots=True)
class TargetRoute:
    """The route of requests of one endpoint to one upstream. Computed on first use.

    ``endpoint``, ``url`` and ``headers`` describe the upstream request. A field in ``passed`` is
    forwarded unchanged if its ``checks`` accept the value and no rule applies to it. Only fields in
    ``unsure`` need these checks: the others passed them with the request.
    ``asked_for_usage`` is True if a stream must request a usage chunk. ``obeyed`` and
    ``takes_zero`` become ``supported_fields`` and ``accepts_zero_bound`` of the translated request.
    ``unchanged`` caches fields without rules.
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
    headers: dict[str, str] = field(repr=False)  # they include the proxy's credential
    unchanged: dict[NumericFields, ChangedFields | None] = field(default_factory=dict, repr=False)
