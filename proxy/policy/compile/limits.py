"""Compiles limits, and checks that their names are unique and their tags exist."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proxy.policy import schema
from proxy.policy.compile.context import CompileContext
from proxy.policy.files.source import KeyPath
from proxy.types import ScopedLimit
from proxy.types.limit import Limit
from proxy.types.windows import Calendar
from proxy.words import quoted


def written(policies: schema.PoliciesConfig) -> Iterator[tuple[KeyPath, schema.LimitConfig]]:
    """Yield every limit with its path."""
    for path, part in policies.parts():
        yield from (((*path, "limits", n), limit) for n, limit in enumerate(part.limits or ()))


class LimitCompiler:
    """Compiles all limits of a folder. ``paths`` are their paths by name."""

    def __init__(self, context: CompileContext) -> None:
        self._context = context
        self.paths: dict[str, KeyPath] = {}
        limits = written(context.policies)
        self._by_path = {path: self._scoped_limit(path, config) for path, config in limits}

    def at(
        self, path: KeyPath, configs: Sequence[schema.LimitConfig] | None
    ) -> tuple[ScopedLimit, ...]:
        """Return the limits of the list at a path."""
        limits = (self._by_path.get((*path, index)) for index, _ in enumerate(configs or ()))
        return tuple(limit for limit in limits if limit is not None)

    def _scoped_limit(self, path: KeyPath, config: schema.LimitConfig) -> ScopedLimit | None:
        if config.name in self.paths:
            message = f"another limit is also called {quoted(config.name)}. "
            self._context.complain((*path, "name"), f"{message}Limit names must be unique.")
        self.paths.setdefault(config.name, path)
        for index, per in enumerate(config.per):
            if per.startswith("tag."):
                self._context.check_tag((*path, "per", index), per.removeprefix("tag."))
        try:
            limit = self._limit(path, config)
            needs_prices = limit.is_budget and config.unpriced != "allow"
            return ScopedLimit(limit, self._scope(config), needs_prices)
        except ValueError as error:
            self._context.complain(path, str(error).removeprefix(f"{config.name}: "))
            return None

    def _scope(self, config: schema.LimitConfig) -> tuple[str, ...]:
        """Return the parts of a counter's name, the key first.

        Values that clients may set are counted per key, so that no client can use up the limit of
        another tenant.
        """
        others = tuple(name for name in config.per if name != "key")
        is_per_key = config.across is None and any(map(self._is_set_by_clients, others))
        return ("key", *others) if "key" in config.per or is_per_key else others

    def _is_set_by_clients(self, name: str) -> bool:
        rule = self._context.tag_rules.get(name.removeprefix("tag."))
        return name == "user" or (name.startswith("tag.") and rule is not None and rule.caller)

    def _limit(self, path: KeyPath, config: schema.LimitConfig) -> Limit:
        modes = [config.mode]
        if path[0] == "policies":
            modes.append(self._context.policies.policies[str(path[1])].mode)
        amount, window = config.amount
        if isinstance(window, str):
            window = Calendar(window, config.zone or "UTC")  # type: ignore[arg-type]  # a unit
        return Limit(
            config.name,
            config.kind,
            amount=amount,
            window=window,
            burst=config.burst,
            shadow="shadow" in modes,
            warn_at=config.warn_at,
            on_store_error=config.on_store_error,
        )
