"""What the comparison with an older checkout tells."""

from __future__ import annotations

from bench import against

MATCHES = {
    "relay": [100.0, 200.0],
    "old": [200.0, 400.0],
    "old, guards": [500.0, 1000.0],
    "now": [150.0, 300.0],
    "now, guards": [250.0, 500.0],
}


def test_a_call_now_is_told_in_parts_of_one_before_round_by_round() -> None:
    lines = against.report(MATCHES, "aaa", "bbb").splitlines()

    assert lines[-1] == "| a call now | those of `aaa` | 0.50 [0.50-0.50] |"
    assert "| `bbb`, what the guards add | relays | 1.00 [1.00-1.00] |" in lines
