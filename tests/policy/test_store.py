"""Policy store: reloads by time and by request, with the last valid snapshot active."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.files.load import Revocations, read_revocations
from proxy.policy.store import (
    MAX_REVISIONS,
    NO_KEYS_MESSAGE,
    PolicyFolder,
    PolicyStore,
    read_folder,
)
from proxy.types import Call, RequestHead, Secret
from tests.conftest import KEY, Proxy, policies_for
from tests.doubles import PATIENCE_S, ScriptedUpstream
from tests.fakes import EventLog
from tests.test_pipeline import ROUTES

HEAD = RequestHead(
    "openai", "completions", "/v1/completions", "r", digest=Secret(KEY).digest, bypass_cache=True
)


class Clock:
    """Clock that advances only in ``sleep``."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class StoreOverFolder:
    """A store over a real folder, with its clock, its log and a count of readings."""

    def __init__(self, folder: Path, text: str = policies_for("http://127.0.0.1:9")) -> None:
        self.file = folder / "policies.yaml"
        self.file.write_text(text)
        self.clock, self.log, self.readings = Clock(), EventLog(), 0
        self.told: list[str] = []
        self.raises: Exception | None = None
        self.folder = folder
        self.store = PolicyStore(
            self, lambda: self.clock.now, self.clock.sleep, self.log, self.tell
        )

    def events(self) -> list[str]:
        return [event for event, _ in self.log.entries]

    def tell(self, result: str, in_force: object) -> None:
        self.told.append(result)

    def read(self) -> Any:
        self.readings += 1
        if self.raises is not None:
            raise self.raises
        return read_folder(self.folder, {"UPSTREAM_KEY": "sk"})

    def read_revocations(self) -> Revocations:
        return read_revocations(self.folder)


@pytest.fixture
def stored(tmp_path: Path) -> StoreOverFolder:
    return StoreOverFolder(tmp_path)


async def test_refresh_header_activates_a_change(stored: StoreOverFolder) -> None:
    old_snapshot = stored.store.current
    stored.file.write_text(
        stored.file.read_text()
        + "  extra: {targets: []}\n".replace("[]", "[{upstream: openai, model: m}]")
    )

    decided = await stored.store.reload_if_requested(HEAD)

    assert decided.snapshot is stored.store.current
    assert decided.snapshot.revision != old_snapshot.revision
    assert stored.events() == ["policy.in_force", "policy.in_force"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tags: {team: [support]}\n", NO_KEYS_MESSAGE),
        ("keys:\n", NO_KEYS_MESSAGE),
        ("upstream: {}\n", 'policies.yaml:1:1: upstream: unknown key. Did you mean "upstreams"?'),
    ],
    ids=["no keys", "half written", "broken"],
)
async def test_rejected_change_is_logged(text: str, problem: str, stored: StoreOverFolder) -> None:
    old_snapshot = stored.store.current
    stored.file.write_text(text)

    decided = await stored.store.reload_if_requested(HEAD)

    assert decided.snapshot is stored.store.current is old_snapshot
    event, fields = stored.log.entries[-1]
    assert (event, fields["problems"]) == ("policy.rejected", [problem])


@pytest.mark.parametrize("keys", ["keys: {}\n", "keys:\n", ""])
def test_start_without_keys_warns(keys: str, tmp_path: Path) -> None:
    stored = StoreOverFolder(tmp_path, f"tags: {{team: [support]}}\n{keys}")

    assert stored.events() == ["policy.in_force", "policy.no_keys"]


