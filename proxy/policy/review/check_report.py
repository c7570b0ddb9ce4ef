"""What ``headrace check`` says of a folder, and the forms in which people and machines read it."""

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
from proxy.policy.review.lint import warnings
from proxy.policy.review.stream_hold import held


@frozen
class CheckReport:
    """All that was found. Warnings are looked for only where there are no errors."""

    folder: Path
    summary: str
    errors: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    held: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[tuple[str, Problem]]:
        yield from (("error", problem) for problem in self.errors)
        yield from (("warning", problem) for problem in self.warnings)


def check(
    folder: Path, environ: Mapping[str, str] | None, at: datetime | None = None
) -> CheckReport:
    """Read a folder as ``serve`` would, and weigh what it says, now or at another moment."""
    loaded = read(folder)
    try:
        snapshot = compile_policies(loaded, environ)
    except PolicyError as error:
        return refused(folder, error)
    counts = f"deployments: {len(snapshot.deployments)}, keys: {len(snapshot.keys)}"
    summary = f"good, revision {snapshot.revision}, {counts}"
    doubtful = tuple(warnings(loaded, snapshot, at or datetime.now(UTC)))
    return CheckReport(
        folder=folder, summary=summary, warnings=doubtful, held=tuple(held(snapshot))
    )


def refused(folder: Path, error: PolicyError) -> CheckReport:
    """Return the report of a folder that cannot come into force."""
    summary = f"refused, problems: {len(error.problems)}"
    return CheckReport(folder=folder, summary=summary, errors=error.problems)


def as_text(found: CheckReport) -> str:
    lines = [str(p) if kind == "error" else _doubtful(p) for kind, p in found]
    return "\n".join([*lines, *found.held, f"{found.folder}: {found.summary}"])


def _doubtful(problem: Problem) -> str:
    place = f"{problem.file}:{problem.line}:{problem.column}"
    return f"{place}: warning: {problem.path}: {problem.message}"


def as_json(found: CheckReport) -> str:
    """One object: ``problems`` with severity, file, line, column, path and message, and ``held``,
    what guards of answers hold back."""
    problems = [{"severity": kind, **asdict(problem)} for kind, problem in found]
    report = {"good": not found.errors, "summary": found.summary, "problems": problems}
    return orjson.dumps({**report, "held": found.held}, option=orjson.OPT_INDENT_2).decode()


def as_github(found: CheckReport) -> str:
    """Workflow commands, which GitHub shows beside the lines of a change."""
    lines = [
        f"::{kind} file={_file(found.folder, p)},line={p.line},col={p.column}::"
        f"{_escaped(f'{p.path}: {p.message}')}"
        for kind, p in found
    ]
    return "\n".join([*lines, f"{found.folder}: {found.summary}"])


def _file(folder: Path, problem: Problem) -> Path:
    """Return the file of a problem with its folder, or the folder alone where no file has it."""
    return folder if problem.file == shown_as(folder) else folder / problem.file


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


FORMS: dict[str, Callable[[CheckReport], str]] = {
    "text": as_text,
    "json": as_json,
    "github": as_github,
}
