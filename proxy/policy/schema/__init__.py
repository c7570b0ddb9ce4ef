"""The policy files as types: these models are the schema, and every key an operator may write.

A section is a mapping from names to what they mean: one file here for each. Models are frozen and
refuse unknown keys. What is said of a key below it is what an editor shows: see ``editor``.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from proxy.policy.schema.cache import Cache, Semantic
from proxy.policy.schema.capture import Capture
from proxy.policy.schema.deployments import Deployment, Hedge, Retry, Sticky, Target
from proxy.policy.schema.keys import Credential, Key, Revocation, is_revocation
from proxy.policy.schema.limits import Limit
from proxy.policy.schema.prices import Price, PriceTable, Tier
from proxy.policy.schema.rules import Hours, Match, Policy, Refusal, Rule, When, Without
from proxy.policy.schema.scalars import VARIABLE, Name, Section, TagKey
from proxy.policy.schema.tags import CallerTags, Tag
from proxy.policy.schema.upstreams import Breaker, Timeouts, Upstream

__all__ = [
    "VARIABLE",
    "Breaker",
    "Cache",
    "CallerTags",
    "Capture",
    "Credential",
    "Deployment",
    "Hedge",
    "Hours",
    "Key",
    "Limit",
    "Match",
    "Policies",
    "Policy",
    "Price",
    "PriceTable",
    "Refusal",
    "Retry",
    "Revocation",
    "Rule",
    "Section",
    "Semantic",
    "Sticky",
    "Tag",
    "Target",
    "Tier",
    "Timeouts",
    "Upstream",
    "When",
    "Without",
    "is_revocation",
]


class Policies(Section):
    """All sections of a folder, merged. Prices are checked one by one when they are used."""

    upstreams: dict[Name, Upstream] = Field(default_factory=dict)
    """Where calls may go."""
    tags: dict[TagKey, Tag] = Field(default_factory=dict)
    """How usage is attributed: every tag and its values."""
    caller_tags: CallerTags = Field(default_factory=CallerTags)
    """What becomes of a caller's tag that is not allowed."""
    keys: dict[Name, Key] = Field(default_factory=dict)
    """Who may call what."""
    revoked: list[Revocation] = Field(default_factory=list)
    """Keys, by name or digest, that count no more, whatever is wrong in the rest of the folder."""
    policies: dict[Name, Policy] = Field(default_factory=dict)
    """Rules that deployments follow."""
    deployments: dict[Name, Deployment] = Field(default_factory=dict)
    """The names that applications call."""
    prices: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """What tokens cost, by provider and model; `name*` stands for all that begin so."""
    price_table: PriceTable = Field(default_factory=PriceTable)
    """What is to be known of the prices as a whole."""
