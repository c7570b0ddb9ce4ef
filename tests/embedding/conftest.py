"""The packaged model, which the extra ``semantic`` brings."""

from __future__ import annotations

import os

import pytest

from proxy.embedding.model import PACKAGED, Model, load, problem


@pytest.fixture(scope="session")
def model() -> Model:
    missing = problem(PACKAGED)
    if missing is not None:
        assert not os.environ.get("CI"), missing
        pytest.skip(missing)
    return load(PACKAGED)
