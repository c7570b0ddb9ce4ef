"""Spans on their way out: none is lost without being counted, and nothing waits for them."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from contextlib import closing, suppress

import pytest

from proxy.emit.collector import Collector
from proxy.emit.outbox import UNDER_WAY_S, Outbox, RequestSender
from proxy.spool import MAX_BYTES


def call(spans: int = 3) -> list[bytes]:
    """The spans of one call, each of one byte."""
    return [b"s"] * spans


class Gate:
    """A collector that takes nothing until it is opened."""

    def __init__(self, *, takes: bool = True) -> None:
        self.open = threading.Event()
        self.asked = threading.Event()
        self.takes = takes
        self.got = 0
        self.largest = 0

    def send(self, request: bytes) -> bool:
        self.asked.set()
        self.open.wait(10)
        self.got += len(request) if self.takes else 0
        self.largest = max(self.largest, len(request))
        return self.takes

    def close(self) -> None:
        return None


@pytest.fixture
def lost() -> Counter[str]:
    return Counter()


def outbox(gate: RequestSender, lost: Counter[str], most: int = 300) -> Outbox:
    def dropped(why: str, count: int) -> None:
        lost.update({why: count})

    return Outbox(gate, b"".join, dropped, lambda error: dropped(type(error).__name__, 1), most)


def test_what_is_taken_arrives_in_small_batches(lost: Counter[str]) -> None:
    gate = Gate()
    gate.open.set()
    box = outbox(gate, lost, most=2000)

    for _ in range(200):
        box.take(call())
    box.close()

    assert gate.got == 600
    assert gate.largest <= 512
    assert not lost


def test_a_queue_that_is_full_drops_whole_calls_and_counts_them(lost: Counter[str]) -> None:
    gate = Gate()
    box = outbox(gate, lost)

    for _ in range(1000):
        box.take(call())
    gate.open.set()
    box.close()

    assert gate.got == 300
    assert lost == {"queue_full": 2700}


def test_what_waits_is_bounded_in_bytes_too(lost: Counter[str]) -> None:
    gate = Gate()
    box = outbox(gate, lost)

    box.take([bytes(MAX_BYTES - 1)])
    box.take(call(2))
    box.take(call(1))
    gate.open.set()
    box.close()

    assert gate.got == MAX_BYTES
    assert lost == {"queue_full": 2}


def test_there_is_room_again_once_the_collector_takes_spans(lost: Counter[str]) -> None:
    gate = Gate()
    gate.open.set()
    box = outbox(gate, lost, most=150)

    deadline = time.monotonic() + 10
    sent = 0
    while sent < 450 and time.monotonic() < deadline:
        before = lost["queue_full"]
        box.take(call())
        sent += 3 if lost["queue_full"] == before else 0
    box.close()

    assert gate.got == sent == 450


def test_what_a_collector_refuses_is_counted(lost: Counter[str]) -> None:
    gate = Gate(takes=False)
    gate.open.set()
    box = outbox(gate, lost)

    box.take(call())
    box.close()

    assert lost == {"export_failed": 3}


class Broken(Gate):
    def send(self, request: bytes) -> bool:
        raise AttributeError


def test_an_exception_while_spans_are_sent_is_told_and_ends_nothing(lost: Counter[str]) -> None:
    box = outbox(Broken(), lost)

    box.take(call())
    box.close()

    assert lost == {"export_failed": 3, "AttributeError": 1}


class Dripping:
    """A collector that says a byte of its head at a time, and never comes to an end."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.asked = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        there, _ = self._listener.accept()
        with there, suppress(OSError):
            there.recv(1000)
            self.asked.set()
            there.sendall(b"HTTP/1.1 200 OK\r\nx-drip: ")
            while not self.over.wait(0.05):
                there.sendall(b".")

    def close(self) -> None:
        self.over.set()
        self._thread.join()
        self._listener.close()


def test_a_collector_that_drips_does_not_hold_up_a_stop(lost: Counter[str]) -> None:
    with closing(Dripping()) as collector:
        box = outbox(Collector(f"{collector.url}/v1/traces", timeout_s=0.2), lost)
        box.take(call())
        assert collector.asked.wait(10)

        ending = threading.Thread(target=box.close, args=(0.1,))
        ending.start()
        ending.join(UNDER_WAY_S + 8)

        assert not ending.is_alive()
        assert lost == {"shutdown": 3}


def test_closing_waits_no_longer_than_it_is_told_and_counts_the_rest(lost: Counter[str]) -> None:
    gate = Gate()
    box = outbox(gate, lost, most=1000)
    for _ in range(300):
        box.take(call())
    assert gate.asked.wait(10)
    late = threading.Timer(0.2, gate.open.set)
    late.start()

    box.close(within_s=0.1)

    assert gate.got == 512  # the batch that was under way
    assert lost == {"shutdown": 900 - 512}
