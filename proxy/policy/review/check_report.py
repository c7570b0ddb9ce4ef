"""Report of ``headrace check``, as text, JSON or GitHub annotations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import orjson

from proxy.errors.words import counted
from proxy.policy.compile.compiler import compile_policies
from proxy.policy.files.load import read, shown_as
from proxy.policy.files.source import PolicyError, Problem
from proxy.policy.review.lint import gateway_notes, warnings
from proxy.policy.review.lint_guards import delay_notes, opaque_notes, restore_notes
from proxy.runtime.frozen import frozen


@frozen
class CheckReport:
    """Errors and warnings of a folder. A folder with errors is not searched for warnings.

    ``held`` are notes on the delay of streams, ``notes`` other notes.
    """

    folder: Path
    summary: str
    errors: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    held: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def problems(self) -> Iterator[tuple[str, Problem]]:
        """Yield each problem with its severity."""
        yield from (("error", problem) for problem in self.errors)
        yield from (("warning", problem) for problem in self.warnings)


def check(
    folder: Path, environ: Mapping[str, str] | None, now: datetime | None = None
) -> CheckReport:
    """Check a folder as ``serve`` reads it."""
    loaded = read(folder)
    try:
        snapshot = compile_policies(loaded, environ)
        with loaded.document.located(()):
            found = tuple(warnings(loaded, snapshot, now or datetime.now(UTC)))
            delays = tuple(delay_notes(snapshot))
            notes = [*gateway_notes(loaded.policies), *opaque_notes(loaded.policies, snapshot)]
            notes += restore_notes(snapshot, environ) if environ is not None else ()
    except PolicyError as error:
        return invalid(folder, error)
    deployments, keys = counted(len(snapshot.deployments), "deployment"), len(snapshot.keys)
    total = f", {counted(len(found), 'warning')}" if found else ""
    summary = f"valid{total} (revision {snapshot.revision}, {deployments}, {counted(keys, 'key')})"
    return CheckReport(folder, summary, warnings=found, held=delays, notes=tuple(notes))


def invalid(folder: Path, error: PolicyError) -> CheckReport:
    """Return the report of a folder with errors."""
    summary = f"invalid, {counted(len(error.problems), 'error')}"
    return CheckReport(folder=folder, summary=summary, errors=error.problems)


def as_text(report: CheckReport) -> str:
    lines = [*map(str, report.errors)]
    for problem in report.warnings:
        place = f"{problem.file}:{problem.line}:{problem.column}"
        lines.append(f"{place}: warning: {problem.path}: {problem.message}")
    return "\n".join([*lines, *report.held, *report.notes, f"{report.folder}: {report.summary}"])


def as_json(report: CheckReport) -> str:
    """Return an object: ``problems`` with severity, file, line, column, path and message, ``held``
    with the streaming delays of output guards, and ``notes``."""
    problems = [{"severity": kind, **asdict(problem)} for kind, problem in report.problems()]
    data = {"good": not report.errors, "summary": report.summary, "problems": problems}
    data |= {"held": report.held, "notes": report.notes}
    return orjson.dumps(data, option=orjson.OPT_INDENT_2).decode()


def as_github(report: CheckReport) -> str:
    """Return workflow commands, which GitHub shows as annotations of a change."""
    lines = []
    for kind, problem in report.problems():
        folder, text = report.folder, f"{problem.path}: {problem.message}"
        file = folder if problem.file == shown_as(folder) else folder / problem.file
        text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
        lines.append(f"::{kind} file={file},line={problem.line},col={problem.column}::{text}")
    return "\n".join([*lines, f"{report.folder}: {report.summary}"])


FORMS: dict[str, Callable[[CheckReport], str]] = {
    "text": as_text,
    "json": as_json,
    "github": as_github,
}
