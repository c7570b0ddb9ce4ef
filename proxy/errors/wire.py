"""Errors of HTTP itself: method, framing, or a loop of proxies."""

from __future__ import annotations

from proxy.errors import RequestError


class UnsupportedMedia(RequestError):
    """The body is not unencoded ``application/json``."""

    status = 415
    code = "unsupported_media_type"


class VersionNotSupported(RequestError):
    """The HTTP version is not supported."""

    status = 505
    code = "http_version_not_supported"
    summary = "The HTTP version is not supported. Use HTTP/1.1"


class TransferCodingNotSupported(RequestError):
    """The body has a transfer coding other than ``chunked``."""

    status = 501
    code = "transfer_encoding_not_supported"
    summary = "The header transfer-encoding supports only chunked"
    should_retry = False


class MethodNotAllowed(RequestError):
    """The path does not support this method."""

    status = 405
    code = "method_not_allowed"

    def __init__(self, allowed: str) -> None:
        super().__init__(f"This path supports only {allowed}.")
        self.headers = (("allow", allowed),)


class WebSocketNotSupported(RequestError):
    """The request asks for a WebSocket connection, on a path that is served."""

    status = 426
    code = "websocket_not_supported"
    summary = "WebSocket is not supported. Send HTTP requests instead"
    headers = (("upgrade", "HTTP/1.1"),)


class LoopDetected(RequestError):
    """An upstream forwards this request back to this proxy."""

    status = 508
    code = "loop_detected"
    summary = "An upstream forwards this request back to this proxy"
