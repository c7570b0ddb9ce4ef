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
from proxy.policytest.report import CaseResult, CoveredPart, Report


def run_cases(folder: Path) -> Report:
    """Play all tests of a folder. Raises ``PolicyError`` for policies or tests that are wrong.

    Secrets are not needed, and not read.
    """
    snapshot = compile_policies(read(folder), None)
    cases, document = read_cases(folder)
    results, played = [], []
    for name, case in cases.items():
        result, play_result = clock.run(_run(snapshot, name, case, document.place(("tests", name))))
        results.append(result)
        played.append(play_result)
    return Report(tuple(results), tuple(_parts(snapshot, played)))


async def _run(
    snapshot: Snapshot, name: str, case: Case, at: SourceLocation
) -> tuple[CaseResult, Played]:
    played = await play(snapshot, case.given)
    found = differences(case.expect, played)
    return CaseResult(name, f"{at.file}:{at.line}", tuple(found)), played


def _parts(snapshot: Snapshot, played: Iterable[Played]) -> list[CoveredPart]:
    """Return every rule and deployment, and whether a call came by it; a rule in shadow counts."""
    plans = [each.record.plan for each in played if each.record.plan is not None]
    rules = {rule for plan in plans for rule in (*plan.rules, *plan.shadow_rules)}
    deployments = {plan.deployment for plan in plans}
    parts = [
        CoveredPart(
            kind="deployment",
            name=name,
            at=_place(snapshot, "deployments", name),
            covered=name in deployments,
        )
        for name in snapshot.deployments
    ]
    followed = {rule.name: rule for each in snapshot.deployments.values() for rule in each.rules}
    for name, rule in followed.items():
        at = _place(snapshot, *rule.path)
        parts.append(CoveredPart(kind="rule", name=name, at=at, covered=name in rules))
    return parts


def _place(snapshot: Snapshot, *path: str | int) -> str:
    return snapshot.at(*path) or "policies"
