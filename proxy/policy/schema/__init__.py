"""Models of the policy files, with every key that an operator may write, and their JSON Schema.

Each section has a file. Models are frozen and reject unknown keys. Docstrings are for editors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, Field

from proxy.config.scalars import VARIABLE_PATTERN as VARIABLE_PATTERN
from proxy.config.scalars import Name, TagKey
from proxy.config.scalars import Section as Section
from proxy.policy.schema.deployments import CacheConfig as CacheConfig
from proxy.policy.schema.deployments import DeploymentConfig as DeploymentConfig
from proxy.policy.schema.deployments import PassthroughPathConfig as PassthroughPathConfig
from proxy.policy.schema.deployments import RetryConfig as RetryConfig
from proxy.policy.schema.deployments import TargetConfig as TargetConfig
from proxy.policy.schema.keys import CallerTagsConfig, CorsConfig, Revocation
from proxy.policy.schema.keys import KeyConfig as KeyConfig
from proxy.policy.schema.keys import TagConfig as TagConfig
from proxy.policy.schema.limits import LimitConfig as LimitConfig
from proxy.policy.schema.prices import PriceConfig as PriceConfig
from proxy.policy.schema.prices import PriceTableConfig as PriceTableConfig
from proxy.policy.schema.prices import iter_price_rows as iter_price_rows
from proxy.policy.schema.rules import CaptureConfig as CaptureConfig
from proxy.policy.schema.rules import HoursConfig as HoursConfig
from proxy.policy.schema.rules import MatchConfig as MatchConfig
from proxy.policy.schema.rules import PolicyConfig as PolicyConfig
from proxy.policy.schema.rules import RefusalConfig as RefusalConfig
from proxy.policy.schema.rules import RuleConfig as RuleConfig
from proxy.policy.schema.rules import WhenConfig as WhenConfig
from proxy.policy.schema.upstreams import BreakerConfig as BreakerConfig
from proxy.policy.schema.upstreams import TimeoutsConfig as TimeoutsConfig
from proxy.policy.schema.upstreams import UpstreamConfig as UpstreamConfig

SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"


class PoliciesConfig(Section):
    """All sections of a folder, merged. Prices are checked when they are used."""

    upstreams: dict[Name, UpstreamConfig] = Field(default_factory=dict)
    """Providers and servers that calls can go to."""
    tags: dict[TagKey, TagConfig] = Field(default_factory=dict)
    """Tags for attribution of usage, and their values."""
    caller_tags: CallerTagsConfig = Field(default_factory=CallerTagsConfig)
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
    price_table: PriceTableConfig = Field(default_factory=PriceTableConfig)
    """Properties of the price table."""

    def iter_parts(
        self,
    ) -> Iterator[tuple[tuple[str | int, ...], PolicyConfig | RuleConfig | DeploymentConfig]]:
        """Yield each policy, then its rules, and each deployment, with its path."""
        for name, policy in self.policies.items():
            yield ("policies", name), policy
            for number, rule in enumerate(policy.rules):
                yield ("policies", name, "rules", number), rule
        for name, deployment in self.deployments.items():
            yield ("deployments", name), deployment


def build_json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a policy file, for completion and checks in editors.

    The schema knows keys, values and which keys go together. ``headrace check`` also finds problems
    that need the whole folder, a guard's detector, or more than JSON Schema can express.
    """
    schema = build_schema(PoliciesConfig, "Headrace policies")
    ref = {"$ref": "#/$defs/PriceConfig"}
    one_or_more = {"anyOf": [ref, {"type": "array", "items": ref}]}
    schema["properties"]["prices"]["additionalProperties"]["additionalProperties"] = one_or_more
    return schema


def build_schema(model: type[BaseModel], title: str) -> dict[str, Any]:
    """Return the JSON Schema of a kind of file."""
    return {
        "$schema": SCHEMA_DIALECT,
        "title": title,
        **_remove_titles_and_defaults(model.model_json_schema()),
    }


def _remove_titles_and_defaults(value: Any) -> Any:
    """Return a schema without titles, which repeat a key, and defaults, which are parsed values.

    Objects with ``patternProperties`` get no other properties.
    """
    if isinstance(value, list):
        return [_remove_titles_and_defaults(item) for item in value]
    if not isinstance(value, dict):
        return value
    dropped = ("title", "default", "properties")
    plain = {
        key: _remove_titles_and_defaults(part) for key, part in value.items() if key not in dropped
    }
    if "properties" in value:  # the keys of a model may be called "title" or "default"
        properties = value["properties"].items()
        plain["properties"] = {name: _remove_titles_and_defaults(part) for name, part in properties}
    return plain | ({"additionalProperties": False} if "patternProperties" in value else {})
