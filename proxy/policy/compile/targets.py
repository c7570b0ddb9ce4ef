"""Compiles targets with their prices, and the routes of deployments and rules."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from proxy.errors.words import quoted
from proxy.money import usage
from proxy.policy import schema
from proxy.policy.compile.context import CompileContext
from proxy.policy.decide.routes import Candidates, Routes
from proxy.policy.decide.snapshot import Deployment
from proxy.policy.files.load import note
from proxy.policy.files.source import Finding, KeyPath
from proxy.types import ScopedLimit, Target, Upstream

WeightedTarget = tuple[Target, int | None]
REMEDY = "Give all targets a weight, set balance, or move this one to fallback."


class TargetCompiler:
    """Compiles targets. ``by_path`` are all of them; ``uses_table`` is True if a price table was
    needed."""

    def __init__(self, context: CompileContext) -> None:
        self._context = context
        self.by_path: dict[KeyPath, Target] = {}
        self.uses_table = context.loaded.brings_prices

    @property
    def table_date(self) -> date | None:
        """Date of the price table, if it is used."""
        return self._context.loaded.priced.price_table.as_of if self.uses_table else None

    def routes(
        self, path: KeyPath, configs: Sequence[schema.TargetConfig], balanced: bool = False
    ) -> Routes:
        targets = (self._target((*path, n), config) for n, config in enumerate(configs))
        pairs = zip(targets, configs, strict=True)
        weighted = [(target, config.weight) for target, config in pairs if target is not None]
        return compile_routes(weighted, balanced)

    def targets(self, path: KeyPath, configs: Sequence[schema.TargetConfig]) -> tuple[Target, ...]:
        return self.routes(path, configs).targets

    def _target(self, path: KeyPath, config: schema.TargetConfig) -> Target | None:
        upstream = self._context.upstreams.get(config.upstream)
        if upstream is None:
            self._context.unknown((*path, "upstream"), "upstreams", "upstream", config.upstream)
            return None
        target = Target(
            upstream=upstream,
            model=config.model,
            endpoint=config.endpoint,
            prices=tuple(map(price_of, config.price)) or self._listed(upstream, config.model),
        )
        self.by_path[path] = target
        return target

    def _listed(self, upstream: Upstream, model: str) -> tuple[usage.Price, ...]:
        """Return the prices of a model in the table. Rows of other models are not validated."""
        if upstream.provider is None:
            return ()
        rows = self._context.loaded.priced.prices.get(upstream.provider, {})
        name = usage.listed(rows, model)
        if name is None:
            return ()
        self.uses_table = True
        value = rows[name]
        dated = enumerate(value) if isinstance(value, list) else [(0, value)]
        prices = (self._row(("prices", upstream.provider, name, n), row) for n, row in dated)
        return tuple(price for price in prices if price is not None)

    def _row(self, path: KeyPath, value: Any) -> usage.Price | None:
        try:
            return price_of(schema.PriceConfig.model_validate(value))
        except ValidationError as error:
            note(self._context.document, error, schema.PriceConfig, path)
            return None

    def unpriced(self, deployments: Mapping[str, Deployment]) -> Iterator[Finding]:
        """Yield the targets without a whole price that are under a limit in USD.

        A cost that is unknown is never counted, so such a limit would not bound it.
        """
        document = self._context.document
        without_prices = ("keys", "tags", "caller_tags", "cors")
        if not document.whole or any(p[0] not in without_prices for p in document.left_out):
            return  # a part that is missing may declare a price
        lists: dict[KeyPath, list[tuple[KeyPath, Target]]] = {}
        for path, target in self.by_path.items():
            lists.setdefault(path[:-1], []).append((path, target))
        for name, deployment in deployments.items():
            own = _targets_below(lists, ("deployments", name))
            detours = deployment.guards.route_targets
            routed = [p for p in self.by_path.items() if p[1] in detours] if detours else []
            yield from _unpriced((*own, *routed), deployment.bounds)
            for rule in deployment.rules:
                if rule.shadow:
                    continue
                if rule.routes is None:
                    yield from _unpriced(own, rule.bounds)
                scoped = (*deployment.bounds, *rule.bounds)
                counted = [each for each in scoped if each.limit.name not in rule.without]
                yield from _unpriced(_targets_below(lists, rule.path), counted)

    def unreachable(self, deployments: Iterable[Deployment]) -> Iterator[Finding]:
        """Yield the targets that no call of any deployment can reach."""
        is_reachable: dict[int, bool] = {}
        for deployment in deployments:
            rule_routes = [rule.routes for rule in deployment.rules if rule.routes is not None]
            for routes in (deployment.routes, *rule_routes):
                for target, names in named_targets(routes, deployment.names):
                    is_reachable[id(target)] = is_reachable.get(id(target), False) or bool(names)
        for path, target in self.by_path.items():
            if not is_reachable.get(id(target), True):
                message = "can never be used, because earlier targets have all its names."
                yield path, f"{message} {REMEDY}"


def compile_routes(weighted: Sequence[WeightedTarget], balanced: bool) -> Routes:
    """Return the routes of targets, each with its weight; None if weights are not used."""
    by_name: dict[str, list[WeightedTarget]] = {}
    for target, weight in weighted:
        for name in target.names if weight != 0 else ():
            by_name.setdefault(name, []).append((target, weight))
    serves = {name: _candidates(targets, balanced) for name, targets in by_name.items()}
    targets = tuple(target for target, _ in weighted)
    return Routes(targets, _candidates(weighted, balanced), MappingProxyType(serves))


def _candidates(weighted: Sequence[WeightedTarget], balanced: bool) -> Candidates:
    heaviest_first = sorted(weighted, key=lambda pair: -(pair[1] or 0))
    targets = tuple(target for target, _ in heaviest_first)
    weights = tuple(weight for _, weight in heaviest_first if weight is not None)
    if weights:  # the schema reports a weight that is missing or invalid
        weights += (0,) * (len(targets) - len(weights))
    return Candidates(targets, weights, balanced)


def named_targets(
    routes: Routes, deployment_names: Collection[str]
) -> Iterator[tuple[Target, frozenset[str]]]:
    """Yield the targets that only calls for their models reach, each with the names that lead to
    it. Without weights or balancing, the first target takes all calls for the deployment."""
    if routes.candidates.weights or routes.candidates.balanced:
        return
    for target in routes.targets[1:]:
        names = target.names.difference(deployment_names)
        yield target, frozenset({n for n in names if routes.serves[n].targets[0] is target})


def price_of(config: schema.PriceConfig) -> usage.Price:
    fields = config.model_dump(exclude={"tiers"})
    tiers = tuple(usage.Tier(**tier.model_dump()) for tier in config.tiers)
    return usage.Price(**fields, tiers=tiers)


def _targets_below(
    lists: Mapping[KeyPath, list[tuple[KeyPath, Target]]], path: KeyPath
) -> list[tuple[KeyPath, Target]]:
    return [pair for key in ("targets", "fallback") for pair in lists.get((*path, key), ())]


def _unpriced(
    targets: Iterable[tuple[KeyPath, Target]], scoped: Iterable[ScopedLimit]
) -> Iterator[Finding]:
    limit = next((each.limit.name for each in scoped if each.needs_prices), None)
    for path, target in targets if limit is not None else ():
        missing = target.missing_price()
        if missing is not None:
            yield (
                path,
                f"model {quoted(target.model)} has {missing}, but limit {quoted(str(limit))} is in "
                'USD. Add "price:" to this target, or set "unpriced: allow" on the limit.',
            )
