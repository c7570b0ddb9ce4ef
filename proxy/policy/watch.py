"""Notices that a folder of policies has changed, whichever way it was changed.

It looks, four times a second, at what the file system says of each file: an editor's rename, a
truncation and a new write, a swapped link of a mounted ConfigMap, a change that kept its old time
all show in an inode, a size or a change time. A change is acted upon once it has been still for
one look, so that a half-written file is seldom read.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

LOOK_S = 0.25
MAX_ENTRIES = 10_000

Look = frozenset[tuple[str, int, int, int, int]]


def look(folder: Path) -> Look:
    """Give what identifies the state of every file below a folder; links are followed."""
    seen: set[tuple[str, int, int, int, int]] = set()
    for at, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in (*names, "."):
            path = os.path.join(at, name)  # four times a second, for every file
            with suppress(OSError):
                said = os.stat(path)
                seen.add((path, said.st_ino, said.st_size, said.st_mtime_ns, said.st_ctime_ns))
        if len(seen) > MAX_ENTRIES:
            break
    return frozenset(seen)


class Watch:
    """Calls ``reload`` after each change while it runs, and when it is told to hurry.

    ``known`` is how the folder looked before it was read for the first time.
    """

    def __init__(self, folder: Path, known: Look, reload: Callable[[], Awaitable[None]]) -> None:
        self._folder = folder
        self._reload = reload
        self._known = known
        self._hurry = asyncio.Event()

    def hurry(self) -> None:
        """Read the folder now, changed or not."""
        self._hurry.set()

    async def run(self) -> None:
        """Look for as long as the process lives."""
        before = self._known
        while True:
            hurried = await self._hurried()
            now = await asyncio.to_thread(look, self._folder)
            if hurried or (now != self._known and now == before):
                self._known = now
                await self._reload()
            before = now

    async def _hurried(self) -> bool:
        """Wait for the next look; say whether it was asked for."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await self._hurry.wait()
        hurried = self._hurry.is_set()
        self._hurry.clear()
        return hurried
