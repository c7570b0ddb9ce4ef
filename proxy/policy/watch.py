"""Watches a folder of policies and the files with secrets, and renews cloud tokens.

Every 250 ms the watch compares the inode, size and times of each file. This detects a renamed or
truncated file, a new target of a link in a mounted ConfigMap, and a change that preserves the
modification time. Several files are often saved one after the other, so the folder is reloaded
after it has been unchanged for a while. Revocations are read after one unchanged interval, when a
file is complete.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from proxy.policy.files.cloud_tokens import CloudTokens
from proxy.policy.files.load import MAX_WALKED_ENTRIES, is_policy_file, walk_folders

WATCH_INTERVAL_S = 0.25
MAX_SETTLE_TIMES = 10  # a folder that keeps changing is reloaded after this many settling times
MAX_OTHER_FILES = 10_000

FileStates = frozenset[tuple[str, int, int, int, int]]
"""Path, inode, size, modification time and change time (ns) of each file."""
ReadAction = Literal["nothing", "revocations", "all"]


def read_file_states(files: Iterable[str]) -> FileStates:
    """Return the state of the files that exist."""
    states: set[tuple[str, int, int, int, int]] = set()
    for path in files:
        with suppress(OSError):
            status = os.stat(path)
            times = status.st_mtime_ns, status.st_ctime_ns
            states.add((path, status.st_ino, status.st_size, *times))
    return frozenset(states)


def read_secret_states(refs: Collection[str], tokens: CloudTokens | None) -> FileStates:
    """Return the state of files with secrets, and of tokens."""
    states = read_file_states(refs)
    return states if tokens is None else states | tokens.list_states_and_forget_others(refs)


def read_all_file_states(folder: Path) -> FileStates:
    """Return the state of a folder: all policies, and up to ``MAX_OTHER_FILES`` other files."""
    paths: list[str] = []
    count = 0
    for path, names in walk_folders(folder):
        for name in (*names, "."):
            if len(paths) < MAX_OTHER_FILES or is_policy_file(name):
                paths.append(os.path.join(path, name))
        count += 1 + len(names)
        if count > MAX_WALKED_ENTRIES:
            break
    return read_file_states(paths)


async def run_token_renewal(tokens: CloudTokens) -> None:
    """Renew due tokens until cancelled, in a thread per cloud, so that no cloud delays another."""
    running: set[str] = set()

    async def renew(cloud: str) -> None:
        try:
            await asyncio.to_thread(tokens.renew, cloud)
        finally:
            running.discard(cloud)

    async with asyncio.TaskGroup() as group:
        while True:
            await asyncio.sleep(WATCH_INTERVAL_S)
            for cloud in tokens.list_due_clouds() - running:
                running.add(cloud)
                group.create_task(renew(cloud))


class ChangeDebouncer:
    """Decides what to read, given the state of a folder at each interval.

    A change is read once the folder has been unchanged for ``settle_s``, or has been changing for
    ``MAX_SETTLE_TIMES`` times as long. ``state`` is the state before the first load.
    """

    def __init__(self, state: FileStates, settle_s: float) -> None:
        self._settle_s = settle_s
        self._loaded_state = self._last_state = self._revocation_state = state
        self._changed_at = self._unchanged_since = 0.0

    def mark_loaded(self, state: FileStates) -> None:
        """Record that the folder is loaded in a state."""
        self._loaded_state = self._last_state = state

    def next_action(self, state: FileStates, now: float) -> ReadAction:
        """Return what to read, given the state of the folder at ``now`` (monotonic seconds)."""
        if state == self._loaded_state:
            self._last_state = state
            return "nothing"
        if self._last_state == self._loaded_state:
            self._changed_at = now
        is_changing, self._last_state = state != self._last_state, state
        if is_changing:
            self._unchanged_since = now
        if now - self._changed_at >= MAX_SETTLE_TIMES * self._settle_s:
            return "all"
        if is_changing:
            return "nothing"
        if now - self._unchanged_since >= self._settle_s:
            return "all"
        if state == self._revocation_state:
            return "nothing"
        self._revocation_state = state
        return "revocations"


class FolderWatch:
    """Watches a folder, and calls ``reload`` after each change.

    ``revoke`` is also called before a change has settled and while ``reload`` runs. ``state`` is
    the state before the first load. ``read_state`` runs in a thread.
    """

    def __init__(
        self,
        read_state: Callable[[], FileStates],
        state: FileStates,
        reload: Callable[[], Coroutine[None, None, None]],
        revoke: Callable[[], Awaitable[None]],
        settle_s: float,
        now: Callable[[], float],
    ) -> None:
        self._read_state = read_state
        self._reload = reload
        self._revoke = revoke
        self._debouncer = ChangeDebouncer(state, settle_s)
        self._now = now
        self._reload_requested = asyncio.Event()

    def request_reload(self) -> None:
        """Reload now, even without a change."""
        self._reload_requested.set()

    async def run(self) -> None:
        """Watch until cancelled."""
        reloading: asyncio.Task[None] | None = None
        is_requested = False
        async with asyncio.TaskGroup() as group:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(WATCH_INTERVAL_S):
                        await self._reload_requested.wait()
                is_requested |= self._reload_requested.is_set()
                self._reload_requested.clear()
                state = await asyncio.to_thread(self._read_state)
                action = "all" if is_requested else self._debouncer.next_action(state, self._now())
                if action == "all" and (reloading is None or reloading.done()):
                    is_requested = False
                    self._debouncer.mark_loaded(state)
                    reloading = group.create_task(self._reload())
                elif action != "nothing":
                    await self._revoke()


async def watch_and_renew(watch: FolderWatch, tokens: CloudTokens) -> None:
    """Watch a folder and renew tokens until cancelled."""
    async with asyncio.TaskGroup() as group:
        group.create_task(watch.run())
        group.create_task(run_token_renewal(tokens))
