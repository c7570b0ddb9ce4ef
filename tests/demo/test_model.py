"""Finding and starting the model's server: what is missing is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.demo.model import Found, NoModel, running_model
from proxy.settings import Address
from tests.doubles import ScriptedUpstream


async def test_a_taken_address_is_told(upstream: ScriptedUpstream) -> None:
    port = int(upstream.url.rpartition(":")[2])

    with pytest.raises(NoModel, match="something else listens"):
        async with running_model(Found("true", Path("none")), Address("127.0.0.1", port)):
            pass


async def test_a_server_that_ends_is_told() -> None:
    with pytest.raises(NoModel, match="ended with status"):
        async with running_model(Found("false", Path("none")), Address("127.0.0.1", 9)):
            pass
