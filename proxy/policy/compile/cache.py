"""What is said of the cache, from schema to rules; and whether what it needs is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from proxy.embedding.model import problem
from proxy.policy import schema
from proxy.policy.decide.rules import CacheDecision
from proxy.policy.files.source import Path_
from proxy.types import CacheRule, Semantic


def kept(config: schema.CacheConfig | None) -> CacheDecision | None:
    """Read what is said of the cache; None where nothing is."""
    if config is None:
        return None
    fields = config.model_dump(exclude={"off", "semantic"})
    return CacheDecision(
        None if config.off else CacheRule(**fields, semantic=_semantic(config.semantic))
    )


def _semantic(config: schema.SemanticConfig | None) -> Semantic | None:
    if config is None:
        return None
    shadow = config.mode == "shadow"
    return Semantic(
        threshold=config.threshold,
        shadow=shadow,
        model=config.model,
        max_temperature=config.max_temperature,
    )


def missing(
    policies: schema.PoliciesConfig, look: Callable[[str], str | None] = problem
) -> Iterator[tuple[Path_, str]]:
    """Yield what is missing for the models of a folder's caches, and where they are asked for."""
    for path, config in _written(policies):
        if config is not None and config.semantic is not None and not config.off:
            lacks = look(config.semantic.model)
            if lacks is not None:
                yield (*path, "cache", "semantic"), lacks


def _written(policies: schema.PoliciesConfig) -> Iterator[tuple[Path_, schema.CacheConfig | None]]:
    for name, policy in policies.policies.items():
        yield ("policies", name), policy.cache
        for number, rule in enumerate(policy.rules):
            yield ("policies", name, "rules", number), rule.cache
    for name, deployment in policies.deployments.items():
        yield ("deployments", name), deployment.cache
