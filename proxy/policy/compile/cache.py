"""What is said of the cache, from schema to rules."""

from __future__ import annotations

from proxy.policy import schema
from proxy.policy.decide.rules import CacheDecision
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
    return Semantic(config.mode == "shadow", config.max_temperature)
