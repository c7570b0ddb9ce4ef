"""Clients of guards for services and models: over real sockets, and with a scripted deployment."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from proxy.call.record import new_record
from proxy.egress import HttpGuardClient, HttpGuardClients
from proxy.ports import Exchange
from proxy.types import RequestHead
from proxy.types.guard import PromptContext
from proxy.upstream.client import HttpClient
from tests.doubles import TRUST

UNASKED = PromptContext()


@dataclass(frozen=True)
class ScriptedPiece:
    """A text of a call."""

    text: str
    kind: str = "content"
    role: str | None = "user"


async def nowhere(exchange: Exchange) -> None:
    raise AssertionError("no deployment is asked here")


@asynccontextmanager
async def guard_clients() -> AsyncIterator[HttpGuardClient]:
    """Return the guard clients of a call with the id ``req_1``."""
    record = new_record()
    record.set_head(RequestHead("openai", "chat", "/v1/chat/completions", "req_1"))
    async with HttpClient(TRUST) as http:
        yield HttpGuardClients(http, nowhere, lambda: "req_2").build_guard_client(record)


@dataclass
class Deployment:
    """Guard client whose deployment always gives one response. Records the requests."""

    says: str
    requests: list[tuple[str, str, Mapping[str, Any]]] = field(default_factory=list)
    request_id: str = "req_1"
    caller: object = None

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        raise AssertionError("nothing is posted here")

    async def complete(self, guard: str, deployment: str, body: Mapping[str, Any]) -> str:
        self.requests.append((guard, deployment, body))
        return self.says
