"""Limits, from schema to bounds: units read, names unique in the folder, tags known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from proxy.policy import schema
from proxy.policy.compile.context import CompileContext
from proxy.policy.files.source import Path_
from proxy.types import ScopedLimit
from proxy.types.limit import Limit
from proxy.types.windows import Calendar

Written = tuple[Path_, schema.LimitConfig]


def written(policies: schema.PoliciesConfig) -> Iterator[Written]:
    """Give every limit of a folder, with where it is written."""
    for name, policy in policies.policies.items():
        for index, limit in enumerate(policy.limits):
            yield ("policies", name, "limits", index), limit
        for number, rule in enumerate(policy.rules):
            for index, limit in enumerate(rule.limits or ()):
                yield ("policies", name, "rules", number, "limits", index), limit
    for name, deployment in policies.deployments.items():
        for index, limit in enumerate(deployment.limits):
            yield ("deployments", name, "limits", index), limit


class LimitCompiler:
    """Gives the bounds of a folder, by where they are written."""

    def __init__(self, around: CompileContext) -> None:
        self._around = around
        self.names: dict[str, Path_] = {}
        self._bounds = {path: self._bound(path, said) for path, said in written(around.policies)}

    def at(self, path: Path_, said: list[schema.LimitConfig] | None) -> tuple[ScopedLimit, ...]:
        """Give the bounds of one list of limits."""
        found = (self._bounds.get((*path, index)) for index, _ in enumerate(said or ()))
        return tuple(bound for bound in found if bound is not None)

    def _bound(self, path: Path_, said: schema.LimitConfig) -> ScopedLimit | None:
        if said.name in self.names:
            self._around.complain((*path, "name"), f"{said.name} names another limit too")
        self.names.setdefault(said.name, path)
        for index, per in enumerate(said.per):
            tag = per.removeprefix("tag.")
            if tag != per and tag not in self._around.rules:
                self._around.unknown((*path, "per", index), "tags", "tag", tag)
        try:
            amounts = self._amounts(said, shadow=self._in_shadow(path))
            limit = Limit(said.name, **amounts)
            needs_prices = limit.kind == "usd" and said.unpriced != "allow"
            return ScopedLimit(limit, self._whose(said), needs_prices)
        except ValueError as error:
            self._around.complain(path, str(error).removeprefix(f"{said.name}: "))
            return None

    def _whose(self, said: schema.LimitConfig) -> tuple[str, ...]:
        """Return what a limit is per, the key first: counters are known as a key's by that. What a
        caller says itself counts within its key: nobody can use up another tenant's by its words.
        """
        others = tuple(name for name in said.per if name != "key")
        said_within = said.across is None and any(map(self._is_said, others))
        return ("key", *others) if "key" in said.per or said_within else others

    def _is_said(self, name: str) -> bool:
        """True if callers may say the value themselves."""
        rule = self._around.rules.get(name.removeprefix("tag."))
        return name == "user" or (name.startswith("tag.") and rule is not None and rule.caller)

    def _in_shadow(self, path: Path_) -> bool:
        """Say whether a limit stands in a policy that is in shadow as a whole."""
        section, name = path[:2]
        return section == "policies" and self._around.policies.policies[str(name)].mode == "shadow"

    def _amounts(self, said: schema.LimitConfig, shadow: bool) -> dict[str, Any]:
        more: dict[str, Any] = {
            "shadow": said.mode == "shadow" or shadow,
            "warn_at": said.warn_at,
            "on_store_error": said.on_store_error,
        }
        if said.usd is not None:
            amount, unit = said.usd
            window = Calendar(unit, said.zone or "UTC")  # type: ignore[arg-type]  # a unit by schema
            return {"kind": "usd", "amount": amount, "window": window, **more}
        if said.concurrency is not None:
            return {"kind": "concurrency", "amount": said.concurrency, **more}
        kind = "requests" if said.requests is not None else "tokens"
        amount, seconds = said.requests or said.tokens or (0, 0)
        return {"kind": kind, "amount": amount, "window": seconds, "burst": said.burst, **more}
