"""No call runs more functions, and no chunk of a stream more instructions, than its budget."""

import pytest

from bench.calls import BUDGETED, packages_over_budget
from bench.instructions import chunks_over_budget
from tests.servers import program

pytestmark = pytest.mark.process


@pytest.mark.parametrize("name", BUDGETED)
async def test_a_call_runs_no_more_functions_than_its_budget(name: str) -> None:
    assert await packages_over_budget(name) == []


@pytest.mark.timeout(900)
def test_a_chunk_takes_no_more_instructions_than_its_budget() -> None:
    program("valgrind")
    assert chunks_over_budget() == []
