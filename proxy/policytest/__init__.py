"""Policy tests: run calls through the real pipeline, offline and without sockets.

Only the client and the upstreams are simulated. Decisions, guards, translation, retries and
metering are those of the server, so a passing test holds there too.
"""

from __future__ import annotations

from pathlib import Path

from proxy.policy.compile.compiler import compile_policies
from proxy.policy.files.load import read
from proxy.policytest import clock
from proxy.policytest.cases import read_cases
from proxy.policytest.harness import play
from proxy.policytest.report import CaseResult, CoveredPart, Report, differences


def run_cases(folder: Path) -> Report:
    """Run all tests of a folder, without reading secrets. Raise ``PolicyError`` if the policies or
    the tests have errors."""
    snapshot = compile_policies(read(folder), None)
    cases, document = read_cases(folder)
    results, rules, deployments = [], set[str](), set[str | None]()
    for name, case in cases.items():
        played = clock.run(play(snapshot, case.given))
        place = document.place(("tests", name))
        found = tuple(differences(case.expect, played))
        results.append(CaseResult(name, f"{place.file}:{place.line}", found))
        plan = played.record.plan
        if plan is not None:
            rules |= {*plan.rules, *plan.shadow_rules}
            deployments.add(plan.deployment)
    parts = [
        CoveredPart(
            kind="deployment",
            name=name,
            at=snapshot.at("deployments", name) or "policies",
            covered=name in deployments,
        )
        for name in snapshot.deployments
    ]
    by_name = {rule.name: rule for each in snapshot.deployments.values() for rule in each.rules}
    for name, rule in by_name.items():
        at = snapshot.at(*rule.path) or "policies"
        parts.append(CoveredPart(kind="rule", name=name, at=at, covered=name in rules))
    return Report(tuple(results), tuple(parts))
