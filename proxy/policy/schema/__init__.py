"""Models of the policy files, with every key that an operator may write.

Each section has a file. Models are frozen and reject unknown keys. Editors show the docstring below
a key, see ``editor``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import Field

from proxy.config.scalars import VARIABLE as VARIABLE
from proxy.config.scalars import Name, TagKey
from proxy.config.scalars import Section as Section
from proxy.policy.schema.deployments import CacheConfig as CacheConfig
from proxy.policy.schema.deployments import DeploymentConfig as DeploymentConfig
from proxy.policy.schema.deployments import PassedPathConfig as PassedPathConfig
from proxy.policy.schema.deployments import RetryConfig as RetryConfig
from proxy.policy.schema.deployments import TargetConfig as TargetConfig
from proxy.policy.schema.keys import CorsConfig, Revocation
from proxy.policy.schema.keys import KeyConfig as KeyConfig
from proxy.policy.schema.limits import LimitConfig as LimitConfig
from proxy.policy.schema.prices import PriceConfig as PriceConfig
from proxy.policy.schema.prices import PriceTable as PriceTable
from proxy.policy.schema.rules import CaptureConfig as CaptureConfig
from proxy.policy.schema.rules import Hours as Hours
from proxy.policy.schema.rules import Match as Match
from proxy.policy.schema.rules import PolicyConfig as PolicyConfig
from proxy.policy.schema.rules import RefusalConfig as RefusalConfig
from proxy.policy.schema.rules import RuleConfig as RuleConfig
from proxy.policy.schema.rules import When as When
from proxy.policy.schema.tags import CallerTags
from proxy.policy.schema.tags import Tag as Tag
from proxy.policy.schema.upstreams import BreakerConfig as BreakerConfig
from proxy.policy.schema.upstreams import TimeoutsConfig as TimeoutsConfig
from proxy.policy.schema.upstreams import UpstreamConfig as UpstreamConfig


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
        """Yield each policy, then its rules, and each deployment, with its path."""
        for name, policy in self.policies.items():
            yield ("policies", name), policy
            for number, rule in enumerate(policy.rules):
                yield ("policies", name, "rules", number), rule
        for name, deployment in self.deployments.items():
            yield ("deployments", name), deployment
