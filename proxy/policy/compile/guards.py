"""Compiles guards: creates their detectors, and a digest of each for the cache."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, cast

from proxy.config.scalars import iter_references, list_referring_keys, wrap_in_list
from proxy.errors.words import quote
from proxy.guards import guard_kind
from proxy.guards.kinds import KINDS
from proxy.guards.text.disguises import get_nfkc_effects
from proxy.guards.text.hosts import normalize_host_entry
from proxy.policy import schema
from proxy.policy.compile.context import CompileContext
from proxy.policy.compile.targets import compile_routes
from proxy.policy.files.source import KeyPath
from proxy.policy.schema.guards import GuardConfig, PluginGuard
from proxy.runtime.frozen import frozen
from proxy.types import guard
from proxy.types.partial_matcher import get_partial_matcher

PLUGIN_KIND = guard_kind.GuardKind(PluginGuard, lambda config, context: config.make_detector())
SAMPLE_TEXT = "A first look: word 1 of 2, a@b.example, https://b\u00fc.example/?c=d"
SAMPLE_CONTEXT = guard.PromptContext(SAMPLE_TEXT, SAMPLE_TEXT, SAMPLE_TEXT)


@frozen
class UnicodeTablesPreparation:
    """Loads tables that all guards need for text beyond ASCII."""

    def prepare(self) -> None:
        get_nfkc_effects()

    def iter_loading_steps(self) -> Iterator[None]:
        return iter(())


UNICODE_TABLES = UnicodeTablesPreparation()


@frozen
class PartialMatcherPreparation:
    """Loads the partial matcher of a detector, which only streams need."""

    detector: guard.AnyDetector

    def prepare(self) -> None:
        matcher = get_partial_matcher(self.detector)
        if guard.is_preparable(matcher):
            matcher.prepare()

    def iter_loading_steps(self) -> Iterator[None]:
        matcher = get_partial_matcher(self.detector)
        return matcher.iter_loading_steps() if guard.is_preparable(matcher) else iter(())


def compile_guards(
    context: CompileContext, path: KeyPath, config: schema.PolicyConfig | schema.RuleConfig
) -> guard.GuardPlan:
    """Return the guards of a policy or a rule."""
    rules: dict[guard.Stage, list[guard.GuardRule]] = {"input": [], "output": []}
    caps: list[guard.CostCap] = []
    for stage, compiled in rules.items():
        for index, guard_config in enumerate(getattr(config, stage) or ()):
            guard_path = (*path, stage, index)
            with context.wrap_errors_in_policy_error(guard_path):
                rule = _compile_guard(context, guard_path, stage, guard_config)
                if isinstance(rule, guard.CostCap):
                    caps.append(rule)
                elif rule is not None:
                    compiled.append(rule)
    return guard.GuardPlan(tuple(rules["input"]), tuple(rules["output"]), cost_caps=tuple(caps))


def _compile_guard(
    context: CompileContext, path: KeyPath, stage: guard.Stage, config: GuardConfig
) -> guard.GuardRule | guard.CostCap | None:
    is_plugin = isinstance(config, PluginGuard)
    kind: guard_kind.GuardKind[Any] = PLUGIN_KIND if is_plugin else KINDS[config.guard]
    _check_stage_keys(context, path, stage, config)
    try:
        if stage == "input" and kind.is_output_only:
            raise ValueError(guard_kind.make_wrong_stage_message(config.guard, "output"))  # noqa: TRY301  # reported below
        guard_context = _build_guard_context(context, path, stage, config)
        if guard_context is None:
            return None
        detector = kind.make(config, guard_context)
        restore_hosts = frozenset(map(normalize_host_entry, config.restore_hosts or ()))
    except ValueError as error:
        key = (error.key,) if isinstance(error, guard_kind.InvalidGuardSetting) else ()
        context.report((*path, *key), str(error))
        return None
    is_cap = isinstance(detector, guard_kind.MaxCallCost)
    message = guard.TOO_EXPENSIVE if is_cap else guard.BLOCKED_MESSAGE
    common: dict[str, Any] = {
        "name": guard_context.name,
        "action": config.action,
        "shadow": context.is_shadow(path, config.mode),
        "on_error": config.on_error,
        "message": config.message or message.format(guard_context.name),
        "digest": _hash_guard_config(config, guard_context),
        "kind": config.guard,
        "path": path,
    }
    if isinstance(detector, guard_kind.MaxCallCost):
        return guard.CostCap(max_nano_usd=detector.nano_usd, **common)
    with suppress(Exception):  # each call reports the error
        # Load now what the detector loads at first use, so that no call waits for it.
        bound = detector.for_prompt(SAMPLE_CONTEXT) if guard.is_contextual(detector) else detector
        if bound is not None and guard.is_detector(bound):
            bound.find(SAMPLE_TEXT)
    parts: list[object] = [UNICODE_TABLES, detector]
    if stage == "output" and config.mode != "shadow" and config.action != "flag":
        parts.append(PartialMatcherPreparation(detector))
    context.unprepared_parts += [
        p for p in parts if guard.is_preparable(p) and p not in context.unprepared_parts
    ]
    return guard.GuardRule(
        detector=detector,
        deadline_s=config.deadline,
        roles=frozenset(map(str, config.roles)) if config.roles is not None else None,
        excluded_roles=kind.excluded_roles if config.roles is None else frozenset(),
        fields=kind.fields if config.fields is None else frozenset(map(str, config.fields)),
        cased=kind.cased,
        restore=config.restore,
        restore_hosts=restore_hosts,
        route_targets=compile_routes(context, (*path, "to"), config.to or []).targets,
        detections=kind.detections,
        **common,
    )


def _check_stage_keys(
    context: CompileContext, path: KeyPath, stage: guard.Stage, config: GuardConfig
) -> None:
    """Report an action or a key that is allowed only under the other stage."""
    uses: tuple[tuple[str, str, guard.Stage, bool], ...] = (
        ("action", "retry", "output", config.action == "retry"),
        ("action", "route", "input", config.action == "route"),
        ("restore", "restore", "input", config.restore),
    )
    for key, word, allowed_stage, is_used in uses:
        if is_used and stage != allowed_stage:
            message = guard_kind.make_wrong_stage_message(word, allowed_stage)
            context.report((*path, key), message)


def _build_guard_context(
    context: CompileContext, path: KeyPath, stage: guard.Stage, config: GuardConfig
) -> guard_kind.GuardContext | None:
    """Return the objects that a guard refers to, or None if an upstream does not exist.

    Raise ``ValueError`` if a text file cannot be read.
    """
    for key, name in iter_references(config, "deployment"):
        context.check_reference((*path, key), "deployments", "deployment", name)
        deployment = context.policies.deployments.get(name)
        if deployment is not None and deployment.only_passthrough:
            message = f"deployment {quote(name)} serves only passthrough paths, not chat"
            context.report((*path, key), message)
    names = list(iter_references(config, "upstream"))
    for key, name in names:
        context.check_reference((*path, key), "upstreams", "upstream", name)
    if any(name not in context.upstreams for _, name in names):
        return None
    document, secrets = context.document, iter_references(config, "secret")
    return guard_kind.GuardContext(
        name=config.name or config.guard,
        stage=stage,
        texts={name: document.get_text(name) for _, name in iter_references(config, "text")},
        secrets={ref: context.read_secret((*path, key), ref) for key, ref in secrets},
        upstreams={name: context.upstreams[name] for _, name in names},
    )


def _hash_guard_config(config: GuardConfig, context: guard_kind.GuardContext) -> str:
    """Return a digest of a guard's keys and of the text files that it names."""
    contents = [
        [context.texts[name] for name in wrap_in_list(names)] if names else ""
        for key in list_referring_keys(type(config), "text")
        for names in [getattr(config, key)]
    ]
    text = f"{config.model_dump_json(by_alias=True)}{contents or ''}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def compile_capture(config: schema.CaptureConfig) -> guard.Capture:
    """Return the capture of texts in traces, with the guards that redact these texts."""
    redact = []
    for name in ("secrets", "pii"):
        detector = cast(guard.Detector, KINDS[name].make(KINDS[name].Keys(), guard_kind.NO_CONTEXT))
        rule = guard.GuardRule(name=name, detector=detector, action="mask", cased=True, kind=name)
        redact.append(rule)
    return guard.Capture(
        share=config.share,
        input="input" in config.fields,
        output="output" in config.fields,
        max_chars=config.max_chars,
        redact=tuple(redact),
    )
