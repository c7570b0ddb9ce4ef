"""Guards, from schema to rules: detectors made, and a digest of each for the cache."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from proxy.guardrails.kinds.table import KINDS, Kind
from proxy.guardrails.text.hosts import entry_of
from proxy.policy.compile.context import CompileContext
from proxy.policy.compile.services import resolved
from proxy.policy.decide.rules import RuleGuards
from proxy.policy.files.source import Path_
from proxy.policy.files.texts import NAMES
from proxy.policy.schema.guards import COMMON, EconomicsConfig
from proxy.policy.schema.guards_asking import AnyGuard
from proxy.policy.schema.plugged import Plugged
from proxy.types.guard import MESSAGE, TOO_EXPENSIVE, CostCap, GuardRule, Looking, is_detector
from proxy.usage import NANO

KIND = {"guard"}
SAMPLE = "A first look: word 1 of 2, a@b.example, https://b.example/?c=d"


class GuardCompiler:
    """Makes the guards of a folder, each once for what is said of it."""

    def __init__(self, context: CompileContext) -> None:
        self._context = context
        self.names: set[str] = set()

    def guards(
        self, path: Path_, inputs: Sequence[AnyGuard] | None, outputs: Sequence[AnyGuard] | None
    ) -> RuleGuards:
        """Return the guards of one part of the policies, for questions and for answers."""
        for index, each in enumerate(inputs or ()):
            if each.action == "retry":
                message = "retry stands under output: a question is asked by the client"
                self._context.complain((*path, "input", index, "action"), message)
        for index, each in enumerate(outputs or ()):
            for key, message in _misplaced(each):
                self._context.complain((*path, "output", index, *key), message)
        return RuleGuards(
            self._rules((*path, "input"), inputs),
            self._rules((*path, "output"), outputs),
            tuple(
                self._ceiling(each) for each in inputs or () if isinstance(each, EconomicsConfig)
            ),
        )

    def _ceiling(self, config: EconomicsConfig) -> CostCap:
        name = config.name or config.guard
        self.names.add(name)
        return CostCap(
            name=name,
            most=int(config.max_cost_usd * NANO),
            action=config.action,
            shadow=config.mode == "shadow",
            on_error=config.on_error,
            message=config.message or TOO_EXPENSIVE,
            digest=_digest(config),
        )

    def _rules(self, path: Path_, configs: Sequence[AnyGuard] | None) -> tuple[GuardRule, ...]:
        found = (
            self._rule((*path, index), each)
            for index, each in enumerate(configs or ())
            if not isinstance(each, EconomicsConfig)
        )
        return tuple(rule for rule in found if rule is not None)

    def _rule(self, path: Path_, config: AnyGuard) -> GuardRule | None:
        kind = _kind(config)
        name = config.name or config.guard
        self.names.add(name)
        if kind.answers and path[-2] == "input":
            self._context.complain(path, f"{config.guard} judges answers: it belongs under output")
            return None
        found = resolved(self._context, path, config)
        if found is None:
            return None
        try:
            options = self._options(config) | found
            detector = kind.make(options)
            restore_hosts = frozenset(map(entry_of, config.restore_hosts or ()))
        except ValueError as error:
            self._context.complain(path, str(error))
            return None
        _warm(detector)
        fields = kind.fields if config.fields is None else frozenset(map(str, config.fields))
        files = [options[name] for name in NAMES if name in options]
        return GuardRule(
            name=name,
            detector=detector,
            action=config.action,
            shadow=config.mode == "shadow",
            on_error=config.on_error,
            deadline_s=config.deadline,
            roles=frozenset(map(str, config.roles)) if config.roles is not None else None,
            fields=fields,
            cased=kind.cased,
            message=config.message or MESSAGE,
            digest=_digest(config, files),
            kind=config.guard,
            restore=config.restore,
            restore_hosts=restore_hosts,
            to=self._context.plain((*path, "to"), config.to or []),
        )

    def _options(self, config: AnyGuard) -> dict[str, Any]:
        """Return the options a kind is made from, with files replaced by their content. Raise
        ``ValueError`` for a file that cannot be read."""
        options = config.model_dump(exclude=set(COMMON | KIND))
        for name in NAMES:
            if name in options:
                options[name] = self._texts(options[name])
        return options

    def _texts(self, named: list[str] | str | None) -> list[str] | str:
        if isinstance(named, list):
            return [self._context.text(each) for each in named]
        return self._context.text(named) if named else ""


def _kind(config: AnyGuard) -> Kind:
    return Kind(lambda _: config.made()) if isinstance(config, Plugged) else KINDS[config.guard]


def _misplaced(config: AnyGuard) -> Iterator[tuple[Path_, str]]:
    """Yield the options of a guard of answers that only guards of questions can have."""
    if isinstance(config, EconomicsConfig):
        yield (), "economics stands under input: what a call costs is then not spent yet"
    if config.restore:
        yield ("restore",), "restore stands under input: an answer has nowhere to come back from"
    if config.action == "route":
        yield ("action",), "route stands under input: an answer has come from somewhere already"


def _warm(detector: Looking) -> None:
    """Let a detector look once, so that what it loads at its first look is there before calls
    come: their deadline is not for loading."""
    if is_detector(detector):
        with suppress(Exception):  # it says so at each call
            detector.find(SAMPLE)


def _digest(config: AnyGuard, files: Sequence[object] = ()) -> str:
    written = f"{config.model_dump_json(by_alias=True)}{[*files] or ''}"
    return hashlib.sha256(written.encode()).hexdigest()[:16]