WRONG, GOOD = "upstream: {}\n", policies_for("http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("texts", "events", "results"),
    [
        ([WRONG, GOOD, GOOD], ["rejected", "restored"], ["rejected", "restored", "unchanged"]),
        ([WRONG, GOOD.replace("gpt-4o-mini", "new"), GOOD], ["rejected", "in_force", "in_force"],
            ["rejected", "in_force", "in_force"]),
        (["keys: {}\n"], ["in_force", "no_keys"], ["in_force"]),
    ],
    ids=["restored", "new revision after a rejection", "explicitly no keys"],
)  # fmt: skip
async def test_reloads_have_results_and_events(
    texts: list[str], events: list[str], results: list[str], stored: StoreOverFolder
) -> None:
    for text in texts:
        stored.file.write_text(text)
        await stored.store.refresh()

    assert stored.events() == ["policy.in_force", *(f"policy.{event}" for event in events)]
    assert stored.told == ["in_force", *results]
    assert stored.log.entries[-1][1] == {"revision": stored.store.current.revision}
    assert bool(stored.store.current.credentials) == (texts[-1] == GOOD)


async def test_revocations_of_a_pending_change_apply(stored: StoreOverFolder) -> None:
    old_snapshot = stored.store.current
    stored.file.write_text(
        stored.file.read_text().replace("gpt-4o-mini", "half") + "revoked: [support-widget]\n"
    )

    await stored.store.apply_revocations()

    assert stored.store.current.revision == old_snapshot.revision
    assert stored.store.current.revoked == {"support-widget"}
    assert stored.events() == ["policy.in_force", "policy.revoked"]
    assert stored.told == ["in_force"]


async def test_revocations_are_read_at_most_once_a_second(stored: StoreOverFolder) -> None:
    for _ in range(3):
        await stored.store.apply_revocations()

    assert stored.clock.slept == [0, 1, 1]


async def test_only_recent_revisions_are_found(stored: StoreOverFolder) -> None:
    revisions = [stored.store.current.revision]
    for number in range(MAX_REVISIONS):
        stored.file.write_text(f"{policies_for('http://127.0.0.1:9')}\n# {number}\n")
        await stored.store.refresh()
        revisions.append(stored.store.current.revision)

    assert stored.store.find_snapshot(revisions[0]) is None
    assert all(stored.store.find_snapshot(item) is not None for item in revisions[1:])


async def test_unexpected_error_keeps_snapshot_and_revocations(stored: StoreOverFolder) -> None:
    stored.raises = RecursionError("deep inside")
    (stored.folder / "revoked.yaml").write_text("revoked: [support-widget]\n")
    revision = stored.store.current.revision

    decided = await stored.store.reload_if_requested(HEAD)

    assert decided.snapshot is stored.store.current
    assert decided.snapshot.revision == revision
    assert stored.events()[1:] == ["policy.revoked", "policy.rejected"]
    assert stored.told[-1] == "rejected"
    problems = str(stored.log.entries[-1][1]["problems"])
    assert "cannot be read: unexpected RecursionError at tests.policy.test_store:" in problems


@pytest.mark.parametrize("key", ["hr-search-key", "hr-stranger"])
async def test_refresh_requires_permission(key: str, stored: StoreOverFolder) -> None:
    await stored.store.reload_if_requested(
        RequestHead(**{**_fields(HEAD), "digest": Secret(key).digest})
    )

    assert stored.readings == 1


def _fields(head: RequestHead) -> dict[str, Any]:
    return {name: getattr(head, name) for name in head.__dataclass_fields__}


async def test_concurrent_refreshes_share_a_reading_per_second(stored: StoreOverFolder) -> None:
    await asyncio.gather(*(stored.store.reload_if_requested(HEAD) for _ in range(50)))

    assert stored.readings <= 3
    assert all(wait <= 1 for wait in stored.clock.slept)


class Interrupted:
    """A reading that ends after a second one, and whose caller is cancelled meanwhile."""

    def __init__(self, stored: StoreOverFolder) -> None:
        self.stored = stored
        self.loop = asyncio.get_running_loop()
        self.patience = asyncio.timeout(None)
        self.another = threading.Event()

    def read(self) -> Snapshot:
        number = self.stored.readings
        snapshot: Snapshot = self.stored.read()
        if number == 1:
            self.loop.call_soon_threadsafe(self.patience.reschedule, self.loop.time())
            self.another.wait(10)
        elif number == 2:
            self.another.set()
        return snapshot

    def read_revocations(self) -> Revocations:
        return self.stored.read_revocations()

    async def leave(self, store: PolicyStore) -> None:
        with suppress(TimeoutError):
            async with self.patience:
                await store.reload_if_requested(HEAD)


