"""What the wall towards clients alone refuses; the tree of errors is in ``proxy/errors.py``."""

from __future__ import annotations

from proxy.errors import ProxyError, Refused


class VersionNotSupported(Refused):
    """The request line names a version of HTTP that is not spoken here."""

    status = 505
    code = "http_version_not_supported"

    def __init__(self) -> None:
        super().__init__("HTTP/1.0 and HTTP/1.1 are spoken here.")


class CodingNotSupported(Refused):
    """The body is in a transfer coding beside chunks, which nobody undoes here."""

    status = 501
    code = "transfer_encoding_not_supported"
    should_retry = False

    def __init__(self) -> None:
        super().__init__("Bodies may be sent in chunks, and in no other transfer coding.")


class Overloaded(ProxyError):
    """The bodies of all requests under way, or of all answers, take as much memory as they may."""

    status = 503
    code = "overloaded"

    def __init__(self, what: str = "requests") -> None:
        super().__init__(f"There are too many bytes of {what} under way.")
        self.retry_after_s = 1.0
