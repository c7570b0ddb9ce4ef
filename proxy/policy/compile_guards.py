"""Guards, from schema to rules: detectors made, and a digest of each for the cache."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from proxy.guardrails.kinds import KINDS
from proxy.policy.around import Around
from proxy.policy.rules import Guards
from proxy.policy.schema.guards import COMMON, AnyGuard
from proxy.policy.source import Path_
from proxy.types.guard import MESSAGE, Rule

KIND = {"guard"}


class GuardCompiler:
    """Makes the guards of a folder, each once for what is said of it."""

    def __init__(self, around: Around) -> None:
        self._around = around
        self.names: set[str] = set()

    def guards(
        self, path: Path_, came: Sequence[AnyGuard] | None, goes: Sequence[AnyGuard] | None
    ) -> Guards:
        """Give the guards of one part of the policies, in and out."""
        return Guards(self._rules((*path, "input"), came), self._rules((*path, "output"), goes))

    def _rules(self, path: Path_, said: Sequence[AnyGuard] | None) -> tuple[Rule, ...]:
        found = (self._rule((*path, index), each) for index, each in enumerate(said or ()))
        return tuple(rule for rule in found if rule is not None)

    def _rule(self, path: Path_, said: AnyGuard) -> Rule | None:
        kind = KINDS[said.guard]
        name = said.name or said.guard
        self.names.add(name)
        try:
            detector = kind.make(said.model_dump(exclude=set(COMMON | KIND)))
        except ValueError as error:
            self._around.complain(path, str(error))
            return None
        fields = kind.fields if said.fields is None else frozenset(map(str, said.fields))
        written = said.model_dump_json(by_alias=True)
        return Rule(
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
            digest=hashlib.sha256(written.encode()).hexdigest()[:16],
            kind=said.guard,
        )
