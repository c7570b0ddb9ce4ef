"""Report of ``headrace check``, as text, JSON or GitHub annotations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import orjson

from proxy.frozen import frozen
from proxy.policy.compile.compiler import compile_policies
from proxy.policy.files.load import read, shown_as
from proxy.policy.files.source import PolicyError, Problem
from proxy.policy.review.lint import gateway_notes, warnings
from proxy.policy.review.lint_guards import opaque_notes, restore_notes
from proxy.policy.review.stream_hold import held
from proxy.words import counted


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

    def __iter__(self) -> Iterator[tuple[str, Problem]]:
        yield from (("error", problem) for problem in self.errors)
        yield from (("warning", problem) for problem in self.warnings)


def check(
    folder: Path, environ: Mapping[str, str] | None, at: datetime | None = None
) -> CheckReport:
    """Check a folder as ``serve`` reads it, now or at another moment."""
    loaded = read(folder)
    try:
        snapshot = compile_policies(loaded, environ)
        with loaded.document.located(()):
            found = tuple(warnings(loaded, snapshot, at or datetime.now(UTC)))
            delays = tuple(held(snapshot))
            notes = [*gateway_notes(loaded.policies), *opaque_notes(loaded.policies, snapshot)]
            notes += restore_notes(snapshot, environ) if environ is not None else ()
    except PolicyError as error:
        return invalid(folder, error)
    counts = [
        f"revision {snapshot.revision}",
        counted(len(snapshot.deployments), "deployment"),
        counted(len(snapshot.keys), "key"),
    ]
    total = f", {counted(len(found), 'warning')}" if found else ""
    summary = f"valid{total} ({', '.join(counts)})"
    return CheckReport(folder, summary, warnings=found, held=delays, notes=tuple(notes))


def invalid(folder: Path, error: PolicyError) -> CheckReport:
    """Return the report of a folder with errors."""
    summary = f"invalid, {counted(len(error.problems), 'error')}"
    return CheckReport(folder=folder, summary=summary, errors=error.problems)


def as_text(found: CheckReport) -> str:
    lines = [str(p) if kind == "error" else _warning(p) for kind, p in found]
    return "\n".join([*lines, *found.held, *found.notes, f"{found.folder}: {found.summary}"])


def _warning(problem: Problem) -> str:
    place = f"{problem.file}:{problem.line}:{problem.column}"
    return f"{place}: warning: {problem.path}: {problem.message}"


def as_json(found: CheckReport) -> str:
    """Return an object: ``problems`` with severity, file, line, column, path and message, ``held``
    with the streaming delays of output guards, and ``notes``."""
    problems = [{"severity": kind, **asdict(problem)} for kind, problem in found]
    report = {"good": not found.errors, "summary": found.summary, "problems": problems}
    return orjson.dumps(
        {**report, "held": found.held, "notes": found.notes}, option=orjson.OPT_INDENT_2
    ).decode()


def as_github(found: CheckReport) -> str:
    """Return workflow commands, which GitHub shows as annotations of a change."""
    lines = [
        f"::{kind} file={_file(found.folder, p)},line={p.line},col={p.column}::"
        f"{_escaped(f'{p.path}: {p.message}')}"
        for kind, p in found
    ]
    return "\n".join([*lines, f"{found.folder}: {found.summary}"])


def _file(folder: Path, problem: Problem) -> Path:
    """Return the path of the file with the problem, or the folder if it is in no file."""
    return folder if problem.file == shown_as(folder) else folder / problem.file


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


FORMS: dict[str, Callable[[CheckReport], str]] = {
    "text": as_text,
    "json": as_json,
    "github": as_github,
}
