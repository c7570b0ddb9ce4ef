"""Billing of background responses: the first call that shows how a response ended is billed for
it. The store of counters decides which call is the first."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from hashlib import blake2b

from proxy.dialects.responses.schema import UNFINISHED, chat_usage, member
from proxy.dialects.responses.sealing import ResponseIds
from proxy.errors import UpstreamUnavailable
from proxy.errors.words import MAX_ID, word_of
from proxy.money.usage import read_usage
from proxy.ports import BillingRegistry
from proxy.runtime.frozen import frozen
from proxy.types import Json, StateRef
from proxy.types.events import Frame
from proxy.upstream.forwarded import OpenAttempt

ANSWERED = ("completed", "incomplete")
"""Statuses of a response whose model has answered."""
NAME_BYTES = 16


def has_bill(response: Json) -> bool:
    """Return True if a response has ended and has used tokens, perhaps an unknown number."""
    status = response.get("status")
    if not isinstance(status, str) or status in UNFINISHED:
        return False
    return status in ANSWERED or bool(member(response.get("usage")))


@frozen
class BackgroundBilling:
    """Decides who pays for background responses. ``settlements`` knows the billed responses, and
    ``ids`` opens the sealed ids of clients."""

    settlements: BillingRegistry
    ids: ResponseIds

    async def settle(self, asked: OpenAttempt, frames: Sequence[Frame]) -> None:
        """Note whether an attempt is billed for the response in its last frame."""
        response = member(frames[-1].doc)
        usage = chat_usage(response)
        if response.get("background") is not True:
            return
        pin = self._pin(asked, response.get("id"))
        if pin is None:  # no client can retrieve it
            return
        attempt = asked.attempt
        attempt.response_id = word_of(pin.client_id, MAX_ID)
        attempt.is_billed, attempt.bill = False, None
        if not has_bill({**response, "usage": usage}):
            return
        await self._bill(asked, pin.id, usage)
        if attempt.is_billed and response.get("status") == "failed":
            attempt.error = UpstreamUnavailable.code  # paid for nothing

    def _pin(self, asked: OpenAttempt, given: object) -> StateRef | None:
        """Return the reference of a response by its id, None if the id is not sealed."""
        call = asked.call
        if call.head.endpoint == "stored":
            return call.state_ref
        return self.ids.open(given, asked.record.key or "") if isinstance(given, str) else None

    async def _bill(self, asked: OpenAttempt, own: str, usage: Json | None) -> None:
        """Bill an attempt if it is the first, or if it has created the response. If the call is
        cancelled before the store replies, the store is asked again, so that no bill is lost."""
        attempt, upstream = asked.attempt, asked.target.upstream.name
        digest = blake2b(f"{upstream}\0{own}".encode(), digest_size=NAME_BYTES)
        name, owner = digest.hexdigest(), attempt.span_id
        has_made = asked.call.head.endpoint != "stored"
        try:
            attempt.is_billed = await self.settlements.bill_once(name, owner) or has_made
        except asyncio.CancelledError:
            attempt.is_billed = True  # until the store replies
            attempt.is_billed = await self.settlements.bill_once(name, owner) or has_made
            raise
        finally:
            attempt.bill = None  # a reader may have computed it meanwhile
            attempt.bill_name = name if attempt.is_billed else None
            if attempt.is_billed and usage is not None:
                attempt.meter.report(read_usage(usage))
