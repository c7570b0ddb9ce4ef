"""What is said of the cache, from schema to rules; and whether what it needs is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from proxy.embedding.model import problem
from proxy.policy import schema
from proxy.policy.decide.rules import CacheDecision
from proxy.policy.files.source import Finding
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
) -> Iterator[Finding]:
    """Yield what is missing for the models of a folder's caches, and where they are asked for."""
    for path, part in policies.parts():
        config = part.cache
        if config is not None and config.semantic is not None and not config.off:
            lacks = look(config.semantic.model)
            if lacks is not None:
                yield (*path, "cache", "semantic"), lacks
