"""Budgets of functions per call and of instructions per chunk of a stream."""

import pytest

from bench.calls import BUDGETED, packages_over_budget
from bench.instructions import chunks_over_budget
from tests.servers import program

pytestmark = pytest.mark.process


@pytest.mark.parametrize("name", BUDGETED)
async def test_functions_per_call_stay_within_budget(name: str) -> None:
    assert await packages_over_budget(name) == []


@pytest.mark.timeout(900)
def test_instructions_per_chunk_stay_within_budget() -> None:
    program("valgrind")
    assert chunks_over_budget() == []
