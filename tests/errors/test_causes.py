"""Classification of failed connections."""

from __future__ import annotations

import errno
import socket
import ssl

from proxy.errors.causes import ErrorCause, cause_of
from tests.for_each import for_each


@for_each(
    ("error", "cause"),
    [
        (None, "closed"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "dns"),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), "dns"),
        (UnicodeError("label too long"), "dns"),
        (OSError(errno.ECONNREFUSED, "x"), "refused"),
        (OSError(errno.ENETUNREACH, "x"), "unreachable"),
        (OSError(errno.EHOSTUNREACH, "x"), "unreachable"),
        (ssl.SSLCertVerificationError("certificate has expired"), "tls_certificate"),
        (ssl.SSLEOFError("EOF occurred"), "tls"),
        (ssl.SSLError("WRONG_VERSION_NUMBER"), "tls"),
        (ConnectionResetError(), "reset"),
        (OSError(errno.ECONNRESET, "x"), "reset"),
        (BrokenPipeError(errno.EPIPE, "x"), "reset"),
        (OSError(errno.ETIMEDOUT, "x"), "timeout"),
        (OSError(errno.EMFILE, "Too many open files"), "local"),
        (OSError(errno.EADDRNOTAVAIL, "x"), "local"),
        (OSError("no number"), "local"),
    ],
    ids=repr,
)
def test_error_is_classified(error: Exception | None, cause: ErrorCause) -> None:
    assert cause_of(error) == cause
