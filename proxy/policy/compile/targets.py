"""Compiles upstreams, targets with their prices, and the routes of deployments and rules."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from urllib.parse import urlencode, urlsplit

from pydantic import ValidationError

from proxy.dialects import DIALECTS
from proxy.errors.words import quote
from proxy.fields.rules import POLICY_FIELDS
from proxy.money import usage
from proxy.policy import schema
from proxy.policy.compile.context import CompileContext
from proxy.policy.decide.routes import Candidates, Routes
from proxy.policy.decide.snapshot import Deployment
from proxy.policy.files.cloud_tokens import is_token_reference
from proxy.policy.files.source import KeyPath
from proxy.policy.files.validation import report_errors
from proxy.policy.schema.upstreams import AZURE, OPENAI_COMPATIBLE
from proxy.types import Breaker, ScopedLimit, Target, Timeouts, Upstream
from proxy.types.providers import GATEWAY_NAMES, OPENAI, PROVIDERS

OPENAI_URL = re.compile(r"^https://([^/@]*\.)?openai(\.azure)?\.com(:\d+)?(/|$)", re.IGNORECASE)
GATEWAY_HOSTS = GATEWAY_NAMES | {"gateway", "helicone", "portkey"}
"""Words in host names that identify gateways."""


def compile_upstream(context: CompileContext, name: str, config: schema.UpstreamConfig) -> Upstream:
    path: KeyPath = ("upstreams", name)
    read_secret = context.read_secret
    key = read_secret((*path, "api_key"), config.api_key) if config.api_key else None
    key_header = "api-key" if config.dialect == AZURE else None
    if key is not None and is_token_reference(config.api_key or ""):
        key_header = "authorization"
    # Prices of OpenAI hold only at OpenAI, not at every server with its API.
    providers = {AZURE: AZURE, OPENAI_COMPATIBLE: None}
    dialect_provider = DIALECTS[config.api_dialect].provider
    provider = config.provider or providers.get(config.dialect, dialect_provider)
    traits = PROVIDERS.get(config.provider or "", OPENAI)
    drops, is_gateway = {*config.drop}, find_gateway_reason(config) is not None
    if is_gateway and "metadata" not in config.accepted_fields:  # gateways read settings in it
        drops.add("metadata")
    headers, breaker = config.headers.items(), config.breaker
    return Upstream(
        name=name,
        dialect=config.api_dialect,
        base_url=_make_base_url(config),
        query=urlencode(config.query, safe=":,"),
        key_header=key_header,
        api_key=key,
        headers=tuple((n, read_secret((*path, "headers", n), ref)) for n, ref in headers),
        timeouts=Timeouts(**config.timeouts.model_dump()),
        provider=provider,
        accepts=frozenset(config.accepted_fields),
        max_values=tuple(
            (field, n) for field, n in config.accepted_fields.items() if n is not None
        ),
        requests_usage=config.include_usage == "on",
        traits=traits if config.api_dialect == traits.dialect == OPENAI.dialect else OPENAI,
        is_gateway=is_gateway,
        drops=frozenset(drops),
        refuses=(POLICY_FIELDS | {*config.refuse}) - {*config.drop},
        skips_range_checks=config.dialect == OPENAI_COMPATIBLE
        or (config.dialect == "openai" and not OPENAI_URL.search(config.base_url)),
        max_answer_bytes=config.max_answer_bytes,
        max_answer_values=config.max_answer_values,
        propagate_trace=config.propagate_trace,
        max_concurrency=config.max_concurrency,
        breaker=None if breaker.off else Breaker(breaker.failures, breaker.rest),
    )


def _make_base_url(config: schema.UpstreamConfig) -> str:
    """Return the URL before the path of an endpoint.

    Azure has two APIs: with a version, each deployment has a URL; without, it is like OpenAI's.
    """
    base = config.base_url.rstrip("/")
    if config.dialect != AZURE or urlsplit(base).path:
        return config.base_url
    has_version = "api-version" in config.query
    return base + ("/openai/deployments/{model}" if has_version else "/openai/v1")


def find_gateway_reason(config: schema.UpstreamConfig) -> str | None:
    """Return the setting or host that makes an upstream a gateway, None for other upstreams."""
    if config.gateway is not None:
        return "gateway: true" if config.gateway else None
    if config.provider in GATEWAY_NAMES:
        return f"provider: {config.provider}"
    host = urlsplit(config.base_url).hostname or ""
    return None if GATEWAY_HOSTS.isdisjoint(re.split("[.-]", host)) else f"host {host}"


WeightedTarget = tuple[Target, int | None]
UNREACHABLE_ADVICE = "Give all targets a weight, set balance, or move this one to fallback."


def compile_routes(
    context: CompileContext,
    path: KeyPath,
    configs: Sequence[schema.TargetConfig],
    is_balanced: bool = False,
) -> Routes:
    targets = (_compile_target(context, (*path, n), config) for n, config in enumerate(configs))
    pairs = zip(targets, configs, strict=True)
    weighted = [(target, config.weight) for target, config in pairs if target is not None]
    return route_by_weight(weighted, is_balanced)


def _compile_target(
    context: CompileContext, path: KeyPath, config: schema.TargetConfig
) -> Target | None:
    context.check_reference((*path, "upstream"), "upstreams", "upstream", config.upstream)
    upstream = context.upstreams.get(config.upstream)
    if upstream is None:
        return None
    prices = tuple(map(compile_price, config.price))
    prices = prices or _find_prices(context, upstream, config.model)
    target = Target(upstream, config.model, endpoint=config.endpoint, prices=prices)
    context.targets[path] = target
    return target


def _find_prices(
    context: CompileContext, upstream: Upstream, model: str
) -> tuple[usage.Price, ...]:
    """Return the prices of a model in the table. Rows of other models are not validated."""
    if upstream.provider is None:
        return ()
    rows = context.loaded.policies_with_prices.prices.get(upstream.provider, {})
    name = usage.find_exact_or_wildcard_name(rows, model)
    if name is None:
        return ()
    context.uses_price_table = True
    prices = []
    for index, row in enumerate(schema.iter_price_rows(rows[name])):
        if isinstance(row, ValidationError):
            path = ("prices", upstream.provider, name, index)
            report_errors(context.document, row, schema.PriceConfig, path)
        else:
            prices.append(compile_price(row))
    return tuple(prices)


def check_prices(context: CompileContext, deployments: Mapping[str, Deployment]) -> None:
    """Report the targets under a limit in USD that lack a price.

    A limit cannot bound a cost that is unknown.
    """
    by_owner: dict[KeyPath, list[tuple[KeyPath, Target]]] = defaultdict(list)
    for path, target in context.targets.items():
        by_owner[path[:-2]].append((path, target))
    for name, deployment in deployments.items():
        own_targets = by_owner["deployments", name]
        detours = deployment.guards.route_targets
        routed = [p for p in context.targets.items() if p[1] in detours] if detours else []
        _check_prices(context, (*own_targets, *routed), deployment.limits)
        for rule in deployment.rules:
            if rule.shadow:
                continue
            if rule.routes is None:
                _check_prices(context, own_targets, rule.limits)
            limits = (*deployment.limits, *rule.limits)
            counting = [scoped for scoped in limits if scoped.name not in rule.without_limits]
            _check_prices(context, by_owner[rule.path], counting)


def _check_prices(
    context: CompileContext,
    targets: Iterable[tuple[KeyPath, Target]],
    limits: Iterable[ScopedLimit],
) -> None:
    limit = next((scoped.name for scoped in limits if scoped.needs_prices), None)
    for path, target in targets if limit is not None else ():
        missing = target.describe_missing_price()
        if missing is not None:
            problem = f"model {quote(target.model)} has {missing}"
            advice = 'Add "price:" to this target, or set "unpriced: allow" on the limit.'
            message = f"{problem}, but limit {quote(str(limit))} is in USD. {advice}"
            context.report(path, message)


def check_unreachable_targets(context: CompileContext, deployments: Iterable[Deployment]) -> None:
    """Report the targets that no call of any deployment can reach."""
    is_reachable: dict[int, bool] = {}
    for deployment in deployments:
        rule_routes = [rule.routes for rule in deployment.rules if rule.routes is not None]
        for routes in (deployment.routes, *rule_routes):
            for target, names in iter_model_only_targets(routes, deployment.names):
                is_reachable[id(target)] = is_reachable.get(id(target), False) or bool(names)
    for path, target in context.targets.items():
        if not is_reachable.get(id(target), True):
            message = "can never be used, because earlier targets have all its names."
            context.report(path, f"{message} {UNREACHABLE_ADVICE}")


def route_by_weight(weighted: Sequence[WeightedTarget], is_balanced: bool) -> Routes:
    by_name: dict[str, list[WeightedTarget]] = defaultdict(list)
    for target, weight in weighted:
        for name in target.names if weight != 0 else ():
            by_name[name].append((target, weight))
    by_model = {name: _make_candidates(targets, is_balanced) for name, targets in by_name.items()}
    targets = tuple(target for target, _ in weighted)
    return Routes(targets, _make_candidates(weighted, is_balanced), MappingProxyType(by_model))


def _make_candidates(weighted: Sequence[WeightedTarget], is_balanced: bool) -> Candidates:
    heaviest_first = sorted(weighted, key=lambda pair: -(pair[1] or 0))
    targets = tuple(target for target, _ in heaviest_first)
    weights = tuple(weight for _, weight in heaviest_first if weight is not None)
    if weights:  # the schema reports a weight that is missing or invalid
        weights += (0,) * (len(targets) - len(weights))
    return Candidates(targets, weights, is_balanced)


def iter_model_only_targets(
    routes: Routes, deployment_names: Collection[str]
) -> Iterator[tuple[Target, frozenset[str]]]:
    """Yield the targets that are used only if a call names their model, each with these names.

    Without weights or balance, these are all but the first target. A target without names is never
    used.
    """
    if routes.candidates.weights or routes.candidates.is_balanced:
        return
    for target in routes.targets[1:]:
        names = target.names.difference(deployment_names)
        yield target, frozenset({n for n in names if routes.by_model[n].targets[0] is target})


def compile_price(config: schema.PriceConfig) -> usage.Price:
    fields = config.model_dump(exclude={"tiers"})
    tiers = tuple(usage.Tier(**tier.model_dump()) for tier in config.tiers)
    return usage.Price(**fields, tiers=tiers)