async def let_others_come(seconds: float) -> None:
    await asyncio.sleep(0)


async def test_reading_of_cancelled_caller_is_repeated(stored: StoreOverFolder) -> None:
    stored.readings = 0
    slow = Interrupted(stored)
    store = PolicyStore(slow, time.monotonic, let_others_come, stored.log, print)
    old_snapshot = store.current.revision
    stored.file.write_text(stored.file.read_text().replace("gpt-4o-mini", "gpt-renamed"))

    _, decided = await asyncio.gather(slow.leave(store), store.reload_if_requested(HEAD))

    assert decided.snapshot.revision != old_snapshot
    assert slow.patience.expired()


async def test_revocation_applies_during_a_reload(stored: StoreOverFolder) -> None:
    """A reading that began before the revocation does not undo it."""
    started, may_end = threading.Event(), threading.Event()

    class SlowSource(PolicyFolder):
        def read(self) -> Snapshot:
            snapshot = super().read()
            if stored.readings:
                started.set()
                may_end.wait(PATIENCE_S)
            stored.readings += 1
            return snapshot

    stored.readings = 0
    folder = SlowSource(stored.folder, {"UPSTREAM_KEY": "sk"})
    store = PolicyStore(folder, time.monotonic, let_others_come, stored.log, stored.tell)
    async with asyncio.TaskGroup() as group:
        group.create_task(store.refresh())
        await asyncio.to_thread(started.wait, PATIENCE_S)
        (stored.folder / "revoked.yaml").write_text("revoked: [support-widget]\n")

        await store.apply_revocations()

        during = store.current.revoked
        may_end.set()
    assert during == store.current.revoked == {"support-widget"}


async def test_client_refreshes_by_header(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    route = ROUTES["enkrypt-chat"]
    file = proxy.policies / "policies.yaml"
    file.write_text(file.read_text().replace("model: gpt-4o-mini", "model: gpt-renamed"))
    for refresh, model in (("false", "gpt-4o-mini"), ("true", "gpt-renamed")):
        headers = {**route.credential, "x-enkrypt-refresh-cache": refresh}
        await proxy.send(route.path, route.body(streamed=False), headers)
        assert upstream.requests[-1].json["model"] == model


def blocks(stored: StoreOverFolder) -> int:
    """Return the number of allocated memory blocks, without those of the test."""
    stored.log.entries.clear()
    stored.clock.slept.clear()
    gc.collect()
    return sys.getallocatedblocks()


async def test_reloads_disturb_no_decision_and_leak_nothing(stored: StoreOverFolder) -> None:
    texts = [stored.file.read_text().replace("gpt-4o-mini", model) for model in ("odd", "even")]
    call = Call(replace(HEAD, bypass_cache=False), {}, requested_models=("support-chat",))
    served: dict[str, set[str]] = {}
    finished = asyncio.Event()

    async def decide() -> None:
        while not finished.is_set():
            active = await stored.store.reload_if_requested(call.head)
            plan = active.identify(call.head).decide(call)
            served.setdefault(plan.revision, set()).add(plan.model_calls[0].targets[0].model)
            await asyncio.sleep(0)

    async def reload(times: int) -> None:
        for number in range(times):
            stored.file.write_text(texts[number % 2])
            await stored.store.refresh()

    async with asyncio.TaskGroup() as group:
        group.create_task(decide())
        await reload(100)
        initial = blocks(stored)
        await reload(300)
        finished.set()

    assert stored.told.count("in_force") >= 399
    assert all(len(models) == 1 for models in served.values())
    assert {model for models in served.values() for model in models} >= {"odd", "even"}
    grown = blocks(stored) - initial
    assert grown < 300, f"{grown} blocks are left of 300 reloads"
