"""Runs a test for every case of a table within one pytest item, and names each failed case.

pytest takes about 3 ms of CPU to collect, schedule and report an item, which is longer than most
cases. Use ``for_each`` for cases that share fixtures. Use ``pytest.mark.parametrize`` for cases
that start servers or take a second: each has its own timeout, and several workers share them.
"""

from __future__ import annotations

import inspect
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from itertools import repeat
from typing import Any, Protocol, runtime_checkable

import pytest

Test = Callable[..., Any]
Ids = Iterable[object] | Callable[[Any], object] | None
FAILURES = (Exception, pytest.fail.Exception, pytest.skip.Exception)
"""Exceptions that end a case. A skipped case counts as failed, as it would never run unnoticed."""

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 60


@runtime_checkable
class Reusable(Protocol):
    """A fixture whose state is cleared for each case."""

    def start_case(self) -> None:
        """Clear the state of earlier cases."""


@dataclass(frozen=True, slots=True)
class _Case:
    arguments: dict[str, Any]
    name: object

    def __str__(self) -> str:
        if self.name is not None and not callable(self.name):
            return str(self.name)
        write = self.name or _short.repr
        return "-".join(str(write(value)) for value in self.arguments.values())


class _Run:
    """Runs the cases of a test and collects their errors."""

    def __init__(self, fixtures: Mapping[str, Any]) -> None:
        self._fixtures = fixtures
        self._errors: list[BaseException] = []
        self._names: list[str] = []
        self._count = 0

    @contextmanager
    def run_case(self, case: _Case) -> Iterator[dict[str, Any]]:
        """Yield the arguments of a case, which has its own folder as ``tmp_path``."""
        self._count += 1
        for fixture in self._fixtures.values():
            if isinstance(fixture, Reusable):
                fixture.start_case()
        arguments = {**self._fixtures, **case.arguments}
        if "tmp_path" in self._fixtures:
            arguments["tmp_path"] = folder = self._fixtures["tmp_path"] / f"case{self._count}"
            folder.mkdir()
        try:
            yield arguments
        except FAILURES as error:
            error.add_note(f"case: {case}")
            self._errors.append(error)
            self._names.append(str(case))

    def report(self) -> None:
        """Raise all collected errors as a group, with the names of their cases."""
        if self._errors:
            names = ", ".join(self._names)
            message = f"{len(self._errors)} of {self._count} cases failed: {names}"
            raise BaseExceptionGroup(message, self._errors)


def for_each(
    names: str | Sequence[str], cases: Iterable[Any], ids: Ids = None
) -> Callable[[Test], Test]:
    """Run the test once per case, with the arguments of ``pytest.mark.parametrize``.

    All cases run, even if one fails. They share their fixtures (see ``Reusable``), except for
    ``tmp_path``.
    """
    arguments = re.findall(r"\w+", names) if isinstance(names, str) else names
    table = list(_cases(arguments, cases, ids))
    if not table:
        raise ValueError(f"no case for {names}")

    def decorate(test: Test) -> Test:
        run = _async_run(test, table) if inspect.iscoroutinefunction(test) else _run(test, table)
        signature = inspect.signature(test)
        fixtures = [item for item in signature.parameters.values() if item.name not in arguments]
        run.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return run

    return decorate


def _cases(names: Sequence[str], cases: Iterable[Any], ids: Ids) -> Iterator[_Case]:
    case_ids = repeat(ids) if callable(ids) or ids is None else ids
    for case, default in zip(cases, case_ids, strict=case_ids is ids):
        name, values = default, (case,) if len(names) == 1 else case
        if isinstance(case, pytest.ParameterSet):
            if case.marks:
                raise ValueError(f"a case has no marks of its own: {case}")
            name, values = case.id or default, case.values
        yield _Case(dict(zip(names, values, strict=True)), name)


def _run(test: Test, table: Sequence[_Case]) -> Test:
    @wraps(test)
    def run(**fixtures: Any) -> None:
        running = _Run(fixtures)
        for case in table:
            with running.run_case(case) as arguments:
                test(**arguments)
        running.report()

    return run


def _async_run(test: Test, table: Sequence[_Case]) -> Test:
    @wraps(test)
    async def run(**fixtures: Any) -> None:
        running = _Run(fixtures)
        for case in table:
            with running.run_case(case) as arguments:
                await test(**arguments)
        running.report()

    return run
