"""Limits, from schema to bounds: units read, names unique in the folder, tags known."""

from __future__ import annotations

from collections.abc import Iterator

from proxy.policy import schema
from proxy.policy.compile.context import CompileContext
from proxy.policy.files.source import Path_
from proxy.types import ScopedLimit
from proxy.types.limit import Limit
from proxy.types.windows import Calendar
from proxy.words import quoted

Written = tuple[Path_, schema.LimitConfig]


def written(policies: schema.PoliciesConfig) -> Iterator[Written]:
    """Yield every limit of a folder, with where it is written."""
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
    """The scoped limits of a folder, by where they are written."""

    def __init__(self, context: CompileContext) -> None:
        self._context = context
        self.names: dict[str, Path_] = {}
        self._bounds = {
            path: self._bound(path, config) for path, config in written(context.policies)
        }

    def at(self, path: Path_, configs: list[schema.LimitConfig] | None) -> tuple[ScopedLimit, ...]:
        """Return the scoped limits of one list of limits."""
        found = (self._bounds.get((*path, index)) for index, _ in enumerate(configs or ()))
        return tuple(bound for bound in found if bound is not None)

    def _bound(self, path: Path_, config: schema.LimitConfig) -> ScopedLimit | None:
        if config.name in self.names:
            self._context.complain(
                (*path, "name"),
                f"another limit is also called {quoted(config.name)}. Limit names must be unique.",
            )
        self.names.setdefault(config.name, path)
        for index, per in enumerate(config.per):
            tag = per.removeprefix("tag.")
            if tag != per and tag not in self._context.rules:
                self._context.unknown((*path, "per", index), "tags", "tag", tag)
        try:
            limit = self._limit(config, shadow=self._in_shadow(path))
            needs_prices = limit.is_budget and config.unpriced != "allow"
            return ScopedLimit(limit, self._whose(config), needs_prices)
        except ValueError as error:
            self._context.complain(path, str(error).removeprefix(f"{config.name}: "))
            return None

    def _whose(self, config: schema.LimitConfig) -> tuple[str, ...]:
        """Return what a limit is per, the key first: counters are known as a key's by that. What a
        caller says itself counts within its key: nobody can use up another tenant's by its words.
        """
        others = tuple(name for name in config.per if name != "key")
        caller_set_within_key = config.across is None and any(map(self._is_caller_set, others))
        return ("key", *others) if "key" in config.per or caller_set_within_key else others

    def _is_caller_set(self, name: str) -> bool:
        """True if callers may say the value themselves."""
        rule = self._context.rules.get(name.removeprefix("tag."))
        return name == "user" or (name.startswith("tag.") and rule is not None and rule.caller)

    def _in_shadow(self, path: Path_) -> bool:
        """True if a limit stands in a policy that is in shadow as a whole."""
        section, name = path[:2]
        return section == "policies" and self._context.policies.policies[str(name)].mode == "shadow"

    def _limit(self, config: schema.LimitConfig, *, shadow: bool) -> Limit:
        amount, window = config.amount
        if isinstance(window, str):
            window = Calendar(window, config.zone or "UTC")  # type: ignore[arg-type]  # a unit
        return Limit(
            config.name,
            config.kind,
            amount=amount,
            window=window,
            burst=config.burst,
            shadow=config.mode == "shadow" or shadow,
            warn_at=config.warn_at,
            on_store_error=config.on_store_error,
        )
