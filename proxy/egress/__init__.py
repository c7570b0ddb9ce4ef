"""The ways out for guards and the cache: an address of the policy, or a deployment of it.

A call to a deployment goes through the very pipeline that serves clients, so its limits, its cost
and its fallbacks are those of any call; log, metrics and ledger see it as one of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from proxy.call.record import Record
from proxy.egress.exchange import OwnExchange
from proxy.errors import StaleConnection, UpstreamError, UpstreamTimeout
from proxy.errors.causes import ConnectionFailed
from proxy.ports import Exchange
from proxy.runtime.frozen import frozen
from proxy.types import Endpoint, RequestHead, Timeouts, TraceContext
from proxy.types.roster import internal_key
from proxy.upstream.reply import Http, Reply

DIALECT = "openai"
MOST_BYTES = 1024 * 1024  # of a service's answer
PATIENCE = Timeouts(connect=5.0, first_byte=60.0, idle=30.0, total=60.0)  # beyond any deadline


class TooMuch(OSError):
    """A service answers more than anybody reads."""


@frozen
class HttpEgress:
    """The ways out of the process. ``run`` carries a call through their own pipeline;
    ``new_id`` draws the id of such a call."""

    http: Http
    run: Callable[[Exchange], Awaitable[None]]
    new_id: Callable[[], str]

    def of(self, record: Record, *, waits: bool = True) -> HttpGuardEgress:
        return HttpGuardEgress(self, record, waits=waits)

    async def embed(
        self, record: Record, deployment: str, text: str, *, waits: bool
    ) -> tuple[str, Any]:
        """Return the target that has computed the embedding of a text, and its response."""
        owner = record.plan.deployment if record.plan is not None else None
        key = internal_key("cache", owner or "")
        out = self.of(record, waits=waits)
        exchange = await out.send(key, deployment, "embeddings", {"input": text})
        return exchange.model, exchange.document()


@dataclass(slots=True)
class HttpGuardEgress:
    """Those of one client's call. The time that it waits here is not the proxy's own."""

    outside: HttpEgress
    record: Record
    waits: bool = True
    _waiting: int = field(default=0, init=False)
    _since: float = field(default=0.0, init=False)

    @property
    def request_id(self) -> str:
        return self.record.request_id or ""

    @property
    def caller(self) -> object:
        return self.record.key

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        """Redirects are not followed: what is not an answer of this very address is none."""
        with self._noted():
            try:
                async with await self._reply(url, headers, body) as reply:
                    status, answer = reply.status, await reply.body(MOST_BYTES + 1)
            except UpstreamTimeout:
                raise TimeoutError from None
            except UpstreamError as error:
                raise ConnectionFailed(error.cause or "local") from None
        if len(answer) > MOST_BYTES:
            raise TooMuch
        return status, answer

    async def _reply(self, url: str, headers: Mapping[str, str], body: bytes) -> Reply:
        try:
            return await self.outside.http.post(url, headers, body, PATIENCE)
        except StaleConnection:
            return await self.outside.http.post(url, headers, body, PATIENCE, fresh=True)

    async def complete(self, guard: str, deployment: str, body: Mapping[str, Any]) -> str:
        key = internal_key("guard", guard)
        return (await self.send(key, deployment, "chat", body)).answer()

    async def send(
        self, key: str, deployment: str, endpoint: Endpoint, body: Mapping[str, Any]
    ) -> OwnExchange:
        """Send a request to a deployment as the caller of an internal key."""
        caller = f"{key} {self.record.key}"  # in whose turns it is served
        exchange = OwnExchange(self._head(key, deployment, endpoint), body, caller)
        with self._noted():
            await self.outside.run(exchange)
        return exchange

    def _head(self, key: str, deployment: str, endpoint: Endpoint) -> RequestHead:
        outer, own = self.record, self.outside.new_id()
        return RequestHead(
            dialect=DIALECT,
            endpoint=endpoint,
            route=key.partition("/")[0],
            request_id=own,
            call_id=own,
            deployment=deployment,
            internal_key=key,
            parent=TraceContext(outer.ids.trace_id, outer.ids.server_span, outer.sample_id),
            via=outer.head.via if outer.head else (),
            received_at=datetime.now(UTC),
        )

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """Note the time for which anything is waited for, once where several are at a time."""
        if not self._waiting:
            self._since = self.record.now()
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1
            if (
                self.waits
                and not self._waiting
                and all(a.ended is not None for a in self.record.attempts)
            ):
                self.record.wait_s += self.record.now() - self._since
