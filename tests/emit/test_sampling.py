"""Shares of calls."""

from __future__ import annotations

from proxy.emit.sampling import in_share


def test_a_call_falls_into_a_share_by_its_own_number() -> None:
    assert in_share("0" * 32, 0.01)
    assert not in_share("f" * 32, 0.99)
    assert in_share("f" * 32, 1.0)
