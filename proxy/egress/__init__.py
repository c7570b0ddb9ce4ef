"""Clients for guards and the cache: HTTP requests to a URL, and calls of a deployment.

A call of a deployment runs through the pipeline that serves clients, and counts like any call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson

from proxy import dialects, errors
from proxy.call.record import Record
from proxy.dialects.chat.merging import get_choices, get_message
from proxy.dialects.families import FAMILIES, find_client_family
from proxy.dialects.family import FamilyWriter, WriteOptions
from proxy.errors.causes import GuardConnectionFailed
from proxy.ports import Exchange
from proxy.runtime.frozen import frozen
from proxy.types import Call, Endpoint, RequestHead, ResponseHead, Timeouts, TraceContext
from proxy.types.events import Frame
from proxy.types.label_catalog import make_internal_key_name
from proxy.upstream.reply import Http

GUARD_DIALECT = "openai"
MAX_RESPONSE_BYTES = 1024 * 1024
# Longer than the deadline of any guard.
GUARD_TIMEOUTS = Timeouts(connect=5.0, first_byte=60.0, idle=30.0, total=60.0)


class ResponseTooLong(OSError):
    """A service sent more than ``MAX_RESPONSE_BYTES``."""


@frozen
class HttpGuardClients:
    """``GuardClients`` over one HTTP client.

    ``run_exchange`` runs a call through the pipeline. ``new_id`` returns the id of such a call.
    """

    http: Http
    run_exchange: Callable[[Exchange], Awaitable[None]]
    new_id: Callable[[], str]

    def build_guard_client(self, record: Record, *, call_waits: bool = True) -> HttpGuardClient:
        return HttpGuardClient(self, record, call_waits=call_waits)

    async def embed(
        self, record: Record, deployment: str, text: str, *, call_waits: bool
    ) -> tuple[str, Any]:
        owner = record.plan.deployment if record.plan is not None else None
        internal_key = make_internal_key_name("cache", owner or "")
        client = self.build_guard_client(record, call_waits=call_waits)
        exchange = await client.call_deployment(
            internal_key, deployment, "embeddings", {"input": text}
        )
        return exchange.target_id, exchange.get_document()


@dataclass(slots=True)
class HttpGuardClient:
    """A ``GuardClient`` of one call. Records the time for which the call waits."""

    clients: HttpGuardClients
    record: Record
    call_waits: bool = True
    _pending: int = field(default=0, init=False)
    _waiting_since: float = field(default=0.0, init=False)

    @property
    def request_id(self) -> str:
        return self.record.request_id or ""

    @property
    def caller(self) -> object:
        return self.record.key

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        """Send a POST request and return status and body. Redirects are not followed.

        Raises ``TimeoutError``, ``GuardConnectionFailed`` and ``ResponseTooLong``.
        """
        http, response = self.clients.http, bytearray()
        with self._measure_wait():
            try:
                try:
                    reply = await http.request(url, headers, body, GUARD_TIMEOUTS)
                except errors.StaleConnection:
                    reply = await http.request(
                        url, headers, body, GUARD_TIMEOUTS, new_connection=True
                    )
                try:
                    while piece := await reply.read():
                        response += piece
                        if len(response) > MAX_RESPONSE_BYTES:
                            raise ResponseTooLong
                finally:
                    reply.release()
            except errors.UpstreamTimeout:
                raise TimeoutError from None
            except errors.UpstreamError as error:
                raise GuardConnectionFailed(error.cause or "local") from None
        return reply.status, bytes(response)

    async def complete(self, guard: str, deployment: str, body: Mapping[str, Any]) -> str:
        internal_key = make_internal_key_name("guard", guard)
        return (await self.call_deployment(internal_key, deployment, "chat", body)).get_text()

    async def call_deployment(
        self, internal_key: str, deployment: str, endpoint: Endpoint, body: Mapping[str, Any]
    ) -> InternalExchange:
        """Call a deployment as an internal key. Return the exchange with response or error."""
        head, call_id = self.record.head, self.clients.new_id()
        ids = self.record.ids
        request_head = RequestHead(
            dialect=GUARD_DIALECT,
            endpoint=endpoint,
            route=internal_key.partition("/")[0],
            request_id=call_id,
            call_id=call_id,
            deployment=deployment,
            internal_key=internal_key,
            parent=TraceContext(ids.trace_id, ids.server_span, self.record.sample_id),
            via=head.via if head else (),
            received_at=datetime.now(UTC),
        )
        exchange = InternalExchange(request_head, body, f"{internal_key} {self.record.key}")
        with self._measure_wait():
            await self.clients.run_exchange(exchange)
        return exchange

    @contextmanager
    def _measure_wait(self) -> Iterator[None]:
        """Add the duration of the block to the call's wait. Concurrent blocks count once."""
        if not self._pending:
            self._waiting_since = self.record.now()
        self._pending += 1
        try:
            yield
        finally:
            self._pending -= 1
            has_open_attempt = any(attempt.ended is None for attempt in self.record.attempts)
            if self.call_waits and not self._pending and not has_open_attempt:
                self.record.wait_s += self.record.now() - self._waiting_since


class InternalExchange:
    """An ``Exchange`` that keeps the response or the error.

    ``scheduling_key`` names the internal key and the key of the call that it serves.
    """

    _call: Call
    _writer: FamilyWriter
    is_disconnected = True  # a cancelled call has no client

    def __init__(
        self, head: RequestHead, body: Mapping[str, Any], scheduling_key: str = ""
    ) -> None:
        self.request_id = head.request_id
        self._head = head
        self._body = body
        self._scheduling_key = scheduling_key
        self._record: Record | None = None
        self._document: Any = None
        self._error: errors.ProxyError | None = None

    @property
    def is_response_complete(self) -> bool:
        return self._document is not None

    def read_head(self) -> RequestHead:
        return self._head

    async def read_call(self, head: RequestHead, caller: str = "") -> Call:
        body = {**self._body, "model": head.deployment}
        self._call = dialects.read_call(head, body, caller=self._scheduling_key)
        return self._call

    def start_keepalive(self, record: Record) -> None:
        """Do nothing, because no connection is open."""

    async def set_response_head(self, head: ResponseHead, record: Record) -> None:
        self._record = record
        options = WriteOptions(self._call, whole=True)
        self._writer = FAMILIES[find_client_family(self._call)].writer(options)

    async def send(self, frames: Sequence[Frame]) -> None:
        self._document = orjson.loads(self._writer.feed(frames[-1]))
        if self._record is not None:
            self._record.status = 200
            self._record.first_sent = self._record.now()

    def try_send(self, frames: Sequence[Frame]) -> bool:
        return False

    async def send_error(self, error: errors.ProxyError, record: Record) -> None:
        self._error = error
        record.status = error.status

    @property
    def target_id(self) -> str:
        """Id of the target that responded, empty if there is no response."""
        bill = self._record.get_first_used_bill() if self._record is not None else None
        return bill.target.id if bill is not None else ""

    def get_document(self) -> Any:
        """Return the response. Raises ``ProxyError``."""
        if self._error is not None:
            raise self._error
        return self._document

    def get_text(self) -> str:
        """Return the text of the first choice. Raises ``ProxyError``."""
        choices = get_choices(self.get_document())
        text = get_message(choices[0]).get("content") if choices else None
        if not isinstance(text, str):
            raise errors.UpstreamInvalid("The upstream's response has no text.")
        return text
