"""Compiles policies to a snapshot: resolves references, reads secrets, and builds indexes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from proxy.policy import schema
from proxy.policy.compile.context import CompileContext
from proxy.policy.compile.deployments import DeploymentCompiler
from proxy.policy.compile.keys import KeyCompiler
from proxy.policy.compile.rules import RuleCompiler
from proxy.policy.compile.targets import TargetCompiler
from proxy.policy.compile.upstreams import compile_upstream
from proxy.policy.decide.snapshot import Snapshot, TagRule
from proxy.policy.files import price_table
from proxy.policy.files.cloud_tokens import CloudTokens
from proxy.policy.files.load import Loaded
from proxy.policy.files.source import PolicyError
from proxy.policy.schema.tags import compile_pattern


def compile_policies(
    loaded: Loaded, environ: Mapping[str, str] | None, tokens: CloudTokens | None = None
) -> Snapshot:
    """Return the snapshot of policies.

    Without an ``environ`` secrets are not read: such a snapshot decides calls, but cannot serve
    them. Without ``tokens`` the tokens of clouds are fetched for this snapshot only. Raise
    ``PolicyError`` with all errors, those of ``loaded`` included.
    """
    context = CompileContext(loaded, environ, tokens or CloudTokens(environ or {}))
    try:
        with loaded.document.located(()):
            snapshot = _compile(context)
        loaded.document.raise_problems()
    except PolicyError as error:
        raise PolicyError(error.problems, frozenset(context.secret_files)) from error
    return snapshot.without(frozenset(loaded.policies.revoked))


def _compile(context: CompileContext) -> Snapshot:
    loaded, policies, document = context.loaded, context.policies, context.document
    context.tag_rules = context.parts("tags", _tag_rule)
    context.upstreams = context.parts(
        "upstreams", lambda name, config: compile_upstream(name, config, context.secret)
    )
    targets = TargetCompiler(context)
    rules = RuleCompiler(context, targets)
    compiler = DeploymentCompiler(context, targets, rules)
    deployments = context.parts("deployments", compiler.deployment)
    for path, message in targets.unpriced(deployments):
        context.complain(path, message)
    compiler.check_embeddings(deployments)
    for path, message in targets.unreachable(deployments.values()):
        context.complain(path, message)
    compiler.check_names()
    key_compiler = KeyCompiler(context, deployments, targets.table_date or price_table.as_of())
    keys = context.parts("keys", key_compiler.key)
    credentials = {each.digest: each for each in key_compiler.credentials(keys)}
    sticky = [config.sticky for config in policies.deployments.values() if config.sticky]
    passthrough = [each.passthrough for each in deployments.values() if each.passthrough]
    places = {path: at for path, at in document.places.items() if path[:1] != ("prices",)}
    return Snapshot(
        revision=loaded.revision,
        keys=MappingProxyType(keys),
        credentials=MappingProxyType(credentials),
        tags=MappingProxyType(context.tag_rules),
        refuse_caller_tags=policies.caller_tags.otherwise == "refuse",
        deployments=MappingProxyType(deployments),
        places=MappingProxyType(places),
        limits=MappingProxyType(rules.limit_compiler.paths),
        headers=frozenset(rules.headers | {each.header for each in sticky if each.header}),
        secret_files=frozenset(context.secret_files),
        origins=frozenset(policies.cors.origins),
        wants_no_keys="keys" in document.empty and not keys,
        unprepared=tuple(rules.guard_compiler.unprepared),
        prices_as_of=targets.table_date,
        passthrough=passthrough[0].merge(passthrough) if passthrough else None,
    )


def _tag_rule(_: str, tag: schema.Tag) -> TagRule:
    return TagRule(
        values=frozenset(tag.values) if tag.values is not None else None,
        pattern=compile_pattern(tag.pattern) if tag.pattern is not None else None,
        caller=tag.caller,
    )
