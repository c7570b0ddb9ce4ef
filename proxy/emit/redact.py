"""Replaces credentials of known shapes in log lines and spans.

Both are built from chosen fields, so there should be none. This is the last line of defense.
"""

from __future__ import annotations

import re2

REDACTED = b"[redacted]"
_CREDENTIALS = re2.compile(
    rb"sk-[A-Za-z0-9_-]{16,}"  # of several providers
    rb"|hr-[A-Za-z0-9_-]{40,}"  # a virtual key of Headrace
    rb"|[Bb]earer [A-Za-z0-9._~+/-]{8,}=*"
    rb"|AKIA[A-Z0-9]{16}"
    rb"|gh[pousr]_[A-Za-z0-9]{30,}"
    rb"|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*"
    rb"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
    rb"|://[^/\s\"@:]{1,256}:[^/\s\"@]{1,256}@"  # a password in a URL
)


def redacted(lines: bytes) -> bytes:
    """Replace credentials. Lines of JSON remain JSON."""
    if _CREDENTIALS.search(lines) is None:  # half the time of `sub`, and nearly always enough
        return lines
    cleaned: bytes = _CREDENTIALS.sub(REDACTED, lines)
    return cleaned


def redact_text(text: str) -> str:
    """Replace credentials, and lone surrogates by question marks."""
    return redacted(text.encode(errors="replace")).decode()
