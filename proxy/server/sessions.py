"""Sessions of the console, and the bearer token of the admin listener."""

from __future__ import annotations

import hmac
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from secrets import token_bytes

from proxy.telemetry.log import Quota

COOKIE = "headrace_session"
SESSION_S = 12 * 3600
SIGN_INS_PER_MINUTE = 5
MAX_ENDED = 4096  # more than the 3,600 sessions that can begin within 12 hours


@dataclass(slots=True)
class Sessions:
    """Sessions of browsers that sent the admin token. ``now`` returns monotonic seconds.

    A session is a time and its signature, so the process stores only those that were ended. All end
    at a restart.
    """

    token: str | None = field(repr=False)
    now: Callable[[], float]
    _key: bytes = field(default_factory=lambda: token_bytes(32), repr=False)
    _quota: Quota = field(init=False)
    _ended: deque[str] = field(default_factory=lambda: deque(maxlen=MAX_ENDED))

    def __post_init__(self) -> None:
        self._quota = Quota(self.now, SIGN_INS_PER_MINUTE, SIGN_INS_PER_MINUTE)

    def sign_in(self, token: str) -> str | None:
        """Return a new session, None for a wrong token. Raises ``TimeoutError`` if too frequent."""
        if self._quota.take() is None:
            raise TimeoutError
        sent = token.encode("utf-8", "surrogateescape")
        if self.token is None or not hmac.compare_digest(sent, self.token.encode()):
            return None
        end = str(int(self.now() + SESSION_S))
        return f"{end}.{self._sign_expiry(end)}"

    def is_valid(self, session: str) -> bool:
        """Return True if a session was made by this process and has not ended."""
        end, _, signature = session.partition(".")
        expected = self._sign_expiry(end)
        is_signed = hmac.compare_digest(signature.encode("utf-8", "replace"), expected.encode())
        return is_signed and int(end) > self.now() and session not in self._ended

    def end(self, session: str) -> None:
        """End a session before its time."""
        if self.is_valid(session):
            self._ended.append(session)

    def _sign_expiry(self, end: str) -> str:
        return hmac.new(self._key, end.encode("utf-8", "replace"), sha256).hexdigest()


def has_token(token: str, headers: Mapping[str, str]) -> bool:
    """Return True if a request has the token as a bearer credential. Takes constant time."""
    scheme, _, sent = headers.get("Authorization", "").partition(" ")
    sent_bytes = sent.strip().encode("utf-8", "surrogateescape")
    return scheme.lower() == "bearer" and hmac.compare_digest(sent_bytes, token.encode())
