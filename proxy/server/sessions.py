"""Sessions of the console, and the bearer token of the admin listener."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from secrets import token_urlsafe

from proxy.telemetry.log import Quota

COOKIE_NAME = "headrace_session"
SESSION_S = 12 * 3600
SIGN_INS_PER_MINUTE = 5
MAX_ENDED = 4096  # more than the 3,600 sessions that can begin within 12 hours


@dataclass(slots=True)
class Sessions:
    """Sessions of browsers that sent the admin token, until a restart.

    ``now`` returns monotonic seconds. At most 3,600 sessions can begin before the first one ends.
    """

    token: str | None = field(repr=False)
    now: Callable[[], float]
    _quota: Quota = field(init=False)
    _ends: dict[str, float] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self._quota = Quota(self.now, SIGN_INS_PER_MINUTE, SIGN_INS_PER_MINUTE)

    def sign_in(self, token: str) -> str | None:
        """Return a new session, None for a wrong token. Raises ``TimeoutError`` if too frequent."""
        if self._quota.take_token() is None:
            raise TimeoutError
        sent = token.encode("utf-8", "surrogateescape")
        if self.token is None or not hmac.compare_digest(sent, self.token.encode()):
            return None
        now, session = self.now(), token_urlsafe(32)
        self._ends = {name: end for name, end in self._ends.items() if end > now}
        self._ends[session] = now + SESSION_S
        return session

    def is_valid(self, session: str) -> bool:
        return self._ends.get(session, 0.0) > self.now()

    def end(self, session: str) -> None:
        """End a session before it expires."""
        self._ends.pop(session, None)


def has_valid_token(token: str, headers: Mapping[str, str]) -> bool:
    """Return True if a request has the token as a bearer credential. Takes constant time."""
    scheme, _, sent = headers.get("Authorization", "").partition(" ")
    sent_bytes = sent.strip().encode("utf-8", "surrogateescape")
    return scheme.lower() == "bearer" and hmac.compare_digest(sent_bytes, token.encode())
