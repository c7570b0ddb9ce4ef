"""Activation of policy revisions, and measurement of event loop lag."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path

import pytest

from proxy.app.telemetry import Enforcement, enforcing, reload_reporter
from proxy.policy.catalog import list_labels
from proxy.policy.store import PolicyFolder
from proxy.settings import Settings
from proxy.telemetry.metrics import LAG_EVERY_S, LoopLag, Metrics
from tests.fakes import EventLog
from tests.guards.growth import lines
from tests.policy.review.test_check import SIZES, TIMES, folder


def activate(path: Path, kind: str) -> tuple[int, Metrics, EventLog]:
    """Read a folder and return the number of lines that its activation runs."""
    metrics, log = Metrics("1"), EventLog()
    if kind == "policies":  # no secret seals ids, so that keys can share responses
        enforcement = Enforcement(partial(enforcing, Settings(path), metrics, log))
        tell = reload_reporter(metrics, enforcement, ())
    else:
        enforcement = Enforcement(
            lambda read: [metrics.allow(list_labels(read), "candidate", start=False)]
        )
        tell = enforcement.activate
    snapshot = PolicyFolder(path, {}, None, enforcement.prepare).read()
    return lines(lambda: tell("in_force", snapshot)), metrics, log


@pytest.mark.parametrize("kind", ["policies", "candidate"])
def test_activation_time_is_independent_of_folder_size(kind: str, tmp_path: Path) -> None:
    small = folder(tmp_path / "small", **SIZES)
    large = folder(tmp_path / "large", **{name: size * TIMES for name, size in SIZES.items()})

    steps, *_ = activate(small, kind)
    more_steps, metrics, log = activate(large, kind)

    assert more_steps == steps
    assert ("ids.unsealed" in dict(log.entries)) is (kind == "policies")
    metrics.count("headrace_candidate_decisions_total", "limits", "p59/a")
    assert b'rule="p59/a"' in metrics.render()[0]


def test_labels_are_registered_before_activation(tmp_path: Path) -> None:
    metrics = Metrics("1")
    enforcement = Enforcement(lambda read: [metrics.admit(list_labels(read))])

    snapshot = PolicyFolder(folder(tmp_path / "f", **SIZES), {}, None, enforcement.prepare).read()

    assert b'headrace_requests_total{deployment="d7"' in metrics.render()[0]
    assert metrics.roster.revision == ""
    enforcement.activate("in_force", snapshot)
    assert metrics.roster.revision == snapshot.revision


async def test_blocked_loop_is_reported() -> None:
    lags: list[float] = []
    is_reported = asyncio.Event()

    def tell(lag: float) -> None:
        lags.append(lag)
        is_reported.set()

    async with LoopLag(tell):
        blocked_until = time.monotonic() + LAG_EVERY_S + 0.1
        while time.monotonic() < blocked_until:
            pass
        await is_reported.wait()

    assert lags[0] >= 0.09


async def test_reports_nothing_after_exit() -> None:
    lags: list[float] = []

    lag = LoopLag(lags.append)
    async with lag:
        timer = lag._timer

    assert timer.cancelled()
