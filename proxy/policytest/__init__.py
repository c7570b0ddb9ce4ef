"""Policy tests: run calls through the real pipeline, offline and without sockets.

Only the client and the upstreams are simulated. All else runs the same code as in the server.
"""

from __future__ import annotations

from pathlib import Path

from proxy.policy.compile import compile_policies
from proxy.policy.files.load import load_policies_with_problems
from proxy.policytest.cases import read_cases
from proxy.policytest.harness import run_case, run_with_simulated_clock
from proxy.policytest.report import CaseResult, CoverageItem, Report, find_differences


def run_cases(folder: Path) -> Report:
    """Run all tests of a folder, without reading secrets. Raise ``PolicyError`` for errors."""
    snapshot = compile_policies(load_policies_with_problems(folder), None)
    cases, document = read_cases(folder)
    results, rules, deployments = [], set[str](), set[str | None]()
    for name, case in cases.items():
        case_run = run_with_simulated_clock(run_case(snapshot, case.given))
        location = document.get_location(("tests", name))
        source = f"{location.file}:{location.line}"
        results.append(CaseResult(name, source, tuple(find_differences(case.expect, case_run))))
        plan = case_run.record.plan
        if plan is not None:
            rules |= {*plan.rules, *plan.shadow_rules}
            deployments.add(plan.deployment)
    parts = []
    for name in snapshot.deployments:
        source = snapshot.find_location("deployments", name) or "policies"
        parts.append(CoverageItem("deployment", name, source, covered=name in deployments))
    rules_by_name = {rule.name: rule for d in snapshot.deployments.values() for rule in d.rules}
    for name, rule in rules_by_name.items():
        source = snapshot.find_location(*rule.path) or "policies"
        parts.append(CoverageItem("rule", name, source, covered=name in rules))
    return Report(tuple(results), tuple(parts))
