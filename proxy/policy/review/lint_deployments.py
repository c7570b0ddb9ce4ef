"""Warnings about deployments: their targets, and their passthrough paths."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from proxy.errors.words import quote
from proxy.policy.compile.targets import UNREACHABLE_ADVICE, iter_model_only_targets
from proxy.policy.decide.snapshot import Deployment, Snapshot
from proxy.policy.files.source import Finding, KeyPath
from proxy.policy.review.lint_rules import find_target_overriding_rule
from proxy.types.endpoints import MODEL_FREE_METHODS
from proxy.types.passthrough import PassthroughPath

Paths = Sequence[PassthroughPath]
STORED_SEGMENTS = frozenset(
    {"assistants", "batches", "containers", "conversations", "evals", "files", "fine_tuning"}
    | {"responses", "skills", "threads", "uploads", "vector_stores", "videos"}
)
"""Path segments under which providers store data."""
REFERENCE_FIELDS: Mapping[str, tuple[str, ...]] = {
    "containers": ("container.id", "container_id"),
    "files": ("file_id",),
    "skills": ("skill_id",),
    "uploads": ("file_id",),
    "vector_stores": ("vector_store_ids",),
}
"""Request fields that refer to stored data, by path segment."""
CREDENTIAL_PATH = re.compile(r"/(?!count_)[a-z_]*(?:credential|key|secret|session|token)s(?:/|$)")
"""Paths whose responses are credentials of the provider, such as those of realtime clients."""
BINARY_SEGMENTS = frozenset(
    {"audio", "content", "edits", "files", "uploads", "variations", "videos"}
)
"""Path segments of forms with files, and of responses with sound, pictures or files."""


def lint_deployment(deployment: Deployment, snapshot: Snapshot) -> Iterator[Finding]:
    """Yield the warnings about one deployment."""
    path: KeyPath = ("deployments", deployment.name)
    yield from _check_target_prices_and_endpoints(deployment)
    yield from _find_rejection_for_missing_prices(path, deployment)
    yield from _check_partly_unused_targets((*path, "targets"), deployment)
    yield from _find_hedge_to_same_target((*path, "hedge"), deployment)
    if deployment.passthrough is not None:
        paths = deployment.passthrough.paths
        yield from _check_stored_data((*path, "passthrough"), deployment, snapshot, paths)
        yield from _check_leaked_credentials_and_bodies((*path, "passthrough"), deployment, paths)
        if not _has_only_free_targets(deployment):
            yield from _check_path_max_costs((*path, "passthrough"), deployment, paths)
    if (rule := find_target_overriding_rule(deployment)) is not None:
        message = f"are never used, because rule {rule} sets the targets of every call"
        yield (*path, "targets"), message


def _check_target_prices_and_endpoints(deployment: Deployment) -> Iterator[Finding]:
    """Yield targets without a known price, and targets whose ``endpoint`` their upstream lacks."""
    is_refused = deployment.refuse_unpriced
    effect = "it is never used" if is_refused else "the cost of its calls is unknown"
    for path, target in deployment.targets:
        missing, provider = target.describe_missing_price(), target.upstream.traits
        if missing is not None:
            message = f"model {quote(target.model)} has {missing}, so {effect}."
            yield path, f'{message} Add "price:" here.'
        if target.endpoint is not None and target.endpoint not in provider.endpoints:
            message = f"is not available at {provider.name}. Remove it to have calls translated to "
            yield (*path, "endpoint"), f"{message}chat."


def _find_rejection_for_missing_prices(path: KeyPath, deployment: Deployment) -> Iterator[Finding]:
    """Yield deployments that reject every call, because no target has a known price."""
    if any(target.describe_missing_price() is None for _, target in deployment.targets):
        return
    if deployment.refuse_unpriced:
        message = 'rejects every call, because no target has a known price. Add "price:" to one.'
        yield (*path, "unpriced"), message
    for cap in deployment.guards.cost_caps:
        if cap.fails_closed:
            message = f"have no known price, so guard {quote(cap.name)} blocks every call. "
            yield (*path, "targets"), f'{message}Add "price:" to a target.'


def _check_partly_unused_targets(path: KeyPath, deployment: Deployment) -> Iterator[Finding]:
    """Yield targets that not all calls for their models reach, and weights without effect."""
    routes = deployment.routes
    for target, names in iter_model_only_targets(routes, deployment.names):
        if target.model not in names:
            alias_names, index = " or ".join(sorted(names)), routes.targets.index(target)
            reason = f"because calls for {target.model} go to an earlier target"
            yield (
                (*path, index),
                f"is used only by calls for {alias_names}, {reason}. {UNREACHABLE_ADVICE}",
            )
    heaviest, *others_by_weight = routes.candidates.active_targets
    models = {heaviest.model, *(target.model for target in others_by_weight)}
    rule_models = {rule.model for rule in deployment.rules}
    if not routes.candidates.has_random_draw or not deployment.names.isdisjoint(
        rule_models | models
    ):
        return
    for index, target in enumerate(routes.targets):
        weights = deployment.get_candidates(target.model).weights
        if len(models) > 1 and len(weights) == 1 and target in others_by_weight:
            yield (
                (*path, index),
                f"is a target of calls for {quote(deployment.name)} and {quote(target.model)}, but "
                f"not of calls for {quote(heaviest.model)}. To split these by weight too, add "
                f'"also_known_as: [{heaviest.model}]" to deployment {quote(deployment.name)}.',
            )


def _find_hedge_to_same_target(path: KeyPath, deployment: Deployment) -> Iterator[Finding]:
    """Yield hedges that repeat the request to the same target although there are others."""
    candidates = deployment.routes.candidates
    has_other_target = (
        candidates.has_random_draw
        or candidates.is_balanced
        or deployment.fallback
        or any(rule.fallback or rule.routes for rule in deployment.rules)
    )
    if deployment.hedge_after is not None and not has_other_target and len(candidates.targets) > 1:
        yield (
            path,
            "repeats the request to the same target, because the targets have neither weights nor "
            "balance. Add a fallback.",
        )


def _check_stored_data(
    path: KeyPath, deployment: Deployment, snapshot: Snapshot, paths: Paths
) -> Iterator[Finding]:
    """Yield warnings about data that a provider stores for all users of its account."""
    stored = [p for p in paths if _accesses_stored_objects(p)]
    if not stored:
        return
    routes = _join_routes(stored)
    upstreams = _list_upstream_names(deployment)
    if len(upstreams) > 1:
        yield (
            path,
            f"data of {routes} is stored at one of the upstreams {', '.join(sorted(upstreams))}, "
            "and later calls may go to another one. Move these paths to a deployment with one "
            "upstream.",
        )
    accepted = [
        name.removeprefix("**.")
        for _, target in deployment.targets
        for name in target.upstream.accepts
    ]
    segments = {segment for p in stored for segment in p.route.split("/")}
    fields = {name for s in segments & REFERENCE_FIELDS.keys() for name in REFERENCE_FIELDS[s]}
    rejected = [name for name in sorted(fields) if not any(a.endswith(name) for a in accepted)]
    if rejected:
        yield (
            path,
            "stores data at the provider, but requests may not refer to it. If all keys that "
            "can use the upstream belong to one tenant, "
            f'add "accepts: [{", ".join(rejected)}]" to the upstream.',
        )
    keys = [
        key.name
        for key in snapshot.keys.values()
        if any(
            upstreams & _list_upstream_names(d.deployment)
            for d in key.deployments.values()
            if d.deployment.passthrough
            and any(map(_accesses_stored_objects, d.deployment.passthrough.paths))
        )
    ]
    if len(keys) > 1:
        yield (
            path,
            f"data of {routes} belongs to the provider account: {len(keys)} keys can read, use and "
            "delete each other's data. Give each tenant an upstream with its own credential. See "
            '"Other paths" in docs/policies.md.',
        )


def _check_leaked_credentials_and_bodies(
    path: KeyPath, deployment: Deployment, paths: Paths
) -> Iterator[Finding]:
    """Yield warnings about credentials in responses, and about bodies that cannot be inspected."""
    if deployment.only_passthrough is None and _has_only_free_targets(deployment):
        yield (
            path[:-1],
            "also serves chat calls, at a price of 0. If it is only for its passthrough paths, add "
            '"only_passthrough: true", otherwise "only_passthrough: false".',
        )
    posts = (p for p in paths if "POST" in p.methods)
    credentials = _join_routes(p for p in posts if CREDENTIAL_PATH.search(p.route))
    if credentials:
        yield (
            path,
            f"responses of {credentials} may contain credentials of the "
            "provider. Clients that have one bypass this proxy: its guards, limits and records. "
            "Remove these paths unless all their clients are trusted.",
        )
    guards = deployment.guards
    binary = _join_routes(p for p in paths if BINARY_SEGMENTS & {*p.route.split("/")})
    enforces = any(rule.enforces for rule in (*guards.input, *guards.output))
    if binary and enforces and not guards.allows_opaque:
        yield (
            path,
            f"rejects bodies at {binary} that are not JSON, because guards cannot inspect them. To "
            'forward them uninspected, add "opaque: allow" to the policy.',
        )
    undeclared = _join_routes(p for p in paths if p.fields is None and _uses_model(p))
    gateways = {t.upstream.name for _, t in deployment.targets if t.upstream.is_gateway}
    if undeclared and gateways:
        yield (
            path,
            f'forwards only the field "model" of bodies at {undeclared}, '
            f"because its targets include gateways ({', '.join(sorted(gateways))}). List the "
            'fields that clients may set under "fields" of each path.',
        )


def _check_path_max_costs(path: KeyPath, deployment: Deployment, paths: Paths) -> Iterator[Finding]:
    """Yield paths that exceed a limit in USD, or have no maximum cost under such a limit."""
    scoped = deployment.scoped_limits
    limits = {s.name: s.limit for s in scoped if s.limit.is_budget and not s.limit.shadow}
    budgets = dict(sorted(limits.items()))
    for name, limit in budgets.items():
        if routes := _join_routes(p for p in paths if (p.max_cost or 0) > limit.capacity):
            message = f"most_usd of {routes} exceeds limit {quote(name)}"
            yield path, f"{message}, so every call is rejected"
    routes = _join_routes(p for p in paths if p.max_cost is None and _uses_model(p))
    if routes and budgets:
        yield (
            path,
            f"has paths without most_usd: {routes}. Concurrent calls may together spend more than "
            f"is left of {', '.join(budgets)}. Add most_usd, the maximum cost of one call.",
        )


def _join_routes(paths: Iterable[PassthroughPath]) -> str:
    """Return the routes of paths, each once."""
    return ", ".join(dict.fromkeys(path.route for path in paths))


def _list_upstream_names(deployment: Deployment) -> set[str]:
    return {target.upstream.name for _, target in deployment.targets}


def _has_only_free_targets(deployment: Deployment) -> bool:
    return all(target.costs_nothing for _, target in deployment.targets)


def _accesses_stored_objects(path: PassthroughPath) -> bool:
    return bool(path.parameter_names) or not STORED_SEGMENTS.isdisjoint(path.route.split("/"))


def _uses_model(path: PassthroughPath) -> bool:
    return not path.methods <= MODEL_FREE_METHODS
