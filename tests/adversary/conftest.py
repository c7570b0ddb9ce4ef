"""How long the adversary tries: briefly in every run of the tests, for as long as is wanted at
night."""

from __future__ import annotations

import pytest


@pytest.fixture
def examples(request: pytest.FixtureRequest) -> int:
    """How many requests, or sequences of steps, each test of the adversary draws."""
    return int(request.config.getoption("--examples"))
