"""What is allowed in rules but was hardly meant: rules that nothing reaches, and what they hide."""

from __future__ import annotations

from collections.abc import Iterator

from proxy.policy.decide.conditions import ALWAYS
from proxy.policy.decide.rules import PolicyRules, Rule
from proxy.policy.decide.snapshot import Deployment, Snapshot
from proxy.policy.files.source import Finding
from proxy.policy.review.implication import covers


def findings(
    snapshot: Snapshot, policies: dict[str, PolicyRules], declared: set[str]
) -> Iterator[Finding]:
    """Yield what is doubtful. ``policies`` are those that a deployment follows, ``declared`` the
    names of all."""
    for name in sorted(declared - policies.keys()):
        yield ("policies", name), "is followed by no deployment"
    for section in policies.values():
        for index, rule in enumerate(section.rules):
            yield from ((rule.path, why) for why in _hidden(section, index, rule))
            yield from _never(snapshot, section, rule)


def _hidden(section: PolicyRules, index: int, rule: Rule) -> Iterator[str]:
    """Yield the rules that never count, as an earlier rule takes all their calls."""
    for earlier in section.rules[:index]:
        if earlier.shadow or not covers(earlier.when, rule.when):
            continue
        if section.first:
            yield f"is never reached: {earlier.name} holds for all of its calls"
            return
        if earlier.refusal is not None:
            yield f"is without effect: {earlier.name} refuses all of its calls"
            return
        if earlier.routes is not None and rule.routes is not None:
            yield f"its targets are never used: {earlier.name} picks those of all of its calls"
        if earlier.model is not None and rule.model is not None:
            yield f"its model never counts: {earlier.name} names that of all of its calls"


def _never(snapshot: Snapshot, section: PolicyRules, rule: Rule) -> Iterator[Finding]:
    followers = [d for d in snapshot.deployments.values() if section in d.sections]
    reaches = [
        reach
        for key in snapshot.keys.values()
        for reach in key.deployments.values()
        if reach.deployment in followers
    ]
    groups = [group for reach in reaches if reach.chain for group in reach.chain.groups]
    left = {each.name for group in groups for _, each in group.tests}
    if reaches and rule.name not in left and not any(_hidden_in(section, rule)):
        yield rule.path, "never holds: no key and tags that reach it are as it says"
    if rule.model is not None and not any(_serves(each, rule.model) for each in followers):
        yield (*rule.path, "model"), f"no deployment that follows it serves {rule.model}"


def _hidden_in(section: PolicyRules, rule: Rule) -> Iterator[str]:
    yield from _hidden(section, section.rules.index(rule), rule)


def _serves(deployment: Deployment, model: str) -> bool:
    """True if a target is found by the name. That of the deployment leaves it to the weights."""
    if model in deployment.names:
        return True
    picked = (rule.routes for rule in deployment.rules if rule.routes is not None)
    return any(model in routes.serves for routes in (deployment.routes, *picked))


def overridden(deployment: Deployment) -> str | None:
    """Name the rule that picks other targets for every call of a deployment."""
    for section in deployment.sections:
        for rule in section.rules:
            if rule.shadow:
                continue
            if rule.when == ALWAYS and rule.routes is not None:
                return rule.name
            if section.first:  # whatever this one holds for never gets to the next
                break
    return None
