"""Compiles deployments, with their passthrough paths and their policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from types import MappingProxyType

from proxy.dialects import DIALECTS
from proxy.dialects.requests.upstream_request import make_target_route
from proxy.errors import InvalidField
from proxy.errors.words import quote
from proxy.money.usage import NANO_PER_USD
from proxy.policy import schema
from proxy.policy.compile.context import CompileContext
from proxy.policy.compile.rules import CompiledPolicy, compile_cache, get_limits
from proxy.policy.compile.targets import compile_routes
from proxy.policy.decide.routes import StickyRouting
from proxy.policy.decide.snapshot import Deployment
from proxy.policy.files.source import KeyPath
from proxy.types import Retry, Target
from proxy.types.passthrough import PassthroughPath, PassthroughPaths
from proxy.types.providers import EMBEDDINGS

DEFAULT_POLICY = "default"
EMBEDDINGS_KEY = ("cache", "semantic", "embeddings")


def compile_deployment(
    context: CompileContext,
    policies: Mapping[str, CompiledPolicy],
    name: str,
    config: schema.DeploymentConfig,
) -> Deployment:
    path: KeyPath = ("deployments", name)
    for tag, value in config.tags.items():
        context.check_tag((*path, "tags", tag), tag, value)
    if config.policy is not None or DEFAULT_POLICY in policies:
        policy_name = config.policy or DEFAULT_POLICY
        context.check_reference((*path, "policy"), "policies", "policy", policy_name)
    policy = policies.get(config.policy or DEFAULT_POLICY, CompiledPolicy())
    cache = compile_cache(config.cache) or policy.cache
    is_balanced, retry, sticky = config.balance is not None, config.retry, config.sticky
    return Deployment(
        name=name,
        names=frozenset({name, *config.also_known_as}),
        tags=MappingProxyType(dict(sorted(config.tags.items()))),
        routes=compile_routes(context, (*path, "targets"), config.targets, is_balanced),
        fallback=compile_routes(context, (*path, "fallback"), config.fallback).targets,
        sticky=StickyRouting(sticky.by or "header", sticky.header or "") if sticky else None,
        retry=Retry(**{**retry.model_dump(), "on": frozenset(retry.on)}) if retry else None,
        hedge_after=config.hedge.after if config.hedge else None,
        sections=policy.sections,
        limits=get_limits(context, path, len(config.limits)) + policy.limits,
        cache=None if cache == "off" else cache,
        guards=policy.guards,
        refuse_unpriced=config.unpriced == "refuse",
        max_models=config.max_models,
        passthrough=_compile_passthrough(context, (*path, "passthrough"), config.passthrough),
        only_passthrough=config.only_passthrough,
        is_default=config.default,
    )


def _compile_passthrough(
    context: CompileContext, path: KeyPath, configs: Sequence[schema.PassthroughPathConfig]
) -> PassthroughPaths | None:
    if not configs:
        return None
    paths: list[PassthroughPath] = []
    first_paths: dict[tuple[str, str], PassthroughPath] = {}
    for index, config in enumerate(configs):
        compiled = PassthroughPath(
            route=config.path,
            methods=frozenset(config.methods),
            upstream_route=config.to,
            queries=frozenset(config.query),
            max_bytes=config.max_bytes,
            repeatable=config.idempotent,
            max_cost=None if config.most_usd is None else ceil(config.most_usd * NANO_PER_USD),
            fields=None if config.fields is None else frozenset(config.fields),
        )
        paths.append(compiled)
        names = set() if config.to is None else {*PassthroughPath(config.to).parameter_names}
        if names - {*compiled.parameter_names}:
            message = "contains a name in braces that is not in path"
            context.report((*path, index, "to"), message)
        for method in sorted(compiled.methods):
            first_path = first_paths.setdefault((method, compiled.sample_path), compiled)
            if first_path is not compiled:
                message = f"repeats {method} {first_path.route}. Remove one of the two entries."
                context.report((*path, index), message)
    return PassthroughPaths.from_paths(paths)


def check_duplicate_names(context: CompileContext) -> None:
    """Report names that two deployments have."""
    deployments = context.policies.deployments
    owners = {name: name for name in deployments}
    for name, config in deployments.items():
        for index, alias in enumerate(config.also_known_as):
            owner = owners.setdefault(alias, name)
            if owner != name or alias == name or alias in config.also_known_as[:index]:
                message = f"{quote(alias)} is already a name of deployment {quote(owner)}"
                context.report(("deployments", name, "also_known_as", index), message)


def check_semantic_cache_deployments(
    context: CompileContext, deployments: Mapping[str, Deployment]
) -> None:
    """Report deployments of semantic caches that compute no embeddings."""
    for path, part in context.policies.iter_parts():
        if part.cache is None or part.cache.semantic is None:
            continue
        name, name_path = part.cache.semantic.embeddings, (*path, *EMBEDDINGS_KEY)
        context.check_reference(name_path, "deployments", "deployment", name)
        deployment = deployments.get(name)
        if deployment is not None and not any(map(_can_embed, deployment.routes.targets)):
            message = f"deployment {quote(name)} has no target that serves embeddings"
            context.report(name_path, message)


def _can_embed(target: Target) -> bool:
    try:
        make_target_route(EMBEDDINGS, DIALECTS["openai"], target)
    except InvalidField:
        return False
    return True
