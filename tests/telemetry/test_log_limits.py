"""Levels of the log: another one for a while, and then the usual one again."""

from __future__ import annotations

import pytest

from proxy.telemetry.log import MAX_S, LogLevel, Quota
from tests.for_each import for_each


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_another_level_holds_until_its_time_is_over() -> None:
    clock = Clock()
    levels = LogLevel("info", clock)

    levels.put("debug", 600)
    assert (levels.name, levels.left_s, levels.allows("debug")) == ("debug", 600, True)

    clock.now = 600
    assert (levels.name, levels.left_s, levels.allows("debug")) == ("info", 0, False)


@for_each(
    ("level", "seconds"),
    [
        ("loud", 60),
        ("", 60),
        ("debug", 0),
        ("debug", -1),
        ("debug", MAX_S + 1),
        ("debug", float("nan")),
    ],
)
def test_what_is_no_level_or_no_time_changes_nothing(level: str, seconds: float) -> None:
    levels = LogLevel("info", lambda: 0.0)

    with pytest.raises(ValueError, match="must be"):
        levels.put(level, seconds)

    assert levels.name == "info"


def test_a_level_lets_pass_what_is_as_grave_or_graver() -> None:
    levels = LogLevel("warning", lambda: 0.0)

    allowed = {name: levels.allows(name) for name in ("debug", "info", "warning", "error")}
    assert allowed == {"debug": False, "info": False, "warning": True, "error": True}


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
