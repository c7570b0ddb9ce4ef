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

    def __init__(self, around: CompileContext) -> None:
        self._around = around
        self.names: set[str] = set()

    def guards(
        self, path: Path_, came: Sequence[AnyGuard] | None, goes: Sequence[AnyGuard] | None
    ) -> RuleGuards:
        """Give the guards of one part of the policies, in and out."""
        for index, each in enumerate(came or ()):
            if each.action == "retry":
                said = "retry stands under output: a question is asked by the client"
                self._around.complain((*path, "input", index, "action"), said)
        for index, each in enumerate(goes or ()):
            for key, said in _misplaced(each):
                self._around.complain((*path, "output", index, *key), said)
        return RuleGuards(
            self._rules((*path, "input"), came),
            self._rules((*path, "output"), goes),
            tuple(self._ceiling(each) for each in came or () if isinstance(each, EconomicsConfig)),
        )

    def _ceiling(self, said: EconomicsConfig) -> CostCap:
        name = said.name or said.guard
        self.names.add(name)
        return CostCap(
            name=name,
            most=int(said.max_cost_usd * NANO),
            action=said.action,
            shadow=said.mode == "shadow",
            on_error=said.on_error,
            message=said.message or TOO_EXPENSIVE,
            digest=_digest(said),
        )

    def _rules(self, path: Path_, said: Sequence[AnyGuard] | None) -> tuple[GuardRule, ...]:
        found = (
            self._rule((*path, index), each)
            for index, each in enumerate(said or ())
            if not isinstance(each, EconomicsConfig)
        )
        return tuple(rule for rule in found if rule is not None)

    def _rule(self, path: Path_, said: AnyGuard) -> GuardRule | None:
        kind = _kind(said)
        name = said.name or said.guard
        self.names.add(name)
        if kind.answers and path[-2] == "input":
            self._around.complain(path, f"{said.guard} judges answers: it belongs under output")
            return None
        found = resolved(self._around, path, said)
        if found is None:
            return None
        try:
            options = self._options(said) | found
            detector = kind.make(options)
            restore_hosts = frozenset(map(entry_of, said.restore_hosts or ()))
        except ValueError as error:
            self._around.complain(path, str(error))
            return None
        _warm(detector)
        fields = kind.fields if said.fields is None else frozenset(map(str, said.fields))
        files = [options[name] for name in NAMES if name in options]
        return GuardRule(
            name=name,
            detector=detector,
            action=said.action,
            shadow=said.mode == "shadow",
            on_error=said.on_error,
            deadline_s=said.deadline,
            roles=frozenset(map(str, said.roles)) if said.roles is not None else None,
            fields=fields,
            cased=kind.cased,
            message=said.message or MESSAGE,
            digest=_digest(said, files),
            kind=said.guard,
            restore=said.restore,
            restore_hosts=restore_hosts,
            to=self._around.plain((*path, "to"), said.to or []),
        )

    def _options(self, said: AnyGuard) -> dict[str, Any]:
        """Give what a kind is made of, files as what they say. Raises ``ValueError``."""
        options = said.model_dump(exclude=set(COMMON | KIND))
        for name in NAMES:
            if name in options:
                options[name] = self._texts(options[name])
        return options

    def _texts(self, named: list[str] | str | None) -> list[str] | str:
        if isinstance(named, list):
            return [self._around.text(each) for each in named]
        return self._around.text(named) if named else ""


def _kind(said: AnyGuard) -> Kind:
    return Kind(lambda _: said.made()) if isinstance(said, Plugged) else KINDS[said.guard]


def _misplaced(said: AnyGuard) -> Iterator[tuple[Path_, str]]:
    """Tell what a guard of answers says that only questions can have."""
    if isinstance(said, EconomicsConfig):
        yield (), "economics stands under input: what a call costs is then not spent yet"
    if said.restore:
        yield ("restore",), "restore stands under input: an answer has nowhere to come back from"
    if said.action == "route":
        yield ("action",), "route stands under input: an answer has come from somewhere already"


def _warm(detector: Looking) -> None:
    """Let a detector look once, so that what it loads at its first look is there before calls
    come: their deadline is not for loading."""
    if is_detector(detector):
        with suppress(Exception):  # it says so at each call
            detector.find(SAMPLE)


def _digest(said: AnyGuard, files: Sequence[object] = ()) -> str:
    written = f"{said.model_dump_json(by_alias=True)}{[*files] or ''}"
    return hashlib.sha256(written.encode()).hexdigest()[:16]
