"""A few at once, then a few a minute, and what was turned down is told of by the next."""

from __future__ import annotations

from proxy.emit.quota import Quota


def test_it_is_used_up_fills_again_and_tells_of_what_was_turned_down() -> None:
    seconds = [0.0]
    quota = Quota(lambda: seconds[0], burst=2, per_minute=6)

    assert [quota.take() for _ in range(5)] == [0, 0, None, None, None]
    seconds[0] += 9.9
    assert quota.take() is None
    seconds[0] += 0.1
    assert quota.take() == 4
    seconds[0] += 3600
    assert [quota.take() for _ in range(3)] == [0, 0, None]
