"""Sessions of the console, and the bearer token of the admin listener."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from secrets import token_urlsafe

COOKIE_NAME = "headrace_session"
SESSION_S = 12 * 3600
MAX_SESSIONS = 1000


@dataclass(slots=True)
class Sessions:
    """Sessions of browsers that sent the admin token, until a restart.

    ``now`` returns monotonic seconds. A session beyond ``MAX_SESSIONS`` ends the oldest one.
    """

    token: str | None = field(repr=False)
    now: Callable[[], float]
    _ends: dict[str, float] = field(default_factory=dict, repr=False)

    def begin(self) -> str:
        """Return the id of a new session."""
        if len(self._ends) == MAX_SESSIONS:
            del self._ends[next(iter(self._ends))]
        session = token_urlsafe(32)
        self._ends[session] = self.now() + SESSION_S
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
