"""Warnings about passthrough paths: shared data, unlimited cost, uninspected bodies."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from proxy.policy.decide.snapshot import Deployment, Snapshot
from proxy.policy.files.source import Finding, Path_
from proxy.types.limit import Limit
from proxy.types.passthrough import PassedPath, PassedPaths
from proxy.types.way import USES_NOTHING
from proxy.words import quoted

STORED = frozenset(
    {"assistants", "batches", "containers", "conversations", "evals", "files", "fine_tuning"}
    | {"responses", "skills", "threads", "uploads", "vector_stores", "videos"}
)
"""Parts of paths under which providers keep what they are sent."""
IDS: Mapping[str, tuple[str, ...]] = {
    "containers": ("container.id", "container_id"),
    "files": ("file_id",),
    "skills": ("skill_id",),
    "uploads": ("file_id",),
    "vector_stores": ("vector_store_ids",),
}
"""Request fields that refer to what is stored under a part of a path."""
CREDENTIALS = re.compile(r"/(?!count_)[a-z_]*(?:credential|key|secret|session|token)s(?:/|$)")
"""Paths of which a response is a credential of the provider, such as those of realtime clients."""
FORMS = frozenset({"audio", "content", "edits", "files", "uploads", "variations", "videos"})
"""Parts of paths that take forms with files, or give sounds, pictures and files."""


def findings(path: Path_, deployment: Deployment, snapshot: Snapshot) -> Iterator[Finding]:
    """Yield the warnings about the paths of one deployment."""
    if deployment.passthrough is None:
        return
    if deployment.only_passthrough is None and is_free(deployment):
        yield (
            path[:-1],
            "also serves chat calls, at a price of 0. If it is only for its paths, add "
            '"only_passthrough: true", otherwise "only_passthrough: false".',
        )
    stored = [each for each in deployment.passthrough.paths if is_stored(each)]
    routes = routes_that(is_stored, deployment.passthrough)
    upstreams = {target.upstream.name for _, target in deployment.targets}
    if stored and len(upstreams) > 1:
        yield (
            path,
            f"data of {routes} is stored at one of the upstreams {', '.join(sorted(upstreams))}, "
            "and later calls may go to another one. Move these paths to a deployment with one "
            "upstream.",
        )
    yield from of_ids(path, deployment, stored)
    if minting := routes_that(is_minting, deployment.passthrough):
        yield (
            path,
            f"responses of {minting} may contain credentials of the "
            "provider. Clients that have one bypass this proxy: its guards, limits and records. "
            "Remove these paths unless all their clients are trusted.",
        )
    keys = sharing(deployment, snapshot) if stored else []
    if len(keys) > 1:
        yield (
            path,
            f"data of {routes} belongs to the provider account: {len(keys)} keys can read, use and "
            "delete each other's data. Give each tenant an upstream with its own credential. See "
            '"Other paths" in docs/policies.md.',
        )
    rules = deployment.guards
    acts = any(rule.enforces for rule in (*rules.input, *rules.output))
    unread = routes_that(is_unread, deployment.passthrough)
    if unread and acts and not rules.opaque:
        yield (
            path,
            f"rejects bodies at {unread} that are not JSON, because guards cannot inspect them. To "
            'forward them uninspected, add "opaque: allow" to the policy.',
        )
    undeclared = routes_that(is_undeclared, deployment.passthrough)
    gateways = {t.upstream.name for _, t in deployment.targets if t.upstream.is_gateway}
    if undeclared and gateways:
        yield (
            path,
            f"sends only the field model of bodies at {undeclared}, "
            f"because its targets include gateways ({', '.join(sorted(gateways))}). List the "
            'fields that clients may set under "fields" of each path.',
        )
    yield from of_money(path, deployment, deployment.passthrough)


def is_undeclared(path: PassedPath) -> bool:
    """Return True if requests to a path may have a body of which no fields are declared."""
    return path.fields is None and not path.methods <= USES_NOTHING


def of_ids(path: Path_, deployment: Deployment, stored: list[PassedPath]) -> Iterator[Finding]:
    """Yield a warning if requests may not refer to what these paths store."""
    accepted = {
        name.removeprefix("**.")
        for _, target in deployment.targets
        for name in target.upstream.accepts
    }
    parts = {part for each in stored for part in each.route.split("/")}
    names = {name for part in parts & IDS.keys() for name in IDS[part]}
    refused = [name for name in sorted(names) if not any(each.endswith(name) for each in accepted)]
    if refused:
        yield (
            path,
            "stores data of the provider account, to which requests may not refer. If all keys "
            f'belong to one tenant, add "accepts: [{", ".join(refused)}]" to the upstream.',
        )


def routes_that(applies: Callable[[PassedPath], bool], passed: PassedPaths) -> str:
    """Return the routes to which a condition applies, each once."""
    return ", ".join(dict.fromkeys(each.route for each in passed.paths if applies(each)))


def is_minting(path: PassedPath) -> bool:
    """Return True if a response of a path may be a credential."""
    return "POST" in path.methods and CREDENTIALS.search(path.route) is not None


def of_money(path: Path_, deployment: Deployment, passed: PassedPaths) -> Iterator[Finding]:
    """Yield the warnings about the cost of paths, under the limits of their deployment."""
    if is_free(deployment):
        return
    limits = dict(sorted(budgets_of(deployment).items()))
    for name, limit in limits.items():
        if too_dear := routes_that(partial(is_above, limit), passed):
            yield (
                path,
                f"most_usd of {too_dear} exceeds limit {quoted(name)}, so every call is rejected",
            )
    unbounded = routes_that(is_unbounded, passed)
    if unbounded and limits:
        yield (
            path,
            f"{unbounded} has no most_usd. Concurrent calls may together spend more than is left "
            f"of {', '.join(limits)}. Add most_usd, the maximum cost of one call.",
        )


def budgets_of(deployment: Deployment) -> dict[str, Limit]:
    """Return the limits of money that calls of a deployment may have to keep to, by name."""
    bounds = [*deployment.bounds, *(each for rule in deployment.rules for each in rule.bounds)]
    limits = [each.limit for each in bounds]
    return {each.name: each for each in limits if each.is_budget and not each.shadow}


def is_above(limit: Limit, path: PassedPath) -> bool:
    """True if a limit refuses each call to a path, whatever else was used."""
    return path.most_cost is not None and path.most_cost > limit.capacity


def is_free(deployment: Deployment) -> bool:
    """True if nothing that the targets of a deployment do costs anything."""
    return all(target.is_free for _, target in deployment.targets)


def is_unbounded(path: PassedPath) -> bool:
    """True if nobody says what a call to a path may cost, which may cost something."""
    return path.most_cost is None and not path.methods <= USES_NOTHING


def is_unread(path: PassedPath) -> bool:
    """True if what goes to a path, or comes from it, is known to be no JSON."""
    return not FORMS.isdisjoint(path.route.split("/"))


def is_stored(path: PassedPath) -> bool:
    """True if a path leads to what a provider keeps."""
    return bool(path.names) or not STORED.isdisjoint(path.route.split("/"))


def sharing(deployment: Deployment, snapshot: Snapshot) -> list[str]:
    """Return the keys that reach the same upstreams by paths that lead to what is kept."""
    upstreams = {target.upstream.name for _, target in deployment.targets}
    found: list[str] = []
    for key in snapshot.keys.values():
        for reach in key.deployments.values():
            paths = reach.deployment.passthrough
            if paths is None or not any(map(is_stored, paths.paths)):
                continue
            if upstreams & {target.upstream.name for _, target in reach.deployment.targets}:
                found.append(key.name)
                break
    return found
