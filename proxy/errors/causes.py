"""Reasons why a connection to an upstream fails, for logs, metrics, spans and the ledger."""

from __future__ import annotations

import errno
import socket
import ssl
from typing import Literal

ErrorCause = Literal[
    "dns",  # the host name has no address
    "refused",  # nothing listens on the port
    "unreachable",  # no route to the network or the host
    "tls",  # the TLS handshake failed, or a TLS alert ended the connection
    "tls_certificate",  # the certificate is expired, untrusted, or names another host
    "reset",  # the peer reset the connection
    "closed",  # the peer ended the connection, or the response, before the response was complete
    "timeout",  # a phase took longer than the policy's ``timeouts`` allow
    "protocol",  # the peer's bytes are not HTTP/1.1
    "pool",  # all connections that this process may open were in use
    "local",  # this machine lacks a resource, such as file descriptors or ports
]

_BY_ERRNO: dict[int, ErrorCause] = {
    errno.ECONNREFUSED: "refused",
    **dict.fromkeys((errno.ECONNABORTED, errno.ECONNRESET, errno.EPIPE), "reset"),
    **dict.fromkeys(
        (errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETUNREACH), "unreachable"
    ),
    errno.ETIMEDOUT: "timeout",
}


def get_cause(error: Exception | None) -> ErrorCause:
    """Return the cause of an error of the operating system or the TLS library.

    Without an error (None) the peer closed the connection in an orderly way.
    """
    if error is None:
        return "closed"
    if isinstance(error, ssl.SSLCertVerificationError):
        return "tls_certificate"
    if isinstance(error, ssl.SSLError):
        return "tls"
    if isinstance(error, (socket.gaierror, UnicodeError)):
        return "dns"
    if isinstance(error, ConnectionResetError):  # asyncio raises it without a number
        return "reset"
    return _BY_ERRNO.get(getattr(error, "errno", None) or 0, "local")


class GuardConnectionFailed(ConnectionError):
    """A connection to the service of a guard failed."""

    def __init__(self, cause: ErrorCause) -> None:
        super().__init__(cause)
        self.cause = cause
