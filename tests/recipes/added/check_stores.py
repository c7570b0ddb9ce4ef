"""Tests of the added stores, run in a copy of the repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.settings import Address, BadSetting, LedgerLocation, from_environment
from tests.conftest import policies_for, running_proxy
from tests.doubles import ScriptedUpstream, legacy_completion, respond

CACHED = """
policies:
  default: {cache: {store: acme}}
"""


async def test_new_cache_store_is_read(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.answer_with(respond(legacy_completion()))
    async with running_proxy(tmp_path / "policies", policies_for(upstream.url) + CACHED) as proxy:
        for _ in range(2):
            assert (await proxy.complete(temperature=0)).status == 200
        await proxy.sink.wait(2)
        text = await proxy.metrics()

    assert len(upstream.requests) == 1
    assert [record.cache for record in proxy.records] == ["miss", "hit"]
    assert 'headrace_cache_lookup_duration_seconds_count{store="acme"} 2.0' in text


async def test_new_ledger_has_line_per_call(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.answer_with(respond(legacy_completion()))
    ledger = tmp_path / "calls"
    position = LedgerLocation("acme", ledger)
    async with running_proxy(tmp_path / "p", policies_for(upstream.url), ledger=position) as proxy:
        assert (await proxy.complete()).status == 200
        [record] = await proxy.sink.wait()

    assert ledger.read_text() == f"{record.request_id}\n"


def test_ledger_variable_accepts_the_new_store() -> None:
    ports = (Address("127.0.0.1", 8080), Address("127.0.0.1", 8081))

    def ledger(text: str) -> LedgerLocation | None:
        return from_environment(Path("policies"), *ports, {"HEADRACE_LEDGER": text}).ledger

    assert ledger("acme:/calls") == LedgerLocation("acme", Path("/calls"))
    with pytest.raises(BadSetting, match="acme:PATH"):
        ledger("else:/calls")
