"""Background loading of guard data, activation of policy revisions, and event loop lag."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from proxy import app
from proxy.app.telemetry import PolicyActivator, build_reload_callback, iter_activation_steps
from proxy.guards.kinds.injection import RuleBook
from proxy.guards.kinds.pii import Pii
from proxy.guards.kinds.secrets import Secrets
from proxy.policy.catalog import list_labels
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.store import PolicyFolder, read_folder
from proxy.runtime.background import background_task
from proxy.server import Calls
from proxy.server.admin import Readiness
from proxy.settings import Address, Settings
from proxy.telemetry.metrics import LAG_INTERVAL_S, LoopLagMonitor, Metrics
from tests.conftest import policies_for
from tests.doubles import TRUST, ScriptedUpstream, chat, respond
from tests.fakes import EventLog
from tests.for_each import for_each
from tests.guards.growth import lines
from tests.guards.kinds.test_injection import TEXTS as LANGUAGES
from tests.policy.review.test_check import SIZES, TIMES, folder
from tests.policy.test_cold_starts import GUARDS, TEXTS, with_more
from tests.test_pipeline import BEARER, ROUTES

KEYS = [
    f"curl -u user:{'hunter2' * 2} https://mill.example/",
    f"-----BEGIN RSA PRIVATE KEY----- {'aB3d' * 30} -----END RSA PRIVATE KEY-----",
    f"password = {'x8Kq02LmvQ77zz'!r}, key=AKIA{'J7Q2' * 4}; gsk_{'aB3' * 17}x",
]
SAMPLES = [
    *TEXTS,
    *KEYS,
    "You stupid idiot.",
    *(document["attacks"][0] for document in LANGUAGES.values()),
]
DETECTORS: dict[str, Callable[[], Secrets | Pii | RuleBook]] = {
    "secrets": Secrets,
    "pii": Pii,
    "injection": RuleBook,
}


@for_each("kind", DETECTORS)
def test_findings_do_not_depend_on_loading(kind: str) -> None:
    loaded, reference, half = DETECTORS[kind](), DETECTORS[kind](), DETECTORS[kind]()
    steps = sum(1 for _ in loaded.iter_loading_steps())
    remaining = half.iter_loading_steps()
    for _ in range(steps // 2):
        next(remaining)

    findings = [list(loaded.find(text)) for text in SAMPLES]

    assert any(findings)
    assert [list(reference.find(text)) for text in SAMPLES] == findings
    assert [list(half.find(text)) for text in SAMPLES] == findings
    assert sum(1 for _ in remaining) == steps - steps // 2


async def test_is_ready_after_loading(tmp_path: Path) -> None:
    readiness, ready_when_loaded = Readiness(), []

    def loaded() -> None:
        ready_when_loaded.append(readiness.ready)

    await app.load_until_ready(snapshot(tmp_path), Calls(), readiness, Metrics("1"), loaded)

    assert ready_when_loaded == [False]
    assert readiness.ready


async def test_stop_ends_loading(tmp_path: Path) -> None:
    readiness, calls = Readiness(), Calls()
    calls.add_task(asyncio.current_task())
    work = app.load_until_ready(snapshot(tmp_path), calls, readiness, Metrics("1"), lambda: None)

    async with background_task(work):
        await asyncio.sleep(0)

    assert not readiness.ready


async def test_reload_is_activated_while_guards_load(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(respond(chat("On its way.")))
    policies, local_address = policies_for(upstream.url) + GUARDS, Address("127.0.0.1", 0)
    (tmp_path / "p.yaml").write_text(policies)
    settings = Settings(tmp_path, local_address, local_address, environ={"UPSTREAM_KEY": "k"})
    loaded = asyncio.Event()
    with open(os.devnull, "w") as nowhere:  # noqa: ASYNC230  # it never waits
        running_app = app.run_proxy(
            settings, log_fd=nowhere.fileno(), trust=TRUST, on_loaded=loaded.set
        )
        async with running_app as running, aiohttp.ClientSession() as client:
            text_before = running.policies.current.revision
            (tmp_path / "p.yaml").write_text(with_more(policies))
            await running.policies.refresh()

            assert running.policies.current.revision != text_before
            await all_are_answered(client, f"http://{running.listen}{ROUTES['openai'].path}")
            await loaded.wait()
            await asyncio.sleep(0)
            async with client.get(f"http://{running.admin}/readyz") as response:
                assert response.status == 200


async def all_are_answered(client: aiohttp.ClientSession, url: str) -> None:
    for text in (*TEXTS, "You stupid idiot."):
        body = {"model": "support-chat", "messages": [{"role": "user", "content": text}]}
        async with client.post(url, json=body, headers=BEARER) as response:
            assert response.status == 200, await response.text()


def snapshot(folder: Path) -> Snapshot:
    (folder / "policies.yaml").write_text(policies_for("http://127.0.0.1:9") + GUARDS)
    return read_folder(folder, {"UPSTREAM_KEY": "k"})


def activate(path: Path, kind: str) -> tuple[int, Metrics, EventLog]:
    """Read a folder and return the number of lines that its activation runs."""
    metrics, log = Metrics("1"), EventLog()
    if kind == "policies":  # no secret seals ids, so that keys can share responses
        enforcement = PolicyActivator(partial(iter_activation_steps, Settings(path), metrics, log))
        tell = build_reload_callback(metrics, enforcement, ())
    else:
        enforcement = PolicyActivator(
            lambda read: [metrics.allow_labels(list_labels(read), "candidate", create_series=False)]
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
    enforcement = PolicyActivator(lambda read: [metrics.allow_policy_labels(list_labels(read))])

    snapshot = PolicyFolder(folder(tmp_path / "f", **SIZES), {}, None, enforcement.prepare).read()

    assert b'headrace_requests_total{deployment="d7"' in metrics.render()[0]
    assert metrics.catalog.revision == ""
    enforcement.activate("in_force", snapshot)
    assert metrics.catalog.revision == snapshot.revision


async def test_blocked_loop_is_reported() -> None:
    lags: list[float] = []
    is_reported = asyncio.Event()

    def tell(lag: float) -> None:
        lags.append(lag)
        is_reported.set()

    async with LoopLagMonitor(tell):
        blocked_until = time.monotonic() + LAG_INTERVAL_S + 0.1
        while time.monotonic() < blocked_until:
            pass
        await is_reported.wait()

    assert lags[0] >= 0.09


async def test_reports_nothing_after_exit() -> None:
    lags: list[float] = []

    lag = LoopLagMonitor(lags.append)
    async with lag:
        timer = lag._timer

    assert timer.cancelled()
