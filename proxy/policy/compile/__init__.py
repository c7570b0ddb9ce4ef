"""Compiles policies to a snapshot: resolves references, reads secrets, and builds indexes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from proxy.policy import schema
from proxy.policy.compile.context import CompileContext
from proxy.policy.compile.deployments import DeploymentCompiler
from proxy.policy.compile.keys import KeyCompiler
from proxy.policy.compile.rules import RuleCompiler
from proxy.policy.compile.targets import TargetCompiler, compile_upstream
from proxy.policy.decide.snapshot import Snapshot, TagRule
from proxy.policy.files.cloud_tokens import CloudTokens
from proxy.policy.files.load import LoadedFolder, read_packaged_price_date
from proxy.policy.files.source import PolicyError
from proxy.policy.schema.keys import compile_tag_pattern


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
    context.upstreams = context.compile_section(
        "upstreams", lambda name, config: compile_upstream(name, config, context.read_secret)
    )
    targets = TargetCompiler(context)
    rules = RuleCompiler(context, targets)
    compiler = DeploymentCompiler(context, targets, rules)
    deployments = context.compile_section("deployments", compiler.compile)
    targets.check_prices(deployments)
    compiler.check_semantic_cache_deployments(deployments)
    targets.check_unreachable_targets(deployments.values())
    compiler.check_duplicate_names()
    key_compiler = KeyCompiler(
        context, deployments, targets.price_table_date or read_packaged_price_date()
    )
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
        limit_paths=MappingProxyType(rules.limit_compiler.paths),
        headers=frozenset(rules.headers | {config.header for config in sticky if config.header}),
        secret_files=frozenset(context.secret_files),
        origins=frozenset(policies.cors.origins),
        has_empty_keys="keys" in document.empty_sections and not keys,
        referenced_names=MappingProxyType(context.referenced_names),
        unprepared_parts=tuple(rules.guard_compiler.unprepared_parts),
        prices_as_of=targets.price_table_date,
        passthrough=passthrough[0].merge(passthrough) if passthrough else None,
    )


def _compile_tag(_: str, tag: schema.TagConfig) -> TagRule:
    return TagRule(
        values=frozenset(tag.values) if tag.values is not None else None,
        pattern=compile_tag_pattern(tag.pattern) if tag.pattern is not None else None,
        set_by_clients=tag.caller,
    )
