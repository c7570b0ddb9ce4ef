from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from tests.for_each import for_each


def _equal(left: int, right: int) -> None:
    assert left == right


def _always_1(left: int, right: int) -> None:
    assert left == right == 1


async def _equal_async(left: int, right: int) -> None:
    assert left == right


def _wrong(left: int, right: int) -> None:
    with pytest.raises(ValueError, match="nothing raises it"):
        assert left


def _skipped(left: int, right: int) -> None:
    pytest.skip("not here")


CASES = [(1, 1), pytest.param(1, 2, id="second"), (3, 4)]


async def _run(test: Callable[..., Any]) -> None:
    if (running := test()) is not None:
        await running


@pytest.mark.parametrize("test", [_equal, _equal_async])
async def test_every_failing_case_is_named(test: Callable[..., Any]) -> None:
    with pytest.RaisesGroup(AssertionError, AssertionError) as failed:
        await _run(for_each("left, right", CASES)(test))
    assert failed.value.message == "2 of 3 cases failed: second, 3-4"
    assert [error.__notes__ for error in failed.value.exceptions] == [
        ["case: second"],
        ["case: 3-4"],
    ]


@pytest.mark.parametrize("test", [_wrong, _skipped])
def test_a_case_that_pytest_ends_has_failed(test: Callable[..., Any]) -> None:
    with pytest.raises(BaseExceptionGroup, match="1 of 1 cases failed: 1-1"):
        for_each(("left", "right"), [(1, 1)])(test)()


def test_tables_multiply() -> None:
    with pytest.raises(BaseExceptionGroup, match="1 of 2 cases failed: b") as failed:
        for_each("left", [1, 2], ids="ab")(for_each("right", [1, 1], ids=hex)(_always_1))()
    assert "2 of 2 cases failed: 0x1, 0x1" in str(failed.value.exceptions[0])


def test_fixtures_are_shared_by_all_cases() -> None:
    half = for_each("left", [1, 1])(_equal)
    assert list(signature(half).parameters) == ["right"]
    half(right=1)


def test_a_fixture_may_clear_its_state_for_each_case() -> None:
    class Fixture:
        names: list[str]

        def start_case(self) -> None:
            self.names = []

    def test(name: str, fixture: Fixture) -> None:
        fixture.names.append(name)
        assert fixture.names == [name]

    for_each("name", "ab")(test)(fixture=Fixture())


@for_each("name", "aa")
def test_each_case_has_an_empty_folder(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()


def test_a_table_without_cases_is_an_error() -> None:
    with pytest.raises(ValueError, match="no case for left"):
        for_each("left", [])


def test_ids_are_as_many_as_cases() -> None:
    with pytest.raises(ValueError, match="shorter"):
        for_each("left", [1, 2], ids="a")


def test_a_case_has_no_marks_of_its_own() -> None:
    with pytest.raises(ValueError, match="no marks"):
        for_each("left", [pytest.param(1, marks=pytest.mark.heavy)])
