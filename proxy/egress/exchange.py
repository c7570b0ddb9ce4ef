"""Exchange of a call that the proxy makes itself, without a client connection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from proxy import dialects
from proxy.call.record import Record
from proxy.dialects.families import FAMILIES, client_family
from proxy.dialects.family import FamilyWriter, WriteOptions
from proxy.dialects.writing import nobody
from proxy.errors import ProxyError, UpstreamInvalid
from proxy.types import Call, RequestHead, ResponseHead
from proxy.types.events import Frame


class InternalExchange:
    """An ``Exchange`` that keeps the response or the error.

    ``scheduling_key`` names the internal key and the key of the call that it serves.
    """

    _call: Call
    _writer: FamilyWriter
    is_disconnected = True  # a cancelled call has nobody to send to

    def __init__(
        self, head: RequestHead, body: Mapping[str, Any], scheduling_key: str = ""
    ) -> None:
        self.request_id = head.request_id
        self._head = head
        self._body = body
        self._scheduling_key = scheduling_key
        self._record: Record | None = None
        self._document: Any = None
        self._error: ProxyError | None = None

    @property
    def is_complete(self) -> bool:
        return self._document is not None

    def read_head(self) -> RequestHead:
        return self._head

    async def read_call(self, head: RequestHead, caller: str = "") -> Call:
        body = {**self._body, "model": head.deployment}
        self._call = dialects.read_call(head, body, caller=self._scheduling_key)
        return self._call

    def keep_alive(self, record: Record) -> None:
        """Do nothing, because no connection is open."""

    async def start(self, head: ResponseHead, record: Record) -> None:
        self._record = record
        options = WriteOptions(self._call, whole=True, verdicts=nobody)
        self._writer = FAMILIES[client_family(self._call)].writer(options)

    async def send(self, frames: Sequence[Frame]) -> None:
        self._document = orjson.loads(self._writer.feed(frames[-1]))
        if self._record is not None:
            self._record.status = 200
            self._record.first_sent = self._record.now()

    def try_send(self, frames: Sequence[Frame]) -> bool:
        return False

    async def send_error(self, error: ProxyError, record: Record) -> None:
        self._error = error
        record.status = error.status

    @property
    def model(self) -> str:
        """Target of the response."""
        bill = self._record.used_bill() if self._record is not None else None
        return bill.target.id if bill is not None else ""

    def document(self) -> Any:
        """Return the response. Raises ``ProxyError``."""
        if self._error is not None:
            raise self._error
        return self._document

    def text(self) -> str:
        """Return the text of the first choice. Raises ``ProxyError``."""
        document = self.document()
        try:
            text = document["choices"][0]["message"]["content"]
        except (KeyError, IndexError, TypeError):
            text = None
        if not isinstance(text, str):
            raise UpstreamInvalid("The upstream's response has no text.")
        return text
