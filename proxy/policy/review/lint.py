"""What is allowed in a folder of policies but was hardly meant: told by ``headrace check``.

Each finding is a sentence about one place. None of them keeps a folder from coming into force.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from proxy.dialects import DIALECTS
from proxy.policy import schema
from proxy.policy.compile.limits import written
from proxy.policy.compile.routes import REMEDY, named_targets
from proxy.policy.decide.snapshot import Deployment, Snapshot, VirtualKey
from proxy.policy.files.load import Loaded
from proxy.policy.files.source import Finding, Path_, Problem, problem_at
from proxy.policy.review import lint_guards, lint_keys, lint_limits, lint_passed, lint_rules

ROUTES = sorted(
    {path for each in DIALECTS.values() for path in each.server.paths.values()},
    key=lambda path: (-len(path), path),
)
"""What is put after an address: the longer before those that they end in."""


def warnings(loaded: Loaded, snapshot: Snapshot, now: datetime) -> list[Problem]:
    """Return what is doubtful at a moment, in the order in which it is written."""
    policies = loaded.policies
    found = [*_upstreams(policies), *_deployments(policies, snapshot), *_tags(policies)]
    for key in snapshot.keys.values():
        found += _names(key)
    found += lint_limits.findings(snapshot, now)
    found += _within_keys(policies)
    found += lint_keys.findings(policies, snapshot, now)
    found += lint_guards.findings(loaded.policies, snapshot)
    followed = {s.policy: s for d in snapshot.deployments.values() for s in d.sections}
    found += lint_rules.findings(snapshot, followed, _with_rules(loaded.policies))
    document = loaded.document
    problems = {problem_at(document.place(path), path, message) for path, message in found}
    return sorted(problems)


def _upstreams(policies: schema.PoliciesConfig) -> Iterator[Finding]:
    deployments = policies.deployments.values()
    rules = [rule for policy in policies.policies.values() for rule in policy.rules]
    used = {t.upstream for each in deployments for t in (*each.targets, *each.fallback)}
    used |= {t.upstream for rule in rules for t in (*(rule.targets or ()), *(rule.fallback or ()))}
    used |= lint_guards.endpoints(policies)
    for name, upstream in policies.upstreams.items():
        path: Path_ = ("upstreams", name)
        if name not in used:
            yield path, "is used by no deployment and no rule"
        if upstream.api_key and lint_guards.clear(upstream.base_url):
            yield (*path, "base_url"), "is not https: the key and all texts go in the clear"
        if (route := _route_of(upstream)) is not None:
            base = upstream.base_url.rstrip("/").removesuffix(route)
            message = f"ends in the route {route}, which is put after it once more: write {base}"
            yield (*path, "base_url"), message
        headers = {header.lower() for header in upstream.headers}
        for header in DIALECTS[upstream.spoken].server.required_headers:
            if header not in headers:
                whose = upstream.dialect.capitalize()
                yield path, f"has no {header} under headers, which {whose} requires"


def _route_of(upstream: schema.UpstreamConfig) -> str | None:
    """Return the route that an address ends in, where requests get it besides."""
    base = upstream.base_url.rstrip("/")
    return next((route for route in ROUTES if base.endswith(route)), None)


def _deployments(policies: schema.PoliciesConfig, snapshot: Snapshot) -> Iterator[Finding]:
    reached = {name for key in snapshot.keys.values() for name in key.deployments}
    reached |= lint_guards.asked(policies)
    for name, deployment in snapshot.deployments.items():
        path: Path_ = ("deployments", name)
        if name not in reached:
            yield path, "is reached by no key"
        yield from _unpriced(deployment)
        yield from _unserved(path, deployment)
        yield from _hidden((*path, "targets"), deployment)
        yield from _split((*path, "targets"), deployment)
        yield from _hedged((*path, "hedge"), deployment)
        yield from lint_passed.findings((*path, "passthrough"), deployment, snapshot)
        if (rule := lint_rules.overridden(deployment)) is not None:
            yield (*path, "targets"), f"are never used: {rule} picks those of every call"


def _within_keys(policies: schema.PoliciesConfig) -> Iterator[Finding]:
    """Yield the limits per a tag that policies set, and that keys do not share as callers may set
    it too."""
    tagged = [each.tags for each in policies.deployments.values()]
    tagged += [each.tags for each in policies.keys.values()]
    callers_tags = {f"tag.{tag}" for tags in tagged for tag in tags if policies.tags[tag].caller}
    for path, limit in written(policies):
        mixed = [per for per in limit.per if per in callers_tags]
        if mixed and "key" not in limit.per and limit.across is None:
            name = mixed[0]
            yield (
                (*path, "per"),
                f"each key has a counter of its own, as callers may set {name} too: say "
                "across: keys for one of all keys, or take caller: true from the tag",
            )


def _with_rules(policies: schema.PoliciesConfig) -> set[str]:
    """Name the policies that have rules, and are not there for others to extend alone."""
    extended = {base for each in policies.policies.values() for base in each.extends}
    return {n for n, each in policies.policies.items() if each.rules and n not in extended}


def _unpriced(deployment: Deployment) -> Iterator[Finding]:
    never = deployment.refuse_unpriced
    so = "it is never asked" if never else "what its calls cost is unknown"
    for path, target in deployment.targets:
        lack = target.lack_of_price()
        if lack is not None:
            yield path, f"{target.model} has {lack}: {so}"


def _unserved(path: Path_, deployment: Deployment) -> Iterator[Finding]:
    """Yield the deployments that can serve nothing, as the prices they need are unknown."""
    if any(target.lack_of_price() is None for _, target in deployment.targets):
        return
    if deployment.refuse_unpriced:
        yield (*path, "unpriced"), "refuses every call: no target has a known price"
    for guard in deployment.guards.ceilings:
        if guard.strict:
            message = f"have no known price: {guard.name} blocks every call, as it cannot tell"
            yield (*path, "targets"), message


def _hidden(path: Path_, deployment: Deployment) -> Iterator[Finding]:
    for target, names in named_targets(deployment.routes, deployment.names):
        if target.model not in names:
            others, index = " or ".join(sorted(names)), deployment.routes.targets.index(target)
            why = f"as calls for {target.model} go to an earlier target"
            yield (*path, index), f"is used only by calls for {others}, {why}: {REMEDY}"


def _split(path: Path_, deployment: Deployment) -> Iterator[Finding]:
    """Yield the weights that do not divide calls: each model has one target, and a call for one
    never reaches another."""
    routes = deployment.routes
    heaviest, *others = routes.candidates.active
    models = {heaviest.model, *(target.model for target in others)}
    named = {rule.model for rule in deployment.rules}
    if not routes.candidates.drawn or not deployment.names.isdisjoint(named | models):
        return
    for index, target in enumerate(routes.targets):
        weights = deployment.candidates(target.model).weights
        if len(models) > 1 and len(weights) == 1 and target in others:
            yield (
                (*path, index),
                f"gets no call that names another model than {target.model}: its weight counts "
                "for calls that name the deployment, or whose model a rule calls "
                f"{deployment.name} (docs/policies.md, A canary of another model)",
            )


def _hedged(path: Path_, deployment: Deployment) -> Iterator[Finding]:
    """Yield each hedge that asks the slow target again although there are others."""
    candidates = deployment.routes.candidates
    ruled = any(rule.fallback or rule.routes for rule in deployment.rules)
    fallback = deployment.fallback or ruled
    alone = not (candidates.drawn or candidates.balanced or fallback)
    if deployment.hedge_after is not None and alone and len(candidates.targets) > 1:
        yield (
            path,
            "asks the same target again: without weights or balance no other of its targets "
            "follows the first; say a fallback",
        )


def _tags(policies: schema.PoliciesConfig) -> Iterator[Finding]:
    by_deployments = {tag for each in policies.deployments.values() for tag in each.tags}
    used = by_deployments | {tag for each in policies.keys.values() for tag in each.tags}
    for name, tag in policies.tags.items():
        if name not in used and not tag.caller:
            yield ("tags", name), "is set by no deployment and no key, and callers may not set it"


def _names(key: VirtualKey) -> Iterator[Finding]:
    """Yield the models for which a call with this key must name a deployment."""
    for name, reached in key.named.items():
        if key.default_of(reached) is None and "/" not in name:
            which = ", ".join(sorted(each.deployment.name for each in reached))
            message = f"{name} is served by {which}: a call for it must name one of them"
            yield ("keys", key.name, "deployments"), message
