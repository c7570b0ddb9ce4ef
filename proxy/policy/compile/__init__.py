"""Compiles policies to a snapshot: resolves references, reads secrets, and builds indexes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from proxy.policy import schema
from proxy.policy.compile.context import CompileContext
from proxy.policy.compile.deployments import (
    check_duplicate_names,
    check_semantic_cache_deployments,
    compile_deployment,
)
from proxy.policy.compile.keys import KeyCompiler
from proxy.policy.compile.rules import compile_limit_section, compile_policy_section
from proxy.policy.compile.targets import check_prices, check_unreachable_targets, compile_upstream
from proxy.policy.decide.snapshot import Snapshot, TagRule
from proxy.policy.files.cloud_tokens import CloudTokens
from proxy.policy.files.load import LoadedFolder, read_packaged_price_date
from proxy.policy.files.source import PolicyError
from proxy.policy.schema.keys import compile_tag_pattern, list_values


def compile_policies(
    loaded: LoadedFolder, environ: Mapping[str, str] | None, tokens: CloudTokens | None = None
) -> Snapshot:
    """Return the snapshot of policies.

    Without an ``environ`` secrets are not read: such a snapshot decides calls, but cannot serve
    them. Without ``tokens``, tokens of clouds are fetched for this snapshot only. Raise
    ``PolicyError`` with all errors of ``loaded``, or else of compilation.
    """
    loaded.document.raise_problems()
    context = CompileContext(loaded, environ, tokens or CloudTokens(environ or {}))
    try:
        with loaded.document.wrap_errors_in_policy_error(()):
            snapshot = _compile(context)
        loaded.document.raise_problems()
    except PolicyError as error:
        raise PolicyError(error.problems, frozenset(context.secret_files)) from error
    return snapshot.revoke(loaded.policies.revoked)


def _compile(context: CompileContext) -> Snapshot:
    loaded, policies, document = context.loaded, context.policies, context.document
    context.tag_rules = context.compile_section("tags", _compile_tag)
    context.upstreams = context.compile_section("upstreams", partial(compile_upstream, context))
    compile_limit_section(context)
    compiled = compile_policy_section(context)
    deployments = context.compile_section(
        "deployments", partial(compile_deployment, context, compiled)
    )
    check_prices(context, deployments)
    check_semantic_cache_deployments(context, deployments)
    check_unreachable_targets(context, deployments.values())
    check_duplicate_names(context)
    table = loaded.policies_with_prices.price_table if context.uses_price_table else None
    prices_as_of = None if table is None else table.as_of
    models_date = prices_as_of or read_packaged_price_date()
    key_compiler = KeyCompiler(context, deployments, models_date)
    keys = context.compile_section("keys", key_compiler.compile)
    credentials = {c.digest: c for c in key_compiler.list_credentials(keys)}
    sticky = [config.sticky for config in policies.deployments.values() if config.sticky]
    passthrough = [d.passthrough for d in deployments.values() if d.passthrough]
    locations = {p: location for p, location in document.locations.items() if p[:1] != ("prices",)}
    return Snapshot(
        revision=loaded.revision,
        keys=MappingProxyType(keys),
        credentials=MappingProxyType(credentials),
        tags=MappingProxyType(context.tag_rules),
        refuse_caller_tags=policies.caller_tags.otherwise == "refuse",
        deployments=MappingProxyType(deployments),
        locations=MappingProxyType(locations),
        limit_paths=MappingProxyType(context.limit_paths),
        headers=frozenset(context.headers | {config.header for config in sticky if config.header}),
        secret_files=frozenset(context.secret_files),
        origins=frozenset(policies.cors.origins),
        has_empty_keys="keys" in document.empty_sections and not keys,
        referenced_names=MappingProxyType(context.referenced_names),
        unprepared_parts=tuple(context.unprepared_parts),
        prices_as_of=prices_as_of,
        passthrough=passthrough[0].merge(passthrough) if passthrough else None,
    )


def _compile_tag(_: str, tag: schema.TagConfig) -> TagRule:
    if tag.pattern is not None:
        return TagRule(compile_tag_pattern(tag.pattern), tag.caller)
    return TagRule(list_values(tag.values or ["true"]), tag.caller)
