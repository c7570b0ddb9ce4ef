"""No call runs more functions than its budget allows."""

import pytest

from bench.calls import budgets, over_budget


@pytest.mark.process
@pytest.mark.parametrize("parts", budgets())
async def test_a_call_runs_no_more_functions_than_its_budget_allows(parts: str) -> None:
    assert await over_budget(parts) == []
