"""Warnings about rules that never apply or have no effect."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from proxy.policy.decide.conditions import ALWAYS
from proxy.policy.decide.rules import PolicyRules, Rule
from proxy.policy.decide.snapshot import Deployment, Snapshot
from proxy.policy.files.source import Finding
from proxy.policy.review.implication import covers
from proxy.words import quoted


def findings(
    snapshot: Snapshot, policies: dict[str, PolicyRules], declared: set[str]
) -> Iterator[Finding]:
    """Yield the warnings. ``policies`` are those that deployments use, ``declared`` the names of
    all policies."""
    for name in sorted(declared - policies.keys()):
        message = 'is not used by any deployment. Set it under "policy:" there, or remove it.'
        yield ("policies", name), message
    deployments: dict[str, list[Deployment]] = {}
    for deployment in snapshot.deployments.values():
        for section in deployment.sections:
            deployments.setdefault(section.policy, []).append(deployment)
    reaches = [reach for key in snapshot.keys.values() for reach in key.deployments.values()]
    called = {section.policy for reach in reaches for section in reach.deployment.sections}
    applied = {name for reach in reaches if reach.chain for name in reach.chain.rules}
    for section in policies.values():
        for index, rule in enumerate(section.rules):
            hidden = list(_hidden(section, index, rule))
            yield from ((rule.path, reason) for reason in hidden)
            if section.policy in called and rule.name not in applied and not hidden:
                message = "never applies: no key or tag that reaches it matches its condition"
                yield rule.path, message
            yield from _unserved(deployments[section.policy], rule)


def _hidden(section: PolicyRules, index: int, rule: Rule) -> Iterator[str]:
    """Yield why a rule never applies, because an earlier rule matches all its calls."""
    for earlier in section.rules[:index]:
        if earlier.shadow or not covers(earlier.when, rule.when):
            continue
        if section.first:
            yield f"never applies, because rule {earlier.name} matches all of its calls first"
            return
        if earlier.refusal is not None:
            yield f"has no effect, because rule {earlier.name} rejects all of its calls"
            return
        if earlier.routes is not None and rule.routes is not None:
            yield f"its targets have no effect: rule {earlier.name} sets those of all its calls"
        if earlier.model is not None and rule.model is not None:
            yield f"its model has no effect: rule {earlier.name} sets that of all its calls"


def _unserved(deployments: Iterable[Deployment], rule: Rule) -> Iterator[Finding]:
    if rule.model is not None and not any(_serves(each, rule.model) for each in deployments):
        message = f"no deployment of this policy serves model {quoted(rule.model)}"
        yield (*rule.path, "model"), message


def _serves(deployment: Deployment, model: str) -> bool:
    """Return True if the name selects a target. Names of the deployment always do."""
    if model in deployment.names:
        return True
    picked = (rule.routes for rule in deployment.rules if rule.routes is not None)
    return any(model in routes.serves for routes in (deployment.routes, *picked))


def overridden(deployment: Deployment) -> str | None:
    """Return the name of a rule that sets the targets of every call of a deployment."""
    for section in deployment.sections:
        for rule in section.rules:
            if rule.shadow:
                continue
            if rule.when == ALWAYS and rule.routes is not None:
                return rule.name
            if section.first:  # whatever this one holds for never gets to the next
                break
    return None
