"""Compile cache sections of policies, deployments and rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from proxy.config.references import references
from proxy.dialects import DIALECTS
from proxy.dialects.ways import way_of
from proxy.errors import BadField
from proxy.policy import schema
from proxy.policy.compile.context import CompileContext
from proxy.policy.decide.rules import CacheDecision
from proxy.policy.decide.snapshot import Deployment
from proxy.policy.files.source import Path_
from proxy.types import CacheRule, Semantic, Target
from proxy.types.providers import EMBEDDINGS
from proxy.words import quoted


def kept(config: schema.CacheConfig | None) -> CacheDecision | None:
    """Read what is said of the cache; None where nothing is."""
    if config is None:
        return None
    fields = config.model_dump(exclude={"off", "semantic"})
    semantic = None if config.semantic is None else Semantic(**config.semantic.model_dump())
    return CacheDecision(None if config.off else CacheRule(**fields, semantic=semantic))


def embedding_deployments(policies: schema.PoliciesConfig) -> Iterator[tuple[Path_, str]]:
    """Yield the deployments that semantic caches call, with where each is named."""
    for path, part in policies.parts():
        if part.cache is not None and part.cache.semantic is not None:
            for key, name in references(part.cache.semantic, "deployment"):
                yield (*path, "cache", "semantic", key), name


def check_embeddings(context: CompileContext, deployments: Mapping[str, Deployment]) -> None:
    """Complain of deployments named by semantic caches that compute no embeddings."""
    for path, name in embedding_deployments(context.policies):
        context.unknown(path, "deployments", "deployment", name)
        deployment = deployments.get(name)
        if deployment is not None and not any(map(_embeds, deployment.routes.targets)):
            context.complain(
                path, f"deployment {quoted(name)} has no target that serves embeddings"
            )


def _embeds(target: Target) -> bool:
    try:
        way_of(EMBEDDINGS, DIALECTS["openai"], target, DIALECTS[target.upstream.dialect])
    except BadField:
        return False
    return True
