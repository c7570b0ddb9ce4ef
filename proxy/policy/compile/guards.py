"""Compiles guards: creates their detectors, and a digest of each for the cache."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, cast

from proxy.config.scalars import iter_references, list_referring_keys
from proxy.errors.words import quote
from proxy.guards import guard_kind
from proxy.guards.kinds import KINDS
from proxy.guards.text.disguises import get_nfkc_effects
from proxy.guards.text.hosts import normalize_host_entry
from proxy.policy import schema
from proxy.policy.compile.context import CompileContext
from proxy.policy.compile.targets import TargetCompiler
from proxy.policy.decide.rules import RuleGuards
from proxy.policy.files.source import KeyPath
from proxy.policy.schema.guards import AnyGuard, GuardConfig, PluginGuard
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


class GuardCompiler:
    """Compiles guards. ``unprepared_parts`` are the parts that load data before the first call."""

    def __init__(self, context: CompileContext, targets: TargetCompiler) -> None:
        self._context = context
        self._targets = targets
        self.unprepared_parts: list[guard.Preparable] = []

    def compile(
        self, path: KeyPath, inputs: Sequence[AnyGuard] | None, outputs: Sequence[AnyGuard] | None
    ) -> RuleGuards:
        on_input = self._compile_rules(path, "input", inputs)
        on_output = self._compile_rules(path, "output", outputs)
        return RuleGuards(
            tuple(rule for rule in on_input if isinstance(rule, guard.GuardRule)),
            tuple(rule for rule in on_output if isinstance(rule, guard.GuardRule)),
            tuple(rule for rule in on_input if isinstance(rule, guard.CostCap)),
        )

    def _compile_rules(
        self, path: KeyPath, stage: guard.Stage, configs: Sequence[AnyGuard] | None
    ) -> list[guard.GuardRule | guard.CostCap]:
        rules: list[guard.GuardRule | guard.CostCap] = []
        for index, config in enumerate(configs or ()):
            guard_path = (*path, stage, index)
            with self._context.wrap_errors_in_policy_error(guard_path):
                if (rule := self._compile_rule(guard_path, stage, config)) is not None:
                    rules.append(rule)
        return rules

    def _compile_rule(
        self, path: KeyPath, stage: guard.Stage, config: GuardConfig
    ) -> guard.GuardRule | guard.CostCap | None:
        kind: guard_kind.GuardKind[Any] = (
            PLUGIN_KIND if isinstance(config, PluginGuard) else KINDS[config.guard]
        )
        name = config.name or config.guard
        self._check_stage_keys(path, stage, config)
        try:
            context = self._build_guard_context(path, stage, config)
            if context is None:
                return None
            detector = kind.make(config, context)
            restore_hosts = frozenset(map(normalize_host_entry, config.restore_hosts or ()))
        except ValueError as error:
            key = (error.key,) if isinstance(error, guard_kind.InvalidGuardSetting) else ()
            self._context.report((*path, *key), str(error))
            return None
        if isinstance(detector, guard_kind.MaxCallCost):
            return guard.CostCap(
                name=name,
                max_nano_usd=detector.nano_usd,
                action=config.action,
                shadow=config.mode == "shadow",
                on_error=config.on_error,
                message=config.message or guard.TOO_EXPENSIVE.format(name),
                digest=_hash_guard_config(config, context),
                kind=config.guard,
                path=path,
            )
        with suppress(Exception):  # each call reports the error
            # Load now what the detector loads at first use, so that no call waits for it.
            bound = (
                detector.for_prompt(SAMPLE_CONTEXT) if guard.is_contextual(detector) else detector
            )
            if bound is not None and guard.is_detector(bound):
                bound.find(SAMPLE_TEXT)
        self._schedule_preparation(detector)
        if stage == "output" and config.mode != "shadow" and config.action != "flag":
            self._schedule_preparation(PartialMatcherPreparation(detector))
        return guard.GuardRule(
            name=name,
            detector=detector,
            action=config.action,
            shadow=config.mode == "shadow",
            on_error=config.on_error,
            deadline_s=config.deadline,
            roles=frozenset(map(str, config.roles)) if config.roles is not None else None,
            excluded_roles=kind.excluded_roles if config.roles is None else frozenset(),
            fields=kind.fields if config.fields is None else frozenset(map(str, config.fields)),
            cased=kind.cased,
            message=config.message or guard.BLOCKED_MESSAGE.format(name),
            digest=_hash_guard_config(config, context),
            kind=config.guard,
            restore=config.restore,
            restore_hosts=restore_hosts,
            route_targets=self._targets.compile_targets((*path, "to"), config.to or []),
            detections=kind.detections,
            path=path,
        )

    def _check_stage_keys(self, path: KeyPath, stage: guard.Stage, config: GuardConfig) -> None:
        """Report an action or a key that is allowed only under the other stage."""
        uses: tuple[tuple[str, str, guard.Stage, bool], ...] = (
            ("action", "retry", "output", config.action == "retry"),
            ("action", "route", "input", config.action == "route"),
            ("restore", "restore", "input", config.restore),
        )
        for key, word, allowed_stage, is_used in uses:
            if is_used and stage != allowed_stage:
                message = guard_kind.make_wrong_stage_message(word, allowed_stage)
                self._context.report((*path, key), message)

    def _schedule_preparation(self, detector: object) -> None:
        for part in (UNICODE_TABLES, detector):
            if guard.is_preparable(part) and part not in self.unprepared_parts:
                self.unprepared_parts.append(part)

    def _build_guard_context(
        self, path: KeyPath, stage: guard.Stage, config: GuardConfig
    ) -> guard_kind.GuardContext | None:
        """Return the objects that a guard refers to, or None if an upstream does not exist.

        Raise ``ValueError`` if a text file cannot be read or the guard has the wrong stage.
        """
        for key, name in iter_references(config, "deployment"):
            self._context.check_reference((*path, key), "deployments", "deployment", name)
            deployment = self._context.policies.deployments.get(name)
            if deployment is not None and deployment.only_passthrough:
                message = f"deployment {quote(name)} serves only passthrough paths, not chat"
                self._context.report((*path, key), message)
        upstreams = self._context.upstreams
        names = list(iter_references(config, "upstream"))
        for key, name in names:
            self._context.check_reference((*path, key), "upstreams", "upstream", name)
        if any(name not in upstreams for _, name in names):
            return None
        if (
            stage == "input"
            and not isinstance(config, PluginGuard)
            and KINDS[config.guard].is_output_only
        ):
            raise ValueError(guard_kind.make_wrong_stage_message(config.guard, "output"))
        document, secrets = self._context.document, iter_references(config, "secret")
        return guard_kind.GuardContext(
            name=config.name or config.guard,
            stage=stage,
            texts={name: document.get_text(name) for _, name in iter_references(config, "text")},
            secrets={ref: self._context.read_secret((*path, key), ref) for key, ref in secrets},
            upstreams={name: upstreams[name] for _, name in names},
        )


def _hash_guard_config(config: GuardConfig, context: guard_kind.GuardContext) -> str:
    """Return a digest of a guard's keys and of the text files that it names."""
    contents: list[str | list[str]] = []
    for key in list_referring_keys(type(config), "text"):
        names: list[str] | str | None = getattr(config, key)
        if isinstance(names, list):
            contents.append([context.texts[name] for name in names])
        else:
            contents.append(context.texts[names] if names else "")
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
