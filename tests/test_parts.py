"""Assignment of markers to tests, and tests that run a table of cases."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.for_each import for_each
from tests.parts import FIXTURES, LONGEST, NAMES, NODE_IDS, PROGRAMS, CodeNames, RunningTest
from tests.servers import running_server

TOP = Path(__file__).parents[1]


def test_names_used_by_helpers_are_found() -> None:
    def calls() -> object:
        return [_helper() for _ in range(1)]

    assert "running_server" in CodeNames().find(calls)
    assert CodeNames().find(print) == frozenset()


def _helper() -> object:
    return running_server(TOP)


@for_each("place", [*sorted({place for place, _ in NODE_IDS}), *LONGEST])
def test_paths_with_markers_exist(place: str) -> None:
    file, _, name = place.partition("::")

    assert (TOP / file).exists()
    assert not name or f"def {name}" in (TOP / file).read_text()


def test_every_marker_is_declared(pytestconfig: pytest.Config) -> None:
    declared = {line.split(":")[0] for line in pytestconfig.getini("markers")}

    assert {
        *FIXTURES.values(),
        *NAMES.values(),
        *(marker for _, marker in NODE_IDS),
        *PROGRAMS,
    } <= declared


def test_starting_a_program_requires_a_marker(request: pytest.FixtureRequest) -> None:
    watch = RunningTest()
    turn = watch.pytest_runtest_protocol(request.node)
    watch.check_program("subprocess.Popen", ("true",))  # no test is running

    next(turn)

    with pytest.raises(AssertionError, match="starts true without a marker"):
        watch.check_program("subprocess.Popen", ("true",))
    request.node.add_marker("process")
    watch.check_program("subprocess.Popen", ("true",))


def _equal(actual: int, expected: int) -> None:
    assert actual == expected


async def _equal_async(actual: int, expected: int) -> None:
    assert actual == expected


def _wrong(actual: int, expected: int) -> None:
    with pytest.raises(ValueError, match="nothing raises it"):
        assert actual


def _skipped(actual: int, expected: int) -> None:
    pytest.skip("not here")


CASES = [(1, 1), pytest.param(1, 2, id="second"), (3, 4)]


async def _run(test: Callable[..., Any]) -> None:
    if (running := test()) is not None:
        await running


@pytest.mark.parametrize("test", [_equal, _equal_async])
async def test_every_failing_case_is_named(test: Callable[..., Any]) -> None:
    with pytest.RaisesGroup(AssertionError, AssertionError) as failed:
        await _run(for_each("actual, expected", CASES)(test))
    assert failed.value.message == "2 of 3 cases failed: second, 3-4"
    assert [error.__notes__ for error in failed.value.exceptions] == [
        ["case: second"],
        ["case: 3-4"],
    ]


@pytest.mark.parametrize("test", [_wrong, _skipped])
def test_case_that_skips_or_fails_is_reported(test: Callable[..., Any]) -> None:
    with pytest.raises(BaseExceptionGroup, match="1 of 1 cases failed: 1-1"):
        for_each(("actual", "expected"), [(1, 1)])(test)()


def test_reusable_fixture_is_reset_for_each_case() -> None:
    class Fixture:
        names: list[str]

        def start_case(self) -> None:
            self.names = []

    def test(name: str, fixture: Fixture) -> None:
        fixture.names.append(name)
        assert fixture.names == [name]

    for_each("name", "ab")(test)(fixture=Fixture())
