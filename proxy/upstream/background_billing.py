"""Billing of background responses. The first call that shows how a response ended pays for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b

from proxy.dialects.responses.schema import UNFINISHED_STATUSES, to_chat_usage
from proxy.dialects.responses.sealing import IdSealer
from proxy.dialects.wire.strict_json import as_object
from proxy.errors import UpstreamUnavailable
from proxy.errors.words import MAX_ID, read_text
from proxy.money.usage import read_chat_usage
from proxy.runtime.frozen import frozen
from proxy.types import Json
from proxy.types.events import Frame
from proxy.upstream.attempt import OpenAttempt

COMPLETED_STATUSES = ("completed", "incomplete")
"""Statuses of a response whose model has generated output."""
NAME_BYTES = 16


def is_billable(response: Json) -> bool:
    """Return True if a response has ended and used tokens, perhaps an unknown number."""
    status = response.get("status")
    if not isinstance(status, str) or status in UNFINISHED_STATUSES:
        return False
    return status in COMPLETED_STATUSES or bool(as_object(response.get("usage")))


@frozen
class BackgroundBilling:
    """Decides which call pays for a background response. ``ids`` decrypts ids.

    ``claim_bill`` returns True if an owner was the first of all instances to bill a name.
    """

    claim_bill: Callable[[str, str], Awaitable[bool]]
    ids: IdSealer

    async def claim_background_bill(
        self, open_attempt: OpenAttempt, frames: Sequence[Frame]
    ) -> None:
        """Record whether an attempt is billed for the background response in the last frame."""
        response = as_object(frames[-1].doc)
        if response.get("background") is not True:
            return
        usage = to_chat_usage(response)
        state_ref, response_id = None, response.get("id")
        if open_attempt.call.head.endpoint == "stored":
            state_ref = open_attempt.call.state_ref
        elif isinstance(response_id, str):
            state_ref = self.ids.open(response_id, open_attempt.record.key or "")
        if state_ref is None:  # no client can retrieve the response
            return
        attempt = open_attempt.attempt
        attempt.response_id = read_text(state_ref.client_id, MAX_ID)
        attempt.is_billed, attempt.bill = False, None
        if not is_billable({**response, "usage": usage}):
            return
        await self._bill_once(open_attempt, state_ref.id, usage)
        if attempt.is_billed and response.get("status") == "failed":
            attempt.error = UpstreamUnavailable.code  # its cost is counted as lost

    async def _bill_once(
        self, open_attempt: OpenAttempt, response_id: str, usage: Json | None
    ) -> None:
        """Bill the attempt if its claim is the first, or if its call created the response.

        If the call is cancelled before ``claim_bill`` returns, the claim is repeated.
        """
        attempt, upstream = open_attempt.attempt, open_attempt.target.upstream.name
        digest = blake2b(f"{upstream}\0{response_id}".encode(), digest_size=NAME_BYTES)
        name, owner = digest.hexdigest(), attempt.span_id
        is_creator = open_attempt.call.head.endpoint != "stored"
        try:
            attempt.is_billed = await self.claim_bill(name, owner) or is_creator
        except asyncio.CancelledError:
            attempt.is_billed = True  # set to False if ``claim_bill`` returns False
            attempt.is_billed = await self.claim_bill(name, owner) or is_creator
            raise
        finally:
            attempt.bill = None  # a reader may have computed it meanwhile
            attempt.bill_name = name if attempt.is_billed else None
            if attempt.is_billed and usage is not None:
                attempt.meter.set_reported_usage(read_chat_usage(usage))
