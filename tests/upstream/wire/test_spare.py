"""The second descriptor of a socket."""

from __future__ import annotations

import socket

from proxy.upstream.wire.spare import SpareSocket


class Transport:
    """A transport of a socket, or of one over TLS."""

    def __init__(self, own: socket.socket, tls: object = None) -> None:
        self._info = {"socket": own, "ssl_object": tls}

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self._info.get(name, default)


def test_it_reads_what_had_come_once_the_first_is_closed() -> None:
    ours, theirs = socket.socketpair()
    spare = SpareSocket(Transport(ours))  # type: ignore[arg-type]
    theirs.send(b"refused")
    ours.close()

    assert spare.read(100) == b"refused"
    spare.close()
    spare.close()
    theirs.close()
    assert spare.read(100) == b""


def test_there_is_none_of_what_is_encrypted() -> None:
    ours, theirs = socket.socketpair()
    theirs.send(b"secret")

    assert SpareSocket(Transport(ours, object())).read(100) == b""  # type: ignore[arg-type]
    ours.close()
    theirs.close()
