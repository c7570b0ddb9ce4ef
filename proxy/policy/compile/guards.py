"""Guards, from schema to rules: detectors made, and a digest of each for the cache."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, cast

from proxy.config.references import references, referring_keys
from proxy.frozen import frozen
from proxy.guardrails.guard_kind import (
    NO_CONTEXT,
    GuardContext,
    GuardKind,
    MostCost,
    WrongKey,
    only_under,
)
from proxy.guardrails.kinds.table import KINDS
from proxy.guardrails.text.clusters import compositions
from proxy.guardrails.text.hosts import entry_of
from proxy.policy import schema
from proxy.policy.compile.context import CompileContext
from proxy.policy.decide.rules import RuleGuards
from proxy.policy.files.source import Path_
from proxy.policy.schema.guards import GuardConfig
from proxy.policy.schema.plugged import AnyGuard, Plugged
from proxy.types.guard import (
    BLOCKED,
    TOO_EXPENSIVE,
    Capture,
    CostCap,
    Detector,
    GuardRule,
    Looking,
    Preparable,
    Question,
    Stage,
    is_contextual,
    is_detector,
    is_preparable,
)
from proxy.types.hold import hold_of
from proxy.words import quoted

PLUGGED = GuardKind(Plugged, lambda plugged, context: plugged.made())
SAMPLE = "A first look: word 1 of 2, a@b.example, https://b\u00fc.example/?c=d"
ASKED = Question(SAMPLE, SAMPLE, SAMPLE)


@frozen
class Readings:
    """What all guards read texts beyond ASCII by."""

    def prepare(self) -> None:
        compositions()

    def load_rest(self) -> Iterator[None]:
        return iter(())


READINGS = Readings()


@frozen
class StreamHold:
    """What a detector tells of streams, for which questions do not ask."""

    detector: Looking

    def prepare(self) -> None:
        hold = hold_of(self.detector)
        if is_preparable(hold):
            hold.prepare()

    def load_rest(self) -> Iterator[None]:
        hold = hold_of(self.detector)
        return hold.load_rest() if is_preparable(hold) else iter(())


class GuardCompiler:
    """Makes the guards of a folder, each once for what is said of it."""

    def __init__(self, context: CompileContext) -> None:
        self._context = context
        self.names: set[str] = set()
        self.unprepared: list[Preparable] = []

    def guards(
        self, path: Path_, inputs: Sequence[AnyGuard] | None, outputs: Sequence[AnyGuard] | None
    ) -> RuleGuards:
        """Return the guards of one part of the policies, for questions and for answers."""
        for index, each in enumerate(inputs or ()):
            if each.action == "retry":
                message = "retry is allowed under output only"
                self._context.complain((*path, "input", index, "action"), message)
        for index, each in enumerate(outputs or ()):
            for key, message in _misplaced(each):
                self._context.complain((*path, "output", index, key), message)
        on_input = self._rules(path, "input", inputs)
        on_output = self._rules(path, "output", outputs)
        return RuleGuards(
            tuple(each for each in on_input if isinstance(each, GuardRule)),
            tuple(each for each in on_output if isinstance(each, GuardRule)),
            tuple(each for each in on_input if isinstance(each, CostCap)),
        )

    def _rules(
        self, path: Path_, stage: Stage, configs: Sequence[AnyGuard] | None
    ) -> list[GuardRule | CostCap]:
        rules: list[GuardRule | CostCap] = []
        for index, config in enumerate(configs or ()):
            with self._context.located((*path, stage, index)):
                rule = self._rule((*path, stage, index), stage, config)
                rules += () if rule is None else (rule,)
        return rules

    def _rule(self, path: Path_, stage: Stage, config: GuardConfig) -> GuardRule | CostCap | None:
        """Return what is made of a guard; None after a complaint about it."""
        kind = _kind(config)
        name = config.name or config.guard
        self.names.add(name)
        try:
            context = self._guard_context(path, stage, config)
            made = _made(kind, config, context) if context is not None else None
            restore_hosts = frozenset(map(entry_of, config.restore_hosts or ()))
        except ValueError as error:
            key = (error.key,) if isinstance(error, WrongKey) else ()
            self._context.complain((*path, *key), str(error))
            return None
        if context is None or made is None:
            return None
        digest = _digest(config, context)
        if isinstance(made, MostCost):
            return _cost_cap(config, made, digest)
        _warm(made)
        self._note(made)
        if stage == "output" and config.mode != "shadow" and config.action != "flag":
            self._note(StreamHold(made))
        return GuardRule(
            name=name,
            detector=made,
            action=config.action,
            shadow=config.mode == "shadow",
            on_error=config.on_error,
            deadline_s=config.deadline,
            roles=frozenset(map(str, config.roles)) if config.roles is not None else None,
            roles_left_out=kind.roles_left_out if config.roles is None else frozenset(),
            fields=kind.fields if config.fields is None else frozenset(map(str, config.fields)),
            cased=kind.cased,
            message=config.message or BLOCKED.format(name),
            digest=digest,
            kind=config.guard,
            restore=config.restore,
            restore_hosts=restore_hosts,
            to=self._context.plain((*path, "to"), config.to or []),
            detections=kind.detections,
        )

    def _note(self, detector: object) -> None:
        """Note a detector that has more to load than the first look asks for."""
        for each in (READINGS, detector):
            if is_preparable(each) and each not in self.unprepared:
                self.unprepared.append(each)

    def _guard_context(self, path: Path_, stage: Stage, config: GuardConfig) -> GuardContext | None:
        """Return what a guard's references lead to; None for one that leads nowhere, after a
        complaint. Raise ``ValueError`` for a file that cannot be read."""
        for key, name in references(config, "deployment"):
            self._context.unknown((*path, key), "deployments", "deployment", name)
            deployment = self._context.policies.deployments.get(name)
            if deployment is not None and deployment.only_passthrough:
                message = f"deployment {quoted(name)} serves only passthrough paths, no chat"
                self._context.complain((*path, key), message)
        upstreams = self._context.upstreams
        named = list(references(config, "upstream"))
        for key, name in named:
            if name not in upstreams:
                self._context.unknown((*path, key), "upstreams", "upstream", name)
        if any(name not in upstreams for _, name in named):
            return None
        return GuardContext(
            name=config.name or config.guard,
            stage=stage,
            texts={name: self._context.text(name) for _, name in references(config, "text")},
            secrets={
                reference: self._context.secret((*path, key), reference)
                for key, reference in references(config, "secret")
            },
            upstreams={name: upstreams[name] for _, name in named},
        )


def _made(kind: GuardKind[Any], config: GuardConfig, context: GuardContext) -> Looking | MostCost:
    if kind.answers and context.stage == "input":
        raise ValueError(only_under(config.guard, "output"))
    return kind.make(config, context)


def _cost_cap(config: GuardConfig, most: MostCost, digest: str) -> CostCap:
    return CostCap(
        name=config.name or config.guard,
        most=most.nano_usd,
        action=config.action,
        shadow=config.mode == "shadow",
        on_error=config.on_error,
        message=config.message or TOO_EXPENSIVE.format(config.name or config.guard),
        digest=digest,
        kind=config.guard,
    )


def _kind(config: GuardConfig) -> GuardKind[Any]:
    return PLUGGED if isinstance(config, Plugged) else KINDS[config.guard]


def _misplaced(config: GuardConfig) -> Iterator[tuple[str, str]]:
    """Yield the keys of a guard of answers that only guards of questions can have."""
    if config.restore:
        yield "restore", only_under("restore", "input")
    if config.action == "route":
        yield "action", only_under("route", "input")


def _warm(detector: Looking) -> None:
    """Let a detector look once, so that what it loads at its first look is there before calls
    come: their deadline is not for loading."""
    with suppress(Exception):  # it says so at each call
        looking = detector.about(ASKED) if is_contextual(detector) else detector
        if looking is not None and is_detector(looking):
            looking.find(SAMPLE)


def _digest(config: GuardConfig, context: GuardContext) -> str:
    """Return what stands for all that a guard is made of, the files it names included."""
    files = [_content(config, key, context) for key in referring_keys(type(config), "text")]
    written = f"{config.model_dump_json(by_alias=True)}{files or ''}"
    return hashlib.sha256(written.encode()).hexdigest()[:16]


def _content(config: GuardConfig, key: str, context: GuardContext) -> str | list[str]:
    named: list[str] | str | None = getattr(config, key)
    if isinstance(named, list):
        return [context.texts[name] for name in named]
    return context.texts[named] if named else ""


def captured(config: schema.CaptureConfig) -> Capture:
    """Return the texts that traces may contain, and the guards that redact them."""
    redact = (_masking("secrets"), _masking("pii"))
    share, most = config.share, config.max_chars
    return Capture(
        share=share,
        input="input" in config.fields,
        output="output" in config.fields,
        max_chars=most,
        redact=redact,
    )


def _masking(word: str) -> GuardRule:
    """Return a rule that masks the findings of a guard kind with its default keys."""
    kind = KINDS[word]
    detector = cast(Detector, kind.make(kind.Keys(), NO_CONTEXT))
    return GuardRule(name=word, detector=detector, action="mask", cased=True, kind=word)
