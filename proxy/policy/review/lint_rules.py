"""Warnings about rules that never apply or have no effect.

A rule is hidden if an earlier condition is proven to match all of its calls. The proof compares how
conditions are written, so it may miss hidden rules, but never reports a reachable one.
"""

from __future__ import annotations

from collections.abc import Iterator

from proxy.errors.words import quoted
from proxy.policy import schema
from proxy.policy.decide.conditions import (
    ALWAYS,
    All,
    AtLeastOne,
    Both,
    Compare,
    Condition,
    Not,
    OneOf,
    Values,
)
from proxy.policy.decide.rules import PolicyRules, Rule
from proxy.policy.decide.snapshot import Deployment, Snapshot
from proxy.policy.files.source import Finding
from proxy.policy.schema.tags import Glob


def findings(snapshot: Snapshot) -> Iterator[Finding]:
    sections: dict[str, PolicyRules] = {}
    deployments: dict[str, list[Deployment]] = {}
    for deployment in snapshot.deployments.values():
        for section in deployment.sections:
            sections[section.policy] = section
            deployments.setdefault(section.policy, []).append(deployment)
    reaches = [reach for key in snapshot.keys.values() for reach in key.deployments.values()]
    called = {section.policy for reach in reaches for section in reach.deployment.sections}
    applicable = {name for reach in reaches if reach.chain for name in reach.chain.rules}
    for section in sections.values():
        for index, rule in enumerate(section.rules):
            reasons = list(_hidden(section, index, rule))
            yield from ((rule.path, reason) for reason in reasons)
            if section.policy in called and rule.name not in applicable and not reasons:
                message = "never applies: no key or tag that reaches it matches its condition"
                yield rule.path, message
            model = rule.model
            if model is not None and not any(
                _serves(deployment, model) for deployment in deployments[section.policy]
            ):
                message = f"no deployment of this policy serves model {quoted(model)}"
                yield (*rule.path, "model"), message


def unused_policies(policies: schema.PoliciesConfig, snapshot: Snapshot) -> Iterator[Finding]:
    sections = (s for deployment in snapshot.deployments.values() for s in deployment.sections)
    used = {base for policy in policies.policies.values() for base in policy.extends}
    used |= {section.policy for section in sections}
    for name, policy in policies.policies.items():
        if policy.rules and name not in used:
            message = 'is not used by any deployment. Set it under "policy:" there, or remove it.'
            yield ("policies", name), message


def _hidden(section: PolicyRules, index: int, rule: Rule) -> Iterator[str]:
    """Yield the reasons why a rule never applies or has no effect, given the earlier rules."""
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


def _serves(deployment: Deployment, model: str) -> bool:
    """Return True if the name is one of the deployment, or selects one of its targets."""
    rule_routes = (rule.routes for rule in deployment.rules if rule.routes is not None)
    return model in deployment.names or any(
        model in routes.serves for routes in (deployment.routes, *rule_routes)
    )


def overriding_rule(deployment: Deployment) -> str | None:
    """Return the name of a rule that sets the targets of every call of a deployment."""
    for section in deployment.sections:
        for rule in section.rules:
            if rule.shadow:
                continue
            if rule.when == ALWAYS and rule.routes is not None:
                return rule.name
            if section.first:  # the calls of this rule do not reach the next one
                break
    return None


def covers(wide: Condition, narrow: Condition) -> bool:
    """Return True if ``wide`` is proven to match every call that ``narrow`` matches."""
    if wide == narrow:
        return True
    if isinstance(wide, All):
        return all(covers(part, narrow) for part in wide.parts)
    if isinstance(narrow, AtLeastOne):
        return all(covers(wide, part) for part in narrow.parts)
    if isinstance(narrow, All) and any(covers(wide, part) for part in narrow.parts):
        return True
    if isinstance(wide, AtLeastOne):
        return any(covers(part, narrow) for part in wide.parts)
    if isinstance(wide, Not) and isinstance(narrow, Not):
        return covers(narrow.part, wide.part)
    if isinstance(wide, Compare) and isinstance(narrow, Compare):
        is_same_fact = (wide.fact, wide.name) == (narrow.fact, narrow.name)
        return is_same_fact and _allows(wide.values, narrow.values)
    return False


def _allows(wide: Values, narrow: Values) -> bool:
    """Return True if ``wide`` allows every value that ``narrow`` allows."""
    if wide == narrow:
        return True
    if isinstance(wide, Both):
        return all(_allows(part, narrow) for part in wide.parts)
    if isinstance(narrow, Both):
        return any(_allows(wide, part) for part in narrow.parts)
    if isinstance(narrow, OneOf):
        return all(map(wide.allow(), narrow.values))
    return isinstance(wide, Glob) and set(wide.text) == {"*"}
