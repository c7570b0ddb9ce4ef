"""Types of the policy files, with every key that an operator may write.

Each section has a file. Models are frozen and reject unknown keys. The docstring below a key is
shown in editors: see ``editor``.
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
from proxy.policy.schema.keys import CredentialConfig, KeyConfig, Revocation
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
]


class PoliciesConfig(Section):
    """All sections of a folder, merged. Prices are checked when they are used."""

    upstreams: dict[Name, UpstreamConfig] = Field(default_factory=dict)
    """Providers and servers that calls can go to."""
    tags: dict[TagKey, Tag] = Field(default_factory=dict)
    """Tags for attribution of usage, and their values."""
    caller_tags: CallerTags = Field(default_factory=CallerTags)
    """Handling of client tags that are not allowed."""
    keys: dict[Name, KeyConfig] = Field(default_factory=dict)
    """Virtual keys and the deployments they may call."""
    cors: CorsConfig = Field(default_factory=CorsConfig)
    """Web pages that may call from a browser."""
    revoked: list[Revocation] = Field(default_factory=list)
    """Revoked keys, by name or digest. Applies even if other parts of the folder have errors."""
    policies: dict[Name, PolicyConfig] = Field(default_factory=dict)
    """Rules, limits and guards for deployments."""
    deployments: dict[Name, DeploymentConfig] = Field(default_factory=dict)
    """Names that applications call, with their targets."""
    prices: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Prices of tokens by provider and model. `name*` matches all models with this prefix."""
    price_table: PriceTable = Field(default_factory=PriceTable)
    """Properties of the price table."""

    def parts(
        self,
    ) -> Iterator[tuple[tuple[str | int, ...], PolicyConfig | RuleConfig | DeploymentConfig]]:
        """Yield each policy, then its rules, and each deployment, with where it is written."""
        for name, policy in self.policies.items():
            yield ("policies", name), policy
            for number, rule in enumerate(policy.rules):
                yield ("policies", name, "rules", number), rule
        yield from ((("deployments", name), each) for name, each in self.deployments.items())
