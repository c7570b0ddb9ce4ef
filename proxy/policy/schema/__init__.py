"""The policy files as types: these models are the schema, and every key an operator may write.

A section is a mapping from names to what they mean: one file here for each. Models are frozen and
refuse unknown keys. What is said of a key below it is what an editor shows: see ``editor``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import Field

from proxy.config.scalars import VARIABLE, Name, Section, TagKey
from proxy.policy.schema.cache import CacheConfig, SemanticConfig
from proxy.policy.schema.capture import CaptureConfig
from proxy.policy.schema.cors import CorsConfig
from proxy.policy.schema.deployments import (
    DeploymentConfig,
    HedgeConfig,
    PassedPathConfig,
    RetryConfig,
    StickyConfig,
    TargetConfig,
)
from proxy.policy.schema.keys import CredentialConfig, KeyConfig, Revocation, is_revocation
from proxy.policy.schema.limits import LimitConfig
from proxy.policy.schema.prices import PriceConfig, PriceTable, TierConfig
from proxy.policy.schema.rules import (
    Hours,
    Match,
    PolicyConfig,
    RefusalConfig,
    RuleConfig,
    When,
    Without,
)
from proxy.policy.schema.tags import CallerTags, Tag
from proxy.policy.schema.upstreams import BreakerConfig, TimeoutsConfig, UpstreamConfig

__all__ = [
    "VARIABLE",
    "BreakerConfig",
    "CacheConfig",
    "CallerTags",
    "CaptureConfig",
    "CorsConfig",
    "CredentialConfig",
    "DeploymentConfig",
    "HedgeConfig",
    "Hours",
    "KeyConfig",
    "LimitConfig",
    "Match",
    "PassedPathConfig",
    "PoliciesConfig",
    "PolicyConfig",
    "PriceConfig",
    "PriceTable",
    "RefusalConfig",
    "RetryConfig",
    "Revocation",
    "RuleConfig",
    "Section",
    "SemanticConfig",
    "StickyConfig",
    "Tag",
    "TargetConfig",
    "TierConfig",
    "TimeoutsConfig",
    "UpstreamConfig",
    "When",
    "Without",
    "is_revocation",
]


class PoliciesConfig(Section):
    """All sections of a folder, merged. Prices are checked one by one when they are used."""

    upstreams: dict[Name, UpstreamConfig] = Field(default_factory=dict)
    """Where calls may go."""
    tags: dict[TagKey, Tag] = Field(default_factory=dict)
    """How usage is attributed: every tag and its values."""
    caller_tags: CallerTags = Field(default_factory=CallerTags)
    """What becomes of a caller's tag that is not allowed."""
    keys: dict[Name, KeyConfig] = Field(default_factory=dict)
    """Who may call what."""
    cors: CorsConfig = Field(default_factory=CorsConfig)
    """Which pages in browsers may call."""
    revoked: list[Revocation] = Field(default_factory=list)
    """Keys, by name or digest, that count no more, whatever is wrong in the rest of the folder."""
    policies: dict[Name, PolicyConfig] = Field(default_factory=dict)
    """Rules that deployments follow."""
    deployments: dict[Name, DeploymentConfig] = Field(default_factory=dict)
    """The names that applications call."""
    prices: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """What tokens cost, by provider and model; `name*` stands for all that begin so."""
    price_table: PriceTable = Field(default_factory=PriceTable)
    """What is to be known of the prices as a whole."""

    def parts(
        self,
    ) -> Iterator[tuple[tuple[str | int, ...], PolicyConfig | RuleConfig | DeploymentConfig]]:
        """Yield each policy, then its rules, and each deployment, with where it is written."""
        for name, policy in self.policies.items():
            yield ("policies", name), policy
            for number, rule in enumerate(policy.rules):
                yield ("policies", name, "rules", number), rule
        yield from ((("deployments", name), each) for name, each in self.deployments.items())
