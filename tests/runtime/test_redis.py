"""Connecting to real servers: with TLS and users, and to clusters whose slots move."""

from __future__ import annotations

import asyncio
import gc
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from redis.exceptions import AuthenticationError, NoPermissionError

from proxy.limits.stores.redis import RedisStore
from proxy.limits.stores.store import StoreUnavailable
from proxy.runtime.redis import (
    REDIS_ERRORS,
    RedisServer,
    create_client,
    timeout_extended_while_loop_busy,
)
from proxy.runtime.redis_settings import RedisLocation, parse_redis_url
from tests import servers
from tests.for_each import for_each
from tests.servers import Cluster, eventually, running_cluster, running_server

WORD = "hr-test-password"
SECOND = "return redis.call('INCR', KEYS[1])"
PATIENCE_S = 20


@asynccontextmanager
async def connected(position: RedisLocation, timeout_s: float = 5.0) -> AsyncIterator[RedisServer]:
    server = create_client(position.urls, timeout_s, cluster=position.cluster)
    try:
        yield server
    finally:
        await server.aclose()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running_cluster(tmp_path / "cluster") as running:
        yield running


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A folder with a self-signed certificate for localhost."""
    command = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    names = ("-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost")
    files = ("-keyout", f"{tmp_path}/key.pem", "-out", f"{tmp_path}/cert.pem")
    openssl = [servers.program("openssl"), *command.split(), *names, *files]
    subprocess.run(openssl, check=True, capture_output=True)
    return tmp_path


def secured(folder: Path) -> tuple[str, ...]:
    files = ("--tls-cert-file", str(folder / "cert.pem"), "--tls-key-file", str(folder / "key.pem"))
    return (*files, "--tls-ca-cert-file", str(folder / "cert.pem"), "--tls-auth-clients", "no")


async def test_connects_with_tls_and_users(certificate: Path) -> None:
    port = servers.free_port()
    options = (*secured(certificate), "--tls-port", str(port))
    with running_server(certificate / "redis", *options) as server:
        server.command("ACL", "SETUSER", "limits", "on", f">{WORD}", "~headrace:*", "+get", "+set")
        place, known_text = f"localhost:{port}", f"?ssl_ca_certs={certificate}/cert.pem"

        async with connected(
            parse_redis_url(f"rediss://limits:{WORD}@{place}/0{known_text}")
        ) as mine:
            await mine.run_command("headrace:a", "SET", "headrace:a", "kept")
            assert await mine.run_command("headrace:a", "GET", "headrace:a") == b"kept"
            with pytest.raises(NoPermissionError):
                await mine.run_command("other", "GET", "other")
        async with connected(
            parse_redis_url(f"rediss://limits:wrong@{place}/0{known_text}")
        ) as wrong:
            with pytest.raises(AuthenticationError):
                await wrong.run_command("headrace:a", "GET", "headrace:a")
        async with connected(parse_redis_url(f"rediss://limits:{WORD}@{place}/0")) as strange:
            with pytest.raises(REDIS_ERRORS, match="certificate"):
                await strange.run_command("headrace:a", "GET", "headrace:a")


CAUSES = {
    "auth": "rediss://limits:wrong@localhost:{tls}/0?ssl_ca_certs={folder}/cert.pem",
    "permission": "rediss://limits:{word}@localhost:{tls}/0?ssl_ca_certs={folder}/cert.pem",
    "tls_certificate": "rediss://limits:{word}@localhost:{tls}/0",
    "refused": "redis://localhost:{free}/0",
    "dns": "redis://no-such-host.invalid:6379/0",
    "timeout": "redis://localhost:{silent}/0",
}


async def test_degraded_limits_state_the_cause(certificate: Path) -> None:
    port = servers.free_port()
    options = (*secured(certificate), "--tls-port", str(port))
    causes: dict[str, str] = {}
    with (
        running_server(certificate / "redis", *options) as server,
        socket.create_server(("localhost", 0)) as silent,
    ):
        server.command("ACL", "SETUSER", "limits", "on", f">{WORD}", "~headrace:*", "+get")
        ports = {"tls": port, "free": servers.free_port()}
        ports["silent"] = silent.getsockname()[1]
        for expected, form in CAUSES.items():
            position = parse_redis_url(form.format(word=WORD, folder=certificate, **ports))
            store = RedisStore(
                create_client(position.urls, 1.0, cluster=position.cluster), time.time
            )
            async with store:
                with pytest.raises(StoreUnavailable) as caught:
                    await store.ping()
            causes[expected] = str(caught.value)

    assert causes == {name: name for name in CAUSES}


@for_each("scheme", ["rediss", "rediss+cluster"])
@for_each("option", ["ssl_ca_certs", "ssl_certfile", "ssl_certfile=KNOWN&ssl_keyfile"])
def test_missing_certificate_fails(option: str, scheme: str, certificate: Path) -> None:
    known_text = f"{certificate}/cert.pem"
    place = f"{scheme}://u:{WORD}@localhost/0?{option.replace('KNOWN', known_text)}=/missing.pem"

    with pytest.raises(ValueError, match=r"^cannot load ") as caught:
        create_client(parse_redis_url(place).urls, 1.0)

    assert "/missing.pem: No such file or directory" in str(caught.value)
    assert WORD not in str(caught.value)


async def test_connects_to_cluster_with_tls_and_users(certificate: Path) -> None:
    port = servers.free_port()
    options = (*secured(certificate), "--tls-port", str(port), "--tls-cluster", "yes")
    member = servers.Member(certificate / "redis", options=options)
    try:
        member.start()
        member.command("CLUSTER", "ADDSLOTSRANGE", 0, servers.SLOTS - 1)
        servers.wait_until(lambda: member.has_info("cluster_state:ok"), "a cluster")
        rights = ("~headrace:*", "+get", "+set", "+command", "+cluster|slots")
        member.command("ACL", "SETUSER", "limits", "on", f">{WORD}", *rights)
        known_text = f"?ssl_ca_certs={certificate}/cert.pem"

        position = parse_redis_url(f"rediss+cluster://limits:{WORD}@localhost:{port}{known_text}")
        async with connected(position) as mine:
            await mine.run_command("headrace:a", "SET", "headrace:a", "kept")
            assert await mine.run_command("headrace:a", "GET", "headrace:a") == b"kept"
        async with connected(parse_redis_url(position.urls[0].replace(WORD, "wrong"))) as wrong:
            with pytest.raises(REDIS_ERRORS):
                await wrong.run_command("headrace:a", "GET", "headrace:a")
    finally:
        member.kill()


async def test_cluster_is_found_by_any_of_its_servers(cluster: Cluster) -> None:
    for member in cluster.members:
        async with connected(parse_redis_url(f"redis+cluster://127.0.0.1:{member.port}")) as server:
            for number in range(20):
                name = f"{member.port}:{number}"
                assert await server.run_command(name, "SET", name, number)

    stored_items = [int(member.command("DBSIZE")) for member in cluster.members]
    assert sum(stored_items) == 60
    assert all(stored_items)


async def test_cluster_is_found_with_some_servers_away(cluster: Cluster) -> None:
    absent = f"127.0.0.1:{servers.free_port()}"
    async with connected(
        parse_redis_url(f"redis+cluster://{absent},127.0.0.1:{cluster.members[0].port}")
    ) as s:
        assert await s.run_command("a", "SET", "a", 1) is True


async def test_moved_slot_is_followed(cluster: Cluster) -> None:
    """Old and new keys, during and after the migration of a slot."""
    async with connected(cluster.at) as server:
        for name in ("{s}:kept", "{s}:gone"):
            await server.run_command(name, "SET", name, 1)
        owner = cluster.owner("{s}")
        to = next(member for member in cluster.members if member is not owner)
        result = 0

        async def count() -> None:
            nonlocal result
            while True:
                await server.run_command("{s}:kept", "EVAL", SECOND, 1, "{s}:kept")
                result += 1

        counting = asyncio.ensure_future(count())
        await eventually(lambda: result > 10)
        await asyncio.to_thread(cluster.move, "{s}", to)
        moved = result
        await eventually(lambda: result > moved + 10)
        counting.cancel()
        with suppress(asyncio.CancelledError):
            await counting

        assert cluster.owner("{s}") is to
        assert int(await server.run_command("{s}:kept", "GET", "{s}:kept")) - 1 - result in (0, 1)


async def test_promoted_replica_is_found(cluster: Cluster) -> None:
    owner = cluster.owner("{s}")
    replica = cluster.replica(owner)
    async with connected(cluster.at, timeout_s=1.0) as server:
        await server.run_command("{s}", "SET", "{s}", "kept")
        cluster.wait_for_replica(owner, replica)  # otherwise writes could be lost with the owner
        owner.kill()

        async with asyncio.timeout(PATIENCE_S):
            result = None
            while result is None:
                with suppress(*REDIS_ERRORS):
                    result = await server.run_command("{s}", "GET", "{s}")
                await asyncio.sleep(0.05)

    assert result == b"kept"


@for_each("scheme", ["redis", "redis+cluster"])
@for_each("text", ["?colour=green", "?socket_timeout=soon"])
def test_error_of_invalid_url_does_not_quote_it(scheme: str, text: str) -> None:
    position = parse_redis_url(f"{scheme}://limits:{WORD}@127.0.0.1:1/0{text}")
    with pytest.raises(ValueError, match="option after the") as info:
        create_client(position.urls, 1.0, cluster=position.cluster)
    assert WORD not in str(info.value)


async def test_timeout_leaves_no_cyclic_garbage() -> None:
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            async with timeout_extended_while_loop_busy(1.0):
                pass
        assert gc.collect() == 0  # a reload would freeze it forever
    finally:
        gc.enable()
