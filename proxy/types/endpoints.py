"""Endpoints of clients, and precomputed routes from an endpoint to an upstream."""

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
UNBILLED_ENDPOINTS: frozenset[Endpoint] = ABOUT_STATE | {"count_tokens"}
"""Endpoints that run no model: free of charge, counted only by request limits, never cached."""
MODEL_FREE_METHODS = frozenset({"DELETE", "GET", "HEAD"})
"""Methods of passthrough requests that run no model."""
TargetEndpoint = Literal["completions", "chat", "responses"]
"""Endpoints that a target may be restricted to."""


class ChangedFields(NamedTuple):
    """Numeric fields of a request, as rules change them.

    ``max_output_tokens`` applies to one prompt.
    """

    fields: Mapping[str, Any]
    max_output_tokens: int


NumericFields = tuple[str, tuple[tuple[str, int], ...]]
"""Key of a cache of ``ChangedFields``: the target's model and the values of these fields."""


@dataclass(eq=False, slots=True)
class TargetRoute:
    """The route of requests of one endpoint to one upstream. Computed on first use.

    - ``endpoint``, ``url``, ``headers``: describe the upstream request. ``headers`` include the
      proxy's credential.
    - ``unchanged_fields``: fields that are forwarded unchanged unless a rule applies to them.
    - ``checks``: checks of their values. Only ``unchecked_fields`` need them: the other fields
      passed them with the request.
    - ``requests_usage``: the proxy requests a usage chunk in streams.
    - ``supported_fields``, ``accepts_zero_bound``: copied to the translated request.
    - ``fields_without_rules``: cache of the fields of calls to which no rule applies.
    """

    endpoint: Endpoint
    url: str
    rules: FieldRules
    unchanged_fields: frozenset[str]
    checks: Mapping[str, Callable[[Any], str | None]]
    unchecked_fields: frozenset[str]
    supported_fields: Collection[str]
    accepts_zero_bound: bool
    requests_usage: bool
    headers: dict[str, str] = field(repr=False)
    fields_without_rules: dict[NumericFields, ChangedFields | None] = field(
        default_factory=dict, repr=False
    )
