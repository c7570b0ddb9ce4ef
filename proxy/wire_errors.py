"""Why a request cannot be read at all, whatever it says: how it is written on the wire."""

from __future__ import annotations

from proxy.errors import Refused


class UnsupportedMedia(Refused):
    """Only plain ``application/json`` is read."""

    status = 415
    code = "unsupported_media_type"


class ExpectationFailed(Refused):
    """An ``Expect`` other than ``100-continue``."""

    status = 417
    code = "expectation_failed"


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
