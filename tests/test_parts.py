"""Markers of tests: who gets which, and that none is forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.for_each import for_each
from tests.parts import (
    FIXTURES,
    LONGEST,
    PLACES,
    PROGRAMS,
    USES,
    Mentions,
    RunningTest,
    markers,
    turn,
)
from tests.servers import running_server

TOP = Path(__file__).parents[1]


def test_a_test_is_marked_by_its_fixtures_and_by_its_place() -> None:
    assert set(markers("tests/x.py::test_x", ("tmp_path", "model"), {"ratio"})) == {
        "heavy",
        "model",
    }
    assert set(markers("tests/sdks/test_x.py::test_x", (), ())) == {"sdks"}
    assert set(markers("tests/x.py::test_x", ("tmp_path",), ("open",))) == set()


def test_what_fixtures_and_helpers_start_counts() -> None:
    def calls() -> object:
        return [_helper() for _ in range(1)]

    assert "running_server" in Mentions().of(calls)
    assert Mentions().of(print) == frozenset()


def _helper() -> object:
    return running_server(TOP)


def test_tests_that_take_longest_begin_and_no_others_change_their_order() -> None:
    other_items = ["tests/x.py::test_long", "tests/test_a.py::test_a"]
    long = [f"{file}::test_x[{case}]" for file in LONGEST for case in "ba"]

    assert sorted([*other_items, *long], key=turn) == [*long, *other_items]


@for_each("place", [*sorted({place for place, _ in PLACES}), *LONGEST])
def test_a_place_that_has_a_marker_is_there(place: str) -> None:
    file, _, name = place.partition("::")

    assert (TOP / file).exists()
    assert not name or f"def {name}" in (TOP / file).read_text()


def test_every_marker_is_declared(pytestconfig: pytest.Config) -> None:
    declared = {line.split(":")[0] for line in pytestconfig.getini("markers")}

    assert {
        *FIXTURES.values(),
        *USES.values(),
        *(marker for _, marker in PLACES),
        *PROGRAMS,
    } <= declared


def test_a_test_that_starts_a_program_needs_a_marker(request: pytest.FixtureRequest) -> None:
    watch = RunningTest()
    turn = watch.pytest_runtest_protocol(request.node)
    watch.hear("subprocess.Popen", ("true",))  # nobody's test runs

    next(turn)

    with pytest.raises(AssertionError, match="starts true without a marker"):
        watch.hear("subprocess.Popen", ("true",))
    request.node.add_marker("process")
    watch.hear("subprocess.Popen", ("true",))
