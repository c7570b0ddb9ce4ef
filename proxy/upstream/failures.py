"""Of several failures the one that a client is told: that of its request before an outage."""

from __future__ import annotations

from collections.abc import Sequence

from proxy.errors import BadField, CircuitOpen, ProxyError, UpstreamBusy

NOT_ASKED = (CircuitOpen, UpstreamBusy)


def most_useful(failures: Sequence[ProxyError]) -> ProxyError:
    """Return which of the failures of one call, in the order of its targets, helps a client most.

    It is the first by which an upstream finds the request itself at fault: nothing but another
    request helps. Else the last that another try may not meet; of targets that were not asked the
    one with the shortest wait; the last that no client can mend. That a target cannot be asked such
    a thing comes last of all, as any other of them may do it later.
    """
    for failure in failures:
        if failure.final:
            return failure
    asked = [error for error in failures if not isinstance(error, (*NOT_ASKED, BadField))]
    passing = [error for error in asked if error.should_retry is not False]
    if passing:
        return passing[-1]
    waits = [error for error in failures if isinstance(error, NOT_ASKED)]
    if waits:
        return min(waits, key=lambda error: error.retry_after_s or 0.0)
    return (asked or failures)[-1]
