"""Watching of the policy folder, however files change."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from proxy.policy.watch import (
    MAX_SETTLE_TIMES,
    WATCH_INTERVAL_S,
    ChangeDebouncer,
    FileStates,
    FolderWatch,
    read_all_file_states,
)
from proxy.runtime.background import background_task
from tests.cache.stores import until
from tests.cli.test_init import Served, serving
from tests.conftest import policies_for, running_proxy
from tests.doubles import PATIENCE_S, ScriptedUpstream
from tests.for_each import for_each
from tests.servers import eventually
from tests.test_pipeline import BEARER, ROUTES

ROUTE = ROUTES["openai"]


class Reloads:
    def __init__(self) -> None:
        self.arrived = asyncio.Event()
        self.count = 0

    async def reload(self) -> None:
        self.count += 1
        self.arrived.set()

    async def revoke(self) -> None:
        """Revocations are read before a change has settled."""

    async def wait(self) -> None:
        async with asyncio.timeout(30):
            await self.arrived.wait()
        self.arrived.clear()


def watch(folder: Path, expected: FileStates, reloads: Reloads) -> FolderWatch:
    return FolderWatch(
        partial(read_all_file_states, folder),
        expected,
        reloads.reload,
        reloads.revoke,
        0.5,
        time.monotonic,
    )


def state(text: str) -> FileStates:
    """Return the state of a folder with one file of this text."""
    return frozenset({(text, 1, 1, 1, 1)})


def readings(looks: str, settle_s: float = 0.5) -> list[str]:
    """Return the readings after each state. Each letter is a state; the first load saw `k`."""
    stillness, read = ChangeDebouncer(state("k"), settle_s), []
    for number, letter in enumerate(looks):
        reading = stillness.next_action(state(letter), number * WATCH_INTERVAL_S)
        if reading == "all":
            stillness.mark_loaded(state(letter))
        read.append({"nothing": "-", "revocations": "r", "all": "A"}[reading])
    return read


@for_each(
    ("looks", "settle_s", "read"),
    [
        ("kkkk", 0.5, "----"),
        ("kaaaa", 0.5, "--rA-"),
        ("kaaaaaaa", 1.0, "--r--A--"),
        ("kaaaaa", 0.25, "--A---"),
        ("kabbbb", 0.5, "---rA-"),
        ("kaabbb", 0.5, "--r-rA"),
        ("kaakkk", 0.5, "--r---"),
        ("kabkkk", 0.5, "------"),
        ("kaaaabbbb", 0.5, "--rA--rA-"),
    ],
    ids=[
        "still",
        "one change",
        "a longer wait",
        "the shortest wait",
        "two files at once",
        "two files one after another",
        "taken back",
        "taken back at once",
        "two changes",
    ],
)
def test_waits_for_settled_folder(looks: str, settle_s: float, read: str) -> None:
    assert "".join(readings(looks, settle_s)) == read


def test_continuously_changing_folder_is_read_eventually() -> None:
    read = readings("".join(map(chr, range(200, 266))), settle_s=0.5)

    assert read.index("A") * WATCH_INTERVAL_S == MAX_SETTLE_TIMES * 0.5
    assert read.count("A") == 3
    assert "r" not in read


@pytest.fixture
async def watched(tmp_path: Path) -> AsyncIterator[tuple[Path, Reloads]]:
    folder = tmp_path / "policies"
    folder.mkdir()
    (folder / "tags.yaml").write_text("tags: {team: [support]}\n")
    reloads = Reloads()
    async with background_task(watch(folder, read_all_file_states(folder), reloads).run()):
        yield folder, reloads


def rewrite(folder: Path) -> None:
    (folder / "tags.yaml").write_text("tags: {team: [search]}\n")


def rename_over(folder: Path) -> None:
    (folder / ".tags.yaml.swp").write_text("tags: {team: [search]}\n")
    os.replace(folder / ".tags.yaml.swp", folder / "tags.yaml")


def keep_size_and_time(folder: Path) -> None:
    file = folder / "tags.yaml"
    initial = file.stat()
    file.write_text("tags: {team: [suppose]}\n"[:24])
    os.utime(file, ns=(initial.st_atime_ns, initial.st_mtime_ns))


def add_a_file(folder: Path) -> None:
    (folder / "more").mkdir()
    (folder / "more" / "keys.yaml").write_text("keys: {}\n")


def remove_the_file(folder: Path) -> None:
    (folder / "tags.yaml").unlink()


@pytest.mark.parametrize(
    "change", [rewrite, rename_over, keep_size_and_time, add_a_file, remove_the_file]
)
async def test_change_is_noticed(
    change: Callable[[Path], None], watched: tuple[Path, Reloads]
) -> None:
    folder, reloads = watched

    change(folder)

    await reloads.wait()


async def test_unchanged_folder_is_not_read(watched: tuple[Path, Reloads]) -> None:
    _, reloads = watched

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await reloads.arrived.wait()

    assert reloads.count == 0


async def test_revocations_are_read_during_a_reload(tmp_path: Path) -> None:
    revoked, reloading, may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()
    reloads = 0

    async def reload() -> None:
        nonlocal reloads
        reloads += 1
        reloading.set()
        await may_end.wait()

    async def revoke() -> None:
        if reloading.is_set():
            revoked.set()

    observed = partial(read_all_file_states, tmp_path)
    watching = FolderWatch(observed, observed(), reload, revoke, 0.25, time.monotonic)
    async with background_task(watching.run()), asyncio.timeout(PATIENCE_S):
        watching.request_reload()
        await reloading.wait()
        (tmp_path / "revoked.yaml").write_text("revoked: [alice]\n")
        await revoked.wait()
        assert reloads == 1
        may_end.set()
        await eventually(lambda: reloads == 2)


async def test_change_before_the_first_check_is_noticed(tmp_path: Path) -> None:
    reloads, expected = Reloads(), read_all_file_states(tmp_path)
    (tmp_path / "tags.yaml").write_text("tags: {}\n")

    async with background_task(watch(tmp_path, expected, reloads).run()):
        await reloads.wait()


async def test_restored_folder_is_noticed(watched: tuple[Path, Reloads]) -> None:
    folder, reloads = watched

    folder.rename(folder.with_name("elsewhere"))
    await reloads.wait()
    folder.with_name("elsewhere").rename(folder)
    await reloads.wait()


def mount(volume: Path, number: int, policies: str) -> None:
    """Write a revision as Kubernetes mounts a ConfigMap: a folder and a link that is swapped."""
    revision = volume / f"..revision_{number}"
    revision.mkdir()
    (revision / "policies.yaml").write_text(policies)
    (volume / "..data_tmp").symlink_to(revision.name)
    os.replace(volume / "..data_tmp", volume / "..data")
    file = volume / "policies.yaml"
    if not file.is_symlink():
        file.unlink(missing_ok=True)
        file.symlink_to("..data/policies.yaml")


async def asked_model(url: str, upstream: ScriptedUpstream) -> Any:
    async with (
        ClientSession() as client,
        client.post(
            url + ROUTE.path, headers=BEARER, json={"model": "support-chat", "prompt": "p"}
        ) as response,
    ):
        assert response.status == 200
    return upstream.requests[-1].json["model"]


async def test_live_process_follows_revisions(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    def revision(number: int) -> str:
        return policies_for(upstream.url).replace("gpt-4o-mini", f"model-{number}")

    folder = tmp_path / "policies"
    file = folder / "policies.yaml"
    async with serving(folder, revision(1)) as (served, url):
        assert await asked_model(url, upstream) == "model-1"

        file.write_text(revision(2))  # 1. rewritten in place
        await in_force(served)
        assert await asked_model(url, upstream) == "model-2"

        file.write_text("upstream: {}\n")  # 2. invalid: the last valid revision stays
        rejected = await served.line("policy.rejected")
        assert '. Did you mean "upstreams"?' in rejected["problems"][0]
        assert await asked_model(url, upstream) == "model-2"

        (folder / "new").write_text(revision(3))  # 3. repaired by a rename
        os.replace(folder / "new", file)
        await in_force(served)
        assert await asked_model(url, upstream) == "model-3"

        mount(folder, 1, revision(4))  # 4. a mounted ConfigMap is swapped
        await in_force(served)
        mount(folder, 2, revision(5))
        await in_force(served)
        assert await asked_model(url, upstream) == "model-5"

        served.process.send_signal(signal.SIGHUP)  # 5. SIGHUP without a change
        file.unlink()  # 6. removed: the last valid revision stays
        await served.line("policy.rejected")
        assert await asked_model(url, upstream) == "model-5"


async def in_force(served: Served) -> None:
    await served.line("policy.in_force")


@pytest.mark.parametrize("how", ["written", "swapped"])
async def test_changed_secret_file_is_read(
    how: str, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    for name in ("first", "second"):
        (tmp_path / name).write_text(f"sk-{name}\n")
    if how == "swapped":
        secret.symlink_to(tmp_path / "first")
    else:
        secret.write_text("sk-first")
    text = policies_for(upstream.url).replace("'${UPSTREAM_KEY}'", f"'file:{secret}'")
    body = ROUTE.body(streamed=False)
    async with running_proxy(tmp_path / "p", text) as proxy:
        await proxy.send(ROUTE.path, body)
        (tmp_path / "next").symlink_to(tmp_path / "second")
        if how == "swapped":
            os.replace(tmp_path / "next", secret)
        else:
            secret.write_text("sk-second")
        async with asyncio.timeout(PATIENCE_S):
            while upstream.requests[-1].headers["authorization"] != "Bearer sk-second":
                assert (await proxy.send(ROUTE.path, body)).status == 200

    assert upstream.requests[0].headers["authorization"] == "Bearer sk-first"


async def test_folder_recovers_with_its_secret(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    secret, body = tmp_path / "secret", ROUTE.body(streamed=False)
    text = policies_for(upstream.url)
    async with running_proxy(tmp_path / "p", text) as proxy:

        async def rejected() -> bool:
            results = await proxy.metrics()
            return 'reloads_total{result="rejected"} 0.0' not in results

        async def is_new_secret() -> bool:
            assert (await proxy.send(ROUTE.path, body)).status == 200
            return upstream.requests[-1].headers["authorization"] == "Bearer sk-later"

        changed = text.replace("'${UPSTREAM_KEY}'", f"'file:{secret}'")
        (proxy.policies / "policies.yaml").write_text(changed)
        await until(rejected)
        secret.write_text("sk-later")
        await until(is_new_secret)
