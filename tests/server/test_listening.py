"""Listeners: who connects is let in, however busy the loop is."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack, closing

import pytest
import uvloop
from aiohttp import web

from proxy.server import HttpServer
from proxy.server.listening import listen, require_free
from proxy.settings import Address, BadSetting
from tests.servers import free_port

MANY_CLIENTS, FEW_CLIENTS = 64, 12


async def _answer(request: web.BaseRequest) -> web.StreamResponse:
    return web.Response(text="here")


async def _answer_pid(request: web.BaseRequest) -> web.StreamResponse:
    assert request.transport is not None
    connected = request.transport.get_extra_info("socket")
    at_once = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    return web.Response(text=f"{request.remote} {at_once}")


async def _rounds_until_all_are_in() -> int:
    async with AsyncExitStack() as opened:
        server = HttpServer(_answer)
        address, _ = await listen(opened, server, Address("127.0.0.1", 0))
        for _ in range(MANY_CLIENTS):
            opened.enter_context(closing(socket.create_connection((address.host, address.port))))
        rounds = 0
        while len(server.connections) < MANY_CLIENTS:
            await asyncio.sleep(0)
            rounds += 1
        return rounds


def test_who_connects_together_does_not_wait_for_a_round_each() -> None:
    assert uvloop.run(_rounds_until_all_are_in()) <= FEW_CLIENTS


async def _answers() -> list[bytes]:
    async with AsyncExitStack() as opened:
        address, _ = await listen(opened, HttpServer(_answer_pid), Address("127.0.0.1", 0))
        clients = [
            opened.enter_context(closing(socket.create_connection((address.host, address.port))))
            for _ in range(MANY_CLIENTS)
        ]
        loop = asyncio.get_running_loop()
        for client in clients:
            client.sendall(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n")
            client.setblocking(False)
        return [await loop.sock_recv(client, 4096) for client in clients]


def test_all_who_connect_together_are_answered_alike() -> None:
    answers = uvloop.run(_answers())

    assert [answer.rpartition(b"\r\n")[2] for answer in answers] == [b"127.0.0.1 1"] * MANY_CLIENTS


async def test_nobody_is_let_in_once_it_has_stopped() -> None:
    async with AsyncExitStack() as opened:
        address, stop = await listen(opened, HttpServer(_answer), Address("127.0.0.1", 0))
        await stop()
        await asyncio.sleep(0)

        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((address.host, address.port))


async def test_an_address_that_is_taken_is_named() -> None:
    async with AsyncExitStack() as opened:
        address, _ = await listen(opened, HttpServer(_answer), Address("127.0.0.1", 0))

        with pytest.raises(OSError, match=f"{address}: Address already in use"):
            await listen(opened, HttpServer(_answer), address)


def test_an_address_of_another_machine_is_refused_with_its_option() -> None:
    with pytest.raises(BadSetting, match=r"^192.0.2.1:80 \(--listen\): Cannot assign requested"):
        require_free({"--listen": Address("192.0.2.1", 80)})


def test_two_options_with_one_address_are_refused() -> None:
    address = Address("127.0.0.1", free_port())

    with pytest.raises(BadSetting, match=r"\(--admin-listen\): Address already in use"):
        require_free({"--listen": address, "--admin-listen": address})

    require_free({"--listen": address, "--admin-listen": Address("127.0.0.1", 0)})
