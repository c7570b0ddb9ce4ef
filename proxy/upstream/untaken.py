"""Whether an upstream can have done what a call wanted that has failed there. Where it cannot, the
call may go elsewhere, also one that must be sent once."""

from __future__ import annotations

from proxy.attempts import Attempt
from proxy.errors import (
    BadField,
    CircuitOpen,
    ProxyError,
    UpstreamBusy,
    UpstreamNotFound,
    UpstreamRejectedKey,
)

NOT_ASKED = (BadField, CircuitOpen, UpstreamBusy)
UNDONE = (UpstreamNotFound, UpstreamRejectedKey)
"""Refusals before any work: of our credential or our account, of the model, of the path."""
UNDONE_STATUSES = frozenset({429, 503, 529})
"""Those by which an upstream says that it has not begun."""


def is_untaken(failure: ProxyError, attempts: list[Attempt]) -> bool:
    """True if no upstream can have done what a call wants whose last attempt, if it came to one,
    has failed so: it has said so itself, or never had the whole request."""
    if isinstance(failure, (*NOT_ASKED, *UNDONE)):
        return True
    return attempts[-1].sent is None or attempts[-1].status in UNDONE_STATUSES
