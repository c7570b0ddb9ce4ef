"""Connects to Redis or Valkey: a single server or a cluster.

Callers name a key and a command. Routing in a cluster, error classes and encoding are here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol, cast
from urllib.parse import parse_qsl, urlsplit

import hiredis
from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.connection import AbstractConnection, SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError, ResponseError

from proxy.errors.causes import get_cause
from proxy.errors.words import join_names

MIN_IDLE_S = 0.02
MAX_CHECKS = 50
CONNECTION_OPTIONS: dict[str, Any] = {
    "socket_timeout": None,
    "socket_connect_timeout": None,
    "retry": Retry(NoBackoff(), 0),
}
"""Connection options without timeouts: redis-py would use ``asyncio.wait_for``, which swallows
cancellations in Python 3.11 and starts a task for each command."""
REDIS_ERRORS = (RedisError, OSError, EOFError, ValueError, RuntimeError, AttributeError)
"""Exceptions of a request. The last four are raised for malformed replies, and for a cluster
that redirects to an unknown server."""
CommandWord = str | bytes | int


class RedisServer(Protocol):
    """Client of a server or a cluster.

    Connects on demand, with one connection per concurrent request. Never retries: only the caller
    knows whether a command may run twice.
    """

    async def run_command(self, key: str | bytes, *command: CommandWord) -> Any:
        """Run a command at the server of ``key``. Raises ``TimeoutError``."""

    async def run_commands(self, commands: Iterable[Sequence[CommandWord]]) -> None:
        """Run commands with one key each, in one round trip per server. Raises ``TimeoutError``."""

    async def aclose(self) -> None: ...


@asynccontextmanager
async def timeout_extended_while_loop_busy(seconds: float) -> AsyncIterator[None]:
    """Raise ``TimeoutError`` after ``seconds``, or later if the event loop was too busy to read."""
    loop = asyncio.get_running_loop()
    due, checks = loop.time() + max(0.0, seconds - MIN_IDLE_S), 0
    handle: asyncio.TimerHandle

    def expire_or_wait() -> None:
        """Expire once the loop has had ``MIN_IDLE_S`` seconds for replies."""
        nonlocal due, checks, handle
        checks += 1
        is_busy = loop.time() - due > MIN_IDLE_S / 2
        if checks == 1 or (is_busy and checks < MAX_CHECKS):
            due = loop.time() + MIN_IDLE_S
            handle = loop.call_at(due, expire_or_wait)  # noqa: F821  # deleted at the end
        else:
            bound.reschedule(loop.time())

    async with asyncio.timeout(None) as bound:
        handle = loop.call_at(due, expire_or_wait)
        try:
            yield
        finally:
            handle.cancel()
            del expire_or_wait  # it refers to itself: a reload would freeze the cycle forever


class SingleServerClient:
    """Client of one server."""

    def __init__(self, url: str, timeout_s: float) -> None:
        pool = ConnectionPool.from_url(url, **CONNECTION_OPTIONS)
        pool.connection_class = _add_hiredis_packing(pool.connection_class)
        pool.make_connection()  # type: ignore[no-untyped-call]  # tells of a wrong option now
        self._client = Redis.from_pool(pool)
        self._timeout_s = timeout_s

    async def run_command(self, key: str | bytes, *command: CommandWord) -> Any:
        async with timeout_extended_while_loop_busy(self._timeout_s):
            return await self._client.execute_command(*command)  # type: ignore[no-untyped-call]

    async def run_commands(self, commands: Iterable[Sequence[CommandWord]]) -> None:
        async with (
            timeout_extended_while_loop_busy(self._timeout_s),
            self._client.pipeline(transaction=False) as together,
        ):
            for command in commands:
                _ = together.execute_command(*command)
            await together.execute()

    async def aclose(self) -> None:
        await self._client.aclose()


class ClusterClient:
    """Client of a cluster. Follows moved slots, and reloads all slots after a failure."""

    def __init__(self, urls: Sequence[str], timeout_s: float) -> None:
        first_url, *_ = parts = [cast("dict[str, Any]", parse_url(url)) for url in urls]
        nodes = [ClusterNode(part["host"], part.get("port", 6379)) for part in parts]
        options = {name: first_url[name] for name in first_url.keys() - {"host", "port", "db"}}
        secure = options.pop("connection_class", None) is not None
        self._client = RedisCluster(
            startup_nodes=nodes, ssl=secure, **(options | CONNECTION_OPTIONS)
        )
        kwargs = self._client.connection_kwargs
        kwargs["connection_class"] = _add_hiredis_packing(kwargs["connection_class"])
        self._timeout_s = timeout_s
        self._failing = False
        self._last_node_name: str | None = None

    async def run_command(self, key: str | bytes, *command: CommandWord) -> Any:
        """Choose the server first, because the library would otherwise hash every argument."""
        async with self._bound_round_trip():
            node = self._client.get_node_from_key(cast("str", key))
            self._last_node_name = node.name if node else None
            return await self._client.execute_command(*command, target_nodes=node)

    @asynccontextmanager
    async def _bound_round_trip(self) -> AsyncIterator[None]:
        """Bound the time of a round trip. If the last one failed, reload the slots first."""
        try:
            async with timeout_extended_while_loop_busy(self._timeout_s):
                if self._failing:
                    await self._client.aclose()
                _ = await self._client.initialize(last_failed_node_name=self._last_node_name)
                self._failing = False
                yield
        except ResponseError:  # the server answered, so it is reachable
            raise
        except REDIS_ERRORS:
            self._failing = True
            raise

    async def run_commands(self, commands: Iterable[Sequence[CommandWord]]) -> None:
        async with self._bound_round_trip(), self._client.pipeline() as together:
            for command in commands:
                _ = together.execute_command(*command)
            _ = await together.execute()

    async def aclose(self) -> None:
        await self._client.aclose()


def get_fault_cause(error: BaseException | None) -> str:
    """Return the cause of a failure, without addresses and credentials.

    It is ``auth``, ``permission``, a cause of ``proxy.errors.causes``, or an exception name.
    """
    name = type(error).__name__
    while error is not None:
        if isinstance(error, (AuthenticationError, NoPermissionError)):
            return "permission" if isinstance(error, NoPermissionError) else "auth"
        if isinstance(error, TimeoutError):
            return "timeout"
        if isinstance(error, OSError) and not isinstance(error, RedisError):
            return get_cause(error)
        error = error.__cause__ or error.__context__
    return name


def _check_tls_files(url: str) -> None:
    """Load the files named in the options of a URL. Raises ``ValueError``."""
    options = [f"{name}={value}" for name, value in parse_qsl(urlsplit(url).query)]
    files = [option for option in options if option.startswith("ssl_") and "/" in option]
    connection = ConnectionPool.from_url(url).make_connection()  # type: ignore[no-untyped-call]
    if not files or not isinstance(connection, SSLConnection):
        return
    try:
        connection.ssl_context.get()
    except (OSError, TypeError, RedisError) as error:  # the library's error does not name the file
        why = getattr(error, "strerror", None) or "not a valid certificate"
        raise ValueError(f"cannot load the TLS files {join_names(files)}: {why}") from None


def create_client(urls: Sequence[str], timeout_s: float, *, cluster: bool = False) -> RedisServer:
    """Return a client for a server, or for the cluster of ``urls``. Connects on first use.

    A request takes at most ``timeout_s``. Raises ``ValueError``, without parts of a URL, for an
    invalid option or a file that cannot be loaded.
    """
    try:
        server: RedisServer = (
            ClusterClient(urls, timeout_s) if cluster else SingleServerClient(urls[0], timeout_s)
        )
    except (TypeError, ValueError):  # the library's messages may quote the URL
        raise ValueError("an option after the ? is unknown or has an invalid value") from None
    _check_tls_files(urls[0])
    return server


class HiredisPacking:
    """Connection mixin that packs commands with hiredis, which halves the cost of a call."""

    def pack_command(self, *args: str | int | bytes) -> list[bytes]:
        # A command of the library, such as CLUSTER SLOTS.
        if isinstance(args[0], str) and " " in args[0]:
            args = (*args[0].split(), *args[1:])
        return [hiredis.pack_command(cast("tuple[str]", args))]


def _add_hiredis_packing(kind: type[AbstractConnection]) -> type[AbstractConnection]:
    return type("Packed", (HiredisPacking, kind), {})
