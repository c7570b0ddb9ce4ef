"""Policy tests: calls played through the pipeline that serves, offline and without sockets.

Only the two walls are of paper. What decides, changes, forwards, tries again and meters is what
serves real calls, so a test that passes here is kept there.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from proxy.policy.compile.compiler import compile_policies
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.files.load import read
from proxy.policy.files.source import SourceLocation
from proxy.policytest import clock
from proxy.policytest.cases import Case, read_cases
from proxy.policytest.harness import Played, play
from proxy.policytest.judging import differences
from proxy.policytest.report import Part, Report, Result


def run_cases(folder: Path) -> Report:
    """Play all tests of a folder. Raises ``PolicyError`` for policies or tests that are wrong.

    Secrets are not needed, and not read.
    """
    snapshot = compile_policies(read(folder), None)
    cases, document = read_cases(folder)
    results, played = [], []
    for name, case in cases.items():
        result, what_came = clock.run(_run(snapshot, name, case, document.place(("tests", name))))
        results.append(result)
        played.append(what_came)
    return Report(tuple(results), tuple(_parts(snapshot, played)))


async def _run(
    snapshot: Snapshot, name: str, case: Case, at: SourceLocation
) -> tuple[Result, Played]:
    played = await play(snapshot, case.given)
    found = differences(case.expect, played)
    return Result(name, f"{at.file}:{at.line}", tuple(found)), played


def _parts(snapshot: Snapshot, played: Iterable[Played]) -> list[Part]:
    """Say of every rule and deployment whether a call came by it; a rule in shadow only could."""
    plans = [each.record.plan for each in played if each.record.plan is not None]
    rules = {rule for plan in plans for rule in (*plan.rules, *plan.would)}
    deployments = {plan.deployment for plan in plans}
    parts = [
        Part("deployment", name, _place(snapshot, "deployments", name), name in deployments)
        for name in snapshot.deployments
    ]
    sections = {
        section.policy: section
        for deployment in snapshot.deployments.values()
        for section in deployment.sections
    }
    for policy, section in sections.items():
        for index, rule in enumerate(section.rules):
            at = _place(snapshot, "policies", policy, "rules", index)
            parts.append(Part("rule", rule.name, at, rule.name in rules))
    return parts


def _place(snapshot: Snapshot, *path: str | int) -> str:
    at = snapshot.places.get(path)
    return f"{at.file}:{at.line}" if at else "policies"
