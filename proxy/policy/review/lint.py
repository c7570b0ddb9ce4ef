"""Warnings of ``headrace check``: valid policies that are probably a mistake."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from urllib.parse import urlsplit

from proxy.dialects import DIALECTS
from proxy.policy import schema
from proxy.policy.compile.cache import embedding_deployments
from proxy.policy.compile.limits import written
from proxy.policy.compile.routes import REMEDY, named_targets
from proxy.policy.compile.upstreams import gateway_sign
from proxy.policy.decide.snapshot import Deployment, Snapshot, VirtualKey
from proxy.policy.files.load import Loaded
from proxy.policy.files.source import Finding, Path_, Problem, problem_at
from proxy.policy.review import lint_guards, lint_keys, lint_limits, lint_passed, lint_rules
from proxy.types.providers import ENDPOINTS, OPENAI, PROVIDERS
from proxy.words import quoted

ROUTES = sorted(
    {path for each in DIALECTS.values() for path in each.server.paths.values()},
    key=lambda path: (-len(path), path),
)
"""Paths that are appended to a base URL, longest first."""


HOSTS = {
    urlsplit(each.base_url).hostname: each.name
    for each in PROVIDERS.values()
    if each.base_url and each.dialect == OPENAI.dialect
    if not each.is_plain or each.endpoints != ENDPOINTS
}
"""Providers that differ from OpenAI, by their hosts."""


def warnings(loaded: Loaded, snapshot: Snapshot, now: datetime) -> list[Problem]:
    """Return the warnings at a time, in the order of the files.

    Raises:
        PolicyError: A lint failed unexpectedly. The problem names the part that it inspected.
    """
    policies, document = loaded.policies, loaded.document
    problems: set[Problem] = set()
    for path, findings in _lints(policies, snapshot, now):
        with document.located(path):
            problems.update(problem_at(document.place(at), at, text) for at, text in findings)
    return sorted(problems)


def _lints(
    policies: schema.PoliciesConfig, snapshot: Snapshot, now: datetime
) -> Iterator[tuple[Path_, Iterable[Finding]]]:
    """Yield the findings of each lint, with the part of the policies that it inspects."""
    yield ("upstreams",), _upstreams(policies)
    yield ("deployments",), _uncalled(policies, snapshot)
    for name, deployment in snapshot.deployments.items():
        yield ("deployments", name), _deployment(("deployments", name), deployment, snapshot)
    yield ("tags",), _tags(policies)
    for key in snapshot.keys.values():
        yield ("keys", key.name), _names(key)
    yield ("keys",), lint_keys.findings(policies, snapshot, now)
    yield ("policies",), _within_keys(policies)
    yield ("policies",), lint_limits.findings(snapshot, now)
    yield ("policies",), lint_guards.findings(policies, snapshot)
    followed = {s.policy: s for d in snapshot.deployments.values() for s in d.sections}
    yield ("policies",), lint_rules.findings(snapshot, followed, _with_rules(policies))


def _upstreams(policies: schema.PoliciesConfig) -> Iterator[Finding]:
    deployments = policies.deployments.values()
    rules = [rule for policy in policies.policies.values() for rule in policy.rules]
    used = {t.upstream for each in deployments for t in (*each.targets, *each.fallback)}
    used |= {t.upstream for rule in rules for t in (*(rule.targets or ()), *(rule.fallback or ()))}
    used |= lint_guards.endpoints(policies)
    for name, upstream in policies.upstreams.items():
        path: Path_ = ("upstreams", name)
        if name not in used:
            yield path, "is not used by any deployment or rule. Use it in a target, or remove it."
        if upstream.api_key and lint_guards.clear(upstream.base_url):
            message = "does not use https: the API key and all prompts are sent unencrypted"
            yield (*path, "base_url"), message
        if (route := _route_of(upstream)) is not None:
            base = upstream.base_url.rstrip("/").removesuffix(route)
            message = f"ends with {route}, which Headrace appends to it. Use {base}."
            yield (*path, "base_url"), message
        known = HOSTS.get(urlsplit(upstream.base_url).hostname)
        if known is not None and upstream.provider is None and upstream.spoken == OPENAI.dialect:
            yield path, f'lacks some features of OpenAI. Add "provider: {known}".'
        headers = {header.lower() for header in upstream.headers}
        for header in DIALECTS[upstream.spoken].server.required_headers:
            if header not in headers:
                whose = upstream.dialect.capitalize()
                yield path, f'has no header "{header}" under "headers:". {whose} requires it.'


def gateway_notes(policies: schema.PoliciesConfig) -> Iterator[str]:
    """Yield a note on each upstream that is a gateway."""
    for name, upstream in policies.upstreams.items():
        if (sign := gateway_sign(upstream)) is not None:
            yield (
                f"upstreams.{name}: is a gateway ({sign}). Clients can set only the request fields "
                'of its API and those under "accepts"; others are dropped, and so is "metadata".'
            )


def _route_of(upstream: schema.UpstreamConfig) -> str | None:
    """Return the path at the end of a base URL that requests append again."""
    base = upstream.base_url.rstrip("/")
    return next((route for route in ROUTES if base.endswith(route)), None)


def _uncalled(policies: schema.PoliciesConfig, snapshot: Snapshot) -> Iterator[Finding]:
    reached = {name for key in snapshot.keys.values() for name in key.deployments}
    reached |= lint_guards.asked(policies) | {name for _, name in embedding_deployments(policies)}
    for name in snapshot.deployments.keys() - reached:
        yield ("deployments", name), "cannot be called: no key lists it under deployments"


def _deployment(path: Path_, deployment: Deployment, snapshot: Snapshot) -> Iterator[Finding]:
    yield from _unpriced(deployment)
    yield from _without_endpoint(deployment)
    yield from _unserved(path, deployment)
    yield from _hidden((*path, "targets"), deployment)
    yield from _split((*path, "targets"), deployment)
    yield from _hedged((*path, "hedge"), deployment)
    yield from lint_passed.findings((*path, "passthrough"), deployment, snapshot)
    if (rule := lint_rules.overridden(deployment)) is not None:
        yield (
            (*path, "targets"),
            f"are never used, because rule {rule} sets the targets of every call",
        )


def _within_keys(policies: schema.PoliciesConfig) -> Iterator[Finding]:
    """Yield limits per tag that keys do not share, because clients may also set the tag."""
    tagged = [each.tags for each in policies.deployments.values()]
    tagged += [each.tags for each in policies.keys.values()]
    callers_tags = {f"tag.{tag}" for tags in tagged for tag in tags if policies.tags[tag].caller}
    for path, limit in written(policies):
        mixed = [per for per in limit.per if per in callers_tags]
        if mixed and "key" not in limit.per and limit.across is None:
            name = mixed[0]
            yield (
                (*path, "per"),
                f"each key has its own counter, because clients may set {name}. For one counter, "
                'add "across: keys", or remove "caller: true" from the tag.',
            )


def _with_rules(policies: schema.PoliciesConfig) -> set[str]:
    """Return the names of policies that have rules and that no policy extends."""
    extended = {base for each in policies.policies.values() for base in each.extends}
    return {n for n, each in policies.policies.items() if each.rules and n not in extended}


def _unpriced(deployment: Deployment) -> Iterator[Finding]:
    never = deployment.refuse_unpriced
    so = "it is never used" if never else "the cost of its calls is unknown"
    for path, target in deployment.targets:
        lack = target.lack_of_price()
        if lack is not None:
            yield path, f'model {quoted(target.model)} has {lack}, so {so}. Add "price:" here.'


def _without_endpoint(deployment: Deployment) -> Iterator[Finding]:
    for path, target in deployment.targets:
        traits = target.upstream.traits
        if target.endpoint is not None and target.endpoint not in traits.endpoints:
            message = (
                f"is not available at {traits.name}. Remove it to have calls translated to chat."
            )
            yield (*path, "endpoint"), message


def _unserved(path: Path_, deployment: Deployment) -> Iterator[Finding]:
    """Yield deployments that reject every call, because their prices are unknown."""
    if any(target.lack_of_price() is None for _, target in deployment.targets):
        return
    if deployment.refuse_unpriced:
        message = 'rejects every call, because no target has a known price. Add "price:" to one.'
        yield (*path, "unpriced"), message
    for guard in deployment.guards.ceilings:
        if guard.strict:
            message = f"have no known price, so guard {quoted(guard.name)} blocks every call. "
            yield (*path, "targets"), f'{message}Add "price:" to a target.'


def _hidden(path: Path_, deployment: Deployment) -> Iterator[Finding]:
    for target, names in named_targets(deployment.routes, deployment.names):
        if target.model not in names:
            others, index = " or ".join(sorted(names)), deployment.routes.targets.index(target)
            why = f"because calls for {target.model} go to an earlier target"
            yield (*path, index), f"is used only by calls for {others}, {why}. {REMEDY}"


def _split(path: Path_, deployment: Deployment) -> Iterator[Finding]:
    """Yield weights that do not distribute calls, because each model has only one target."""
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
                f"receives calls for {quoted(deployment.name)} and {quoted(target.model)}, but not "
                f"for {quoted(heaviest.model)}. To split those by weight too, add "
                f'"also_known_as: [{heaviest.model}]" to deployment {quoted(deployment.name)}.',
            )


def _hedged(path: Path_, deployment: Deployment) -> Iterator[Finding]:
    """Yield hedges that repeat the request to the same target although there are others."""
    candidates = deployment.routes.candidates
    ruled = any(rule.fallback or rule.routes for rule in deployment.rules)
    fallback = deployment.fallback or ruled
    alone = not (candidates.drawn or candidates.balanced or fallback)
    if deployment.hedge_after is not None and alone and len(candidates.targets) > 1:
        yield (
            path,
            "repeats the request to the same target, because the targets have neither weights nor "
            "balance. Add a fallback.",
        )


def _tags(policies: schema.PoliciesConfig) -> Iterator[Finding]:
    by_deployments = {tag for each in policies.deployments.values() for tag in each.tags}
    used = by_deployments | {tag for each in policies.keys.values() for tag in each.tags}
    for name, tag in policies.tags.items():
        if name not in used and not tag.caller:
            message = "is never set: no deployment or key sets it, and clients may not set it. "
            yield ("tags", name), f'{message}Remove it, or add "caller: true".'


def _names(key: VirtualKey) -> Iterator[Finding]:
    """Yield the models for which calls with this key must select a deployment."""
    for name, reached in key.named.items():
        if key.default_of(reached) is None and "/" not in name:
            which = ", ".join(sorted(each.deployment.name for each in reached))
            message = f"model {quoted(name)} is served by deployments {which}. Calls for it must "
            message += "select one with the header x-headrace-deployment."
            yield ("keys", key.name, "deployments"), message
