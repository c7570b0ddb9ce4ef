"""Watches a policy folder for changes.

Every 250 ms it compares the inode, size and times of each file. So it notices all kinds of changes:
a renamed or truncated file, a new target of a link in a mounted ConfigMap, a change that preserves
the modification time.

Several files are often saved one after the other. So the folder is reloaded after it has been
unchanged for a while. Revocations are read after it has been unchanged for one interval, which is
enough for a file to be complete.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from proxy.policy.files.cloud_tokens import CloudTokens
from proxy.policy.files.load import MAX_WALKED, folders_below, is_policy

LOOK_S = 0.25
LONGEST_SETTLES = 10  # a folder that keeps changing is reloaded after so many settling times
MAX_ENTRIES = 10_000

Look = frozenset[tuple[str, int, int, int, int]]
"""State of files: path, inode, size, modification and change time in ns."""
Reading = Literal["nothing", "revocations", "all"]


def look_at(files: Iterable[str]) -> Look:
    """Return the state of the files that exist."""
    states: set[tuple[str, int, int, int, int]] = set()
    for path in files:
        with suppress(OSError):
            status = os.stat(path)
            times = status.st_mtime_ns, status.st_ctime_ns
            states.add((path, status.st_ino, status.st_size, *times))
    return frozenset(states)


def look_at_secrets(refs: Collection[str], tokens: CloudTokens | None) -> Look:
    """Return the state of files with secrets, and of tokens."""
    states = look_at(refs)
    return states if tokens is None else states | tokens.look(refs)


def look(folder: Path) -> Look:
    """Return the state of all policies below a folder, and of up to ``MAX_ENTRIES`` other files."""
    paths: list[str] = []
    walked = 0
    for at, names in folders_below(folder):
        for name in (*names, "."):
            if len(paths) < MAX_ENTRIES or is_policy(name):
                paths.append(os.path.join(at, name))
        walked += 1 + len(names)
        if walked > MAX_WALKED:
            break
    return look_at(paths)


async def renewing(tokens: CloudTokens) -> None:
    """Renew tokens forever, in a thread for each cloud, so that no cloud delays another."""
    running: set[str] = set()

    async def renew(cloud: str) -> None:
        try:
            await asyncio.to_thread(tokens.renew, cloud)
        finally:
            running.discard(cloud)

    async with asyncio.TaskGroup() as group:
        while True:
            await asyncio.sleep(LOOK_S)
            for cloud in tokens.due() - running:
                running.add(cloud)
                group.create_task(renew(cloud))


class Stillness:
    """Decides what to read, given the state of a folder at each interval.

    A change is read once the folder has been unchanged for ``settle_s``, or has been changing for
    ``LONGEST_SETTLES`` times as long. ``known`` is the state before the first load.
    """

    def __init__(self, known: Look, settle_s: float) -> None:
        self._settle_s = settle_s
        self._known = self._last = self._revocations_of = known
        self._changed_at = self._still_since = 0.0

    def read(self, state: Look) -> None:
        """Record that the folder is loaded in a state."""
        self._known = self._last = state

    def reading(self, state: Look, now: float) -> Reading:
        """Return what to read, at a monotonic time in seconds."""
        if state == self._known:
            self._last = state
            return "nothing"
        if self._last == self._known:
            self._changed_at = now
        is_moving, self._last = state != self._last, state
        if is_moving:
            self._still_since = now
        if now - self._changed_at >= LONGEST_SETTLES * self._settle_s:
            return "all"
        if is_moving:
            return "nothing"
        if now - self._still_since >= self._settle_s:
            return "all"
        if state == self._revocations_of:
            return "nothing"
        self._revocations_of = state
        return "revocations"


class FolderWatch:
    """Calls ``reload`` after each change, and ``revoke`` before a change has settled and while
    ``reload`` runs.

    ``known`` is the state before the first load. ``look`` returns the state, in a thread.
    """

    def __init__(
        self,
        look: Callable[[], Look],
        known: Look,
        reload: Callable[[], Coroutine[None, None, None]],
        revoke: Callable[[], Awaitable[None]],
        settle_s: float,
        now: Callable[[], float],
    ) -> None:
        self._look = look
        self._reload = reload
        self._revoke = revoke
        self._stillness = Stillness(known, settle_s)
        self._now = now
        self._hurry = asyncio.Event()

    def hurry(self) -> None:
        """Reload now, even without a change."""
        self._hurry.set()

    async def run(self) -> None:
        """Watch forever."""
        reloading: asyncio.Task[None] | None = None
        is_requested = False
        async with asyncio.TaskGroup() as group:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self._hurry.wait()
                is_requested |= self._hurry.is_set()
                self._hurry.clear()
                state = await asyncio.to_thread(self._look)
                reading = self._stillness.reading(state, self._now()) if not is_requested else "all"
                if reading == "all" and (reloading is None or reloading.done()):
                    is_requested = False
                    self._stillness.read(state)
                    reloading = group.create_task(self._reload())
                elif reading != "nothing":
                    await self._revoke()


async def watching(watch: FolderWatch, tokens: CloudTokens) -> None:
    """Watch a folder and renew tokens forever."""
    async with asyncio.TaskGroup() as group:
        group.create_task(watch.run())
        group.create_task(renewing(tokens))
