"""No call runs more functions than was agreed: that is what keeps it from becoming slow, and it is
the same on a busy machine."""

import pytest

from bench.calls import over_budget


@pytest.mark.process
async def test_a_call_runs_no_more_functions_than_its_budget_allows() -> None:
    assert await over_budget() == []
