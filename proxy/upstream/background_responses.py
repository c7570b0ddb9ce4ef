"""Who is billed for a response that was made in the background: the call that first shows how it
ended, of all that ask for it. Which one is the first the store of counters knows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from hashlib import blake2b

from proxy.dialects.responses.sealing import ResponseIds
from proxy.dialects.responses.tables import UNFINISHED, member
from proxy.dialects.responses.usage import chat_usage
from proxy.errors import UpstreamUnavailable
from proxy.frozen import frozen
from proxy.ports import Settlements
from proxy.types import Json, Pin
from proxy.types.events import Frame
from proxy.upstream.forwarded import OpenAttempt
from proxy.usage import read_usage
from proxy.words import MAX_ID, word_of

ANSWERED = ("completed", "incomplete")
"""What a response is whose model has answered, so that it has used something."""
NAME_BYTES = 16


def has_bill(response: Json) -> bool:
    """True if a response is over, and has used something, be it unknown how much."""
    status = response.get("status")
    if not isinstance(status, str) or status in UNFINISHED:
        return False
    return status in ANSWERED or bool(member(response.get("usage")))


@frozen
class BackgroundBilling:
    """``settlements`` know what was billed, and ``ids`` open those that clients get."""

    settlements: Settlements
    ids: ResponseIds

    async def settle(self, asked: OpenAttempt, frames: Sequence[Frame]) -> None:
        """Note whether an attempt is billed for the response that it shows."""
        response = member(frames[-1].doc)
        usage = chat_usage(response)
        if response.get("background") is not True:
            return
        pin = self._pin(asked, response.get("id"))
        if pin is None:  # nobody can ask for it
            return
        attempt = asked.attempt
        attempt.response_id = word_of(pin.sealed, MAX_ID)
        attempt.is_billed, attempt.bill = False, None
        if not has_bill({**response, "usage": usage}):
            return
        await self._bill(asked, pin.id, usage)
        if attempt.is_billed and response.get("status") == "failed":
            attempt.error = UpstreamUnavailable.code  # paid in vain, though it is shown as it is

    def _pin(self, asked: OpenAttempt, given: object) -> Pin | None:
        """Return what the id of a response leads to, None for one that was not sealed."""
        call = asked.call
        if call.head.endpoint == "stored":
            return call.pin
        return self.ids.open(given, asked.record.key or "") if isinstance(given, str) else None

    async def _bill(self, asked: OpenAttempt, own: str, usage: Json | None) -> None:
        """Bill an attempt that is the first, as the one that has made a response is. Who does not
        know whether it was heard asks again: a call whose client leaves meanwhile must not take the
        bill along."""
        attempt, upstream = asked.attempt, asked.target.upstream.name
        digest = blake2b(f"{upstream}\0{own}".encode(), digest_size=NAME_BYTES)
        name, owner = digest.hexdigest(), attempt.span_id
        has_made = asked.call.head.endpoint != "stored"
        try:
            attempt.is_billed = await self.settlements.bill_once(name, owner) or has_made
        except asyncio.CancelledError:
            attempt.is_billed = True  # in doubt nothing is lost
            attempt.is_billed = await self.settlements.bill_once(name, owner) or has_made
            raise
        finally:
            attempt.bill = None  # whoever has asked for it meanwhile
            attempt.bill_name = name if attempt.is_billed else None
            if attempt.is_billed and usage is not None:
                attempt.meter.report(read_usage(usage))
