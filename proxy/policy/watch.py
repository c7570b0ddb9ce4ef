"""Notices that a folder of policies has changed, whichever way it was changed.

It looks, four times a second, at what the file system says of each file: an editor's rename, a
truncation and a new write, a swapped link of a mounted ConfigMap, a change that kept its old time
all show in an inode, a size or a change time.

Files that belong together are saved one after another. So the folder is read once it has been still
for a while; what it revokes is read as soon as it has been still for one look, which is all that a
half-written file needs.
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
LONGEST_SETTLES = 10  # after so many times as long a folder that is never still is read as it is
MAX_ENTRIES = 10_000

Look = frozenset[tuple[str, int, int, int, int]]
Reading = Literal["nothing", "revocations", "all"]


def look_at(files: Iterable[str]) -> Look:
    """Return what identifies the state of some files; one that is not there has none."""
    seen: set[tuple[str, int, int, int, int]] = set()
    for path in files:
        _see(path, seen)
    return frozenset(seen)


def look_at_secrets(refs: Collection[str], tokens: CloudTokens | None) -> Look:
    """Look at the files of secrets, and at tokens."""
    seen = look_at(refs)
    return seen if tokens is None else seen | tokens.look(refs)


def look(folder: Path) -> Look:
    """Return what identifies the state of the files below a folder: those of policies, and up to
    ``MAX_ENTRIES`` others."""
    seen: set[tuple[str, int, int, int, int]] = set()
    walked = 0
    for at, names in folders_below(folder):
        for name in (*names, "."):
            if len(seen) < MAX_ENTRIES or is_policy(name):
                _see(os.path.join(at, name), seen)  # four times a second, for every file
        walked += 1 + len(names)
        if walked > MAX_WALKED:
            break
    return frozenset(seen)


def _see(path: str, seen: set[tuple[str, int, int, int, int]]) -> None:
    """Note what the file system says of a file, where there is one."""
    with suppress(OSError):
        status = os.stat(path)
        seen.add((path, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))


async def renewing(tokens: CloudTokens) -> None:
    """Renew tokens, in a thread for each cloud, for as long as the process lives: beside the looks
    at the folder, so that a cloud that does not answer delays no change of a policy, no revocation
    and no token of another cloud."""
    asked: set[str] = set()

    async def renew(cloud: str) -> None:
        try:
            await asyncio.to_thread(tokens.renew, cloud)
        finally:
            asked.discard(cloud)

    async with asyncio.TaskGroup() as group:
        while True:
            await asyncio.sleep(LOOK_S)
            for cloud in tokens.due() - asked:
                asked.add(cloud)
                group.create_task(renew(cloud))


class Stillness:
    """Decides from looks at a folder which files are to be read.

    ``known`` is how the folder looked before it was read last. A change is read once the folder has
    been still for ``settle_s``, or has been changing for ``LONGEST_SETTLES`` times as long.
    """

    def __init__(self, known: Look, settle_s: float) -> None:
        self._settle_s = settle_s
        self._known = self._before = self._revocations_of = known
        self._changed_at = self._still_since = 0.0

    def read(self, seen: Look) -> None:
        """Note that the folder is read as it looks now."""
        self._known = self._before = seen

    def reading(self, seen: Look, now: float) -> Reading:
        """Return what is to be read of a folder that looks so; ``now`` is in monotonic seconds."""
        if seen == self._known:
            self._before = seen
            return "nothing"
        if self._before == self._known:
            self._changed_at = now
        moved, self._before = seen != self._before, seen
        if moved:
            self._still_since = now
        if now - self._changed_at >= LONGEST_SETTLES * self._settle_s:
            return "all"
        if moved:
            return "nothing"
        if now - self._still_since >= self._settle_s:
            return "all"
        if seen == self._revocations_of:
            return "nothing"
        self._revocations_of = seen
        return "revocations"


class FolderWatch:
    """Calls ``reload`` after each change while it runs, and when it is told to hurry; before a
    change has settled, and while ``reload`` has not ended, ``revoke`` alone.

    ``known`` is what was seen before the folder was read for the first time, and ``seen`` returns,
    in a thread, what is to be seen now.
    """

    def __init__(
        self,
        seen: Callable[[], Look],
        known: Look,
        reload: Callable[[], Coroutine[None, None, None]],
        revoke: Callable[[], Awaitable[None]],
        settle_s: float,
        now: Callable[[], float],
    ) -> None:
        self._look = seen
        self._reload = reload
        self._revoke = revoke
        self._stillness = Stillness(known, settle_s)
        self._now = now
        self._hurry = asyncio.Event()

    def hurry(self) -> None:
        """Read the folder now, changed or not."""
        self._hurry.set()

    async def run(self) -> None:
        """Look for as long as the process lives."""
        reloading: asyncio.Task[None] | None = None
        hurried = False
        async with asyncio.TaskGroup() as group:
            while True:
                hurried |= await self._hurried()
                seen = await asyncio.to_thread(self._look)
                reading = "all" if hurried else self._stillness.reading(seen, self._now())
                if reading == "all" and (reloading is None or reloading.done()):
                    hurried = False
                    self._stillness.read(seen)
                    reloading = group.create_task(self._reload())
                elif reading != "nothing":
                    await self._revoke()

    async def _hurried(self) -> bool:
        """Wait for the next look; say whether it was asked for."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await self._hurry.wait()
        hurried = self._hurry.is_set()
        self._hurry.clear()
        return hurried


async def watching(watch: FolderWatch, tokens: CloudTokens) -> None:
    """Watch a folder and renew tokens, beside each other, for as long as the process lives."""
    async with asyncio.TaskGroup() as group:
        group.create_task(watch.run())
        group.create_task(renewing(tokens))
