"""The addresses of hosts: looked up once for all who ask, in threads that do nothing else.

The loop's own threads are few, and a lookup may hang for as long as the system has patience. Here a
lookup that hangs holds up those alone who want the same name for the first time.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeAlias

NAMES_KEPT_S = 30.0
AGAIN_S = 1.0
OVERDUE_S = 1.0
MAX_NAMES = 1024
MAX_ADDRESSES = 4
MAX_LOOKUPS = 64
Found: TypeAlias = "asyncio.Future[list[Any]]"
_UNKNOWN = frozenset({socket.EAI_NONAME, socket.EAI_NODATA})  # an answer, and no failure to answer


class LookUp(Protocol):
    """What asks the system and blocks meanwhile: ``socket.getaddrinfo``."""

    def __call__(self, host: str, port: int, *, type: int) -> list[Any]: ...


class Resolve(Protocol):
    """What asks for a name without holding up the loop."""

    def __call__(self, host: str, port: int, *, type: int) -> Found: ...


class Resolver:
    """Lookups in threads of their own, at most ``most`` at a time; those that come then wait.

    A thread ends with its lookup, and never keeps the process from ending.
    """

    def __init__(self, look_up: LookUp = socket.getaddrinfo, most: int = MAX_LOOKUPS) -> None:
        self._look_up = look_up
        self._most = most
        self._busy = 0
        self._waiting: deque[tuple[Found, Callable[[], list[Any]]]] = deque()

    def __call__(self, host: str, port: int, *, type: int) -> Found:
        """Return what will hold what the system says, or raise as it does."""
        found: Found = asyncio.get_running_loop().create_future()
        self._waiting.append((found, partial(self._look_up, host, port, type=type)))
        self._start()
        return found

    def _start(self) -> None:
        while self._waiting and self._busy < self._most:
            found, ask = self._waiting.popleft()
            if found.done():
                continue
            try:
                threading.Thread(target=self._run, args=(found, ask), daemon=True).start()
            except RuntimeError:
                found.set_exception(OSError("there is no thread left to look up names"))
            else:
                self._busy += 1

    def _run(self, found: Found, ask: Callable[[], list[Any]]) -> None:
        """Ask in a thread, and tell the loop, if that is still there."""
        try:
            finish = partial(self._finish, found, ask(), None)
        except (OSError, ValueError, OverflowError) as error:
            finish = partial(self._finish, found, [], error)
        with suppress(RuntimeError):
            found.get_loop().call_soon_threadsafe(finish)

    def _finish(self, found: Found, addresses: list[Any], error: Exception | None) -> None:
        self._busy -= 1
        self._start()
        if found.done():
            return
        if error is None:
            found.set_result(addresses)
        else:
            found.set_exception(error)


@dataclass(slots=True)
class _Name:
    """What a host's name led to, until when, and the lookup that is under way, if one is."""

    addresses: list[str] = field(default_factory=list)
    until: float = 0.0
    lookup: Found | None = None
    overdue_at: float = 0.0


class Names:
    """The addresses of hosts, kept for ``NAMES_KEPT_S`` by the clock ``now``.

    There is one lookup of a name at a time, whoever gives up waiting for it. While the resolver
    fails, or takes longer than ``overdue_s``, the last addresses are good.
    """

    def __init__(
        self, resolve: Resolve, now: Callable[[], float], overdue_s: float = OVERDUE_S
    ) -> None:
        self._resolve = resolve
        self._now = now
        self._overdue_s = overdue_s
        self._names: dict[str, _Name] = {}

    async def addresses(self, host: str, port: int) -> list[str]:
        """Return at least one address; those that could not be reached come last.

        Raise ``OSError`` or ``ValueError``.
        """
        if _is_address(host):
            return [host]
        name = self._names.get(host)
        if name is None:
            if len(self._names) >= MAX_NAMES:
                self._names.clear()
            name = self._names[host] = _Name()
        if self._now() >= name.until:
            lookup = name.lookup or self._begin(name, host, port)
            if lookup.done():  # its callback is due: who waits for it here would not wait at all
                self._end(name, lookup)
            if name.addresses:
                await asyncio.wait({lookup}, timeout=max(0.0, name.overdue_at - self._now()))
            if not name.addresses:
                await asyncio.shield(lookup)
        return name.addresses[:MAX_ADDRESSES]

    def _begin(self, name: _Name, host: str, port: int) -> Found:
        name.overdue_at = self._now() + self._overdue_s
        name.lookup = self._resolve(host, port, type=socket.SOCK_STREAM)
        name.lookup.add_done_callback(partial(self._end, name))
        return name.lookup

    def _end(self, name: _Name, lookup: Found) -> None:
        """Take what a lookup has found, once, before those who wait for it are woken."""
        if name.lookup is not lookup:
            return
        name.lookup = None
        error = None if lookup.cancelled() else lookup.exception()
        if error is None and not lookup.cancelled():
            name.addresses = list(dict.fromkeys(str(found[4][0]) for found in lookup.result()))
            name.until = self._now() + NAMES_KEPT_S
        elif isinstance(error, OSError) and error.errno in _UNKNOWN:
            name.addresses = []
        else:
            name.until = self._now() + AGAIN_S if name.addresses else 0.0

    def failed(self, host: str, address: str) -> None:
        """Let an address that was not reached be the last to be tried."""
        name = self._names.get(host)
        if name is not None and address in name.addresses:
            name.addresses = [found for found in name.addresses if found != address] + [address]


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
