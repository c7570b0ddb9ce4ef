"""Runs one call through the real pipeline, with a simulated client, upstreams and clock.

Time advances only when all tasks wait, so a wait of minutes takes no time.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Self, TypeVar

import orjson

from proxy import dialects
from proxy.cache import NullCache
from proxy.call.record import Record, TraceIds
from proxy.dialects import RequestContext, families
from proxy.dialects.families import make_response_writer
from proxy.dialects.family import FamilyWriter
from proxy.errors import (
    ProxyError,
    Unauthorized,
    UpstreamInvalid,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from proxy.guards.engine import Engine
from proxy.guards.kinds import KINDS
from proxy.guards.run import PolicyGuards
from proxy.limits import Limiter
from proxy.limits.claims import estimate_claims
from proxy.limits.stores.memory import MemoryStore
from proxy.pipeline import Pipeline
from proxy.policy.decide import KeyCaller
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.review.sample_call import guess_request_path, make_chat_body, read_sample_call
from proxy.policytest import answers
from proxy.policytest.cases import Given, ScriptedAnswer
from proxy.ports import CallGuards
from proxy.runtime.frozen import frozen
from proxy.server.response import make_error_headers, make_status_and_headers
from proxy.telemetry import Emitters
from proxy.types import Call, Json, Plan, RequestHead, ResponseHead, Timeouts
from proxy.types.events import Frame
from proxy.types.guard import GuardRule, is_service
from proxy.types.limit import Claim, Limit
from proxy.types.passthrough import BoundedUpload, PassthroughPaths
from proxy.upstream import Upstreams
from proxy.upstream.health import Health
from proxy.upstream.reply import OnData, do_nothing
from proxy.upstream.wire.dialing import UNREACHABLE_MESSAGE
from proxy.upstream.wire.http1 import BROKEN

T = TypeVar("T")
REQUEST_ID = "policytest"
DEFAULT_ANSWER = ScriptedAnswer(text="Hello.")


class _ClockAdvancingSelector(selectors.SelectSelector):
    """Selector that advances the clock instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError(
                "the simulated call cannot continue: no timer or scripted response is pending"
            )
        if not ready and timeout:
            self.seconds += timeout
        return ready


class _SimulatedLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._selector_clock = _ClockAdvancingSelector()
        super().__init__(self._selector_clock)

    def time(self) -> float:
        return self._selector_clock.seconds


def run_with_simulated_clock(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a simulated clock that starts at 0."""
    with asyncio.Runner(loop_factory=_SimulatedLoop) as runner:
        return runner.run(work)


@dataclass(slots=True)
class SentRequest:
    """A request to an upstream."""

    url: str
    headers: dict[str, str]
    body: Json


@dataclass(slots=True)
class CaseRun:
    """The result of a call. ``body`` is the body that the client received."""

    record: Record
    requests: list[SentRequest] = field(default_factory=list)
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    charged: dict[str, Decimal] = field(default_factory=dict)


async def run_case(snapshot: Snapshot, setup: Given) -> CaseRun:
    """Run one call on a simulated clock, with scripted upstream responses."""
    loop = asyncio.get_running_loop()
    record = Record(
        ids=TraceIds("0" * 32, "0" * 16, "0" * 16),
        started=loop.time(),
        started_at=setup.at,
        now=loop.time,
    )
    case_run = CaseRun(record)
    http = _SimulatedUpstreams(list(setup.answers), case_run.requests)
    health = Health(loop.time, lambda target, endpoint, state: None)
    policies = _FixedPolicy(snapshot, setup.key)
    store = MemoryStore(loop.time, lambda: setup.at.timestamp() + loop.time())
    pipeline = Pipeline(
        policies=policies,
        limits=Limiter(store, lambda state: None),
        guards=_LocalGuards(PolicyGuards(Engine(loop.time))),
        cache=NullCache(),
        upstreams=Upstreams(http=http, via=REQUEST_ID, health=health),
        emitter=Emitters((), _raise_error),
        start_record=lambda: record,
    )
    exchange = _SimulatedExchange(setup, case_run, policies.snapshot.passthrough)
    claims: Sequence[Claim] = ()
    with suppress(ProxyError):
        call = await exchange.read_call(exchange.read_head())
        claims = estimate_claims(policies.identify(call.head).decide(call), call)
    used = [replace(claim, amount=_get_used_amount(setup, claim.limit)) for claim in claims]
    await store.admit("before", [claim for claim in used if claim.amount])
    await pipeline.run(exchange)
    for state in await store.read(claims):
        limit, charged = state.limit, state.used - _get_used_amount(setup, state.limit)
        case_run.charged[limit.name] = Decimal(charged) / limit.kind.scale
    return case_run


def _get_used_amount(setup: Given, limit: Limit) -> int:
    return int(setup.used.get(limit.name, Decimal(0)) * limit.kind.scale)


def _raise_error(sink: object, error: BaseException) -> None:
    raise error


@frozen
class _LocalGuards:
    """The guards of the policy, except those that call a service."""

    guards: PolicyGuards

    def build_call_guards(self, plan: Plan, call: Call, record: Record) -> CallGuards:
        on_input, on_output = (
            tuple(rule for rule in rules if not _calls_service(rule))
            for rules in (plan.guards.input, plan.guards.output)
        )
        plan = replace(plan, guards=replace(plan.guards, input=on_input, output=on_output))
        return self.guards.build_call_guards(plan, call, record)


def _calls_service(rule: GuardRule) -> bool:
    kind = KINDS.get(rule.kind)  # None for a guard of another distribution
    return is_service(rule.detector) if kind is None else kind.calls_service


@frozen
class _FixedPolicy:
    snapshot: Snapshot
    key: str

    @property
    def revision(self) -> str:
        return self.snapshot.revision

    def get_active_policy(self) -> Self:
        return self

    async def reload_if_requested(self, head: RequestHead) -> Self:
        return self

    def identify(self, head: RequestHead) -> KeyCaller:
        if self.snapshot.find_rejection_reason(self.key, head.received_at) is not None:
            raise Unauthorized
        return KeyCaller(self.snapshot, self.snapshot.keys[self.key])


class _SimulatedExchange:
    """The simulated client, which sends the request of the test and stores the response."""

    _head: ResponseHead
    _writer: FamilyWriter
    _call: Call
    is_disconnected = is_response_complete = False  # a policy test is never canceled
    request_id = REQUEST_ID

    def __init__(self, setup: Given, case_run: CaseRun, paths: PassthroughPaths | None) -> None:
        self._given = setup
        self._paths = paths
        self._case_run = case_run
        self._body = make_chat_body(setup.deployment or "") if setup.body is None else setup.body
        self._headers = {name.lower(): value for name, value in setup.headers.items()}
        if setup.deployment is not None:
            self._headers["x-headrace-deployment"] = setup.deployment
        self._path = setup.path or guess_request_path(self._body)
        self._client = dialects.find_dialect(self._path, self._headers).client
        self._started = False

    def read_head(self) -> RequestHead:
        context = RequestContext(
            REQUEST_ID,
            REQUEST_ID,
            received_at=self._given.at,
            get_passthrough_paths=lambda: self._paths,
        )
        return dialects.parse_request_head(self._given.method, self._path, self._headers, context)

    async def read_call(self, head: RequestHead, caller: str = "") -> Call:
        self._call = read_sample_call(head, self._body, caller)
        return self._call

    def start_keepalive(self, record: Record) -> None:
        """Do nothing, because there is no connection."""

    async def set_response_head(self, head: ResponseHead, record: Record) -> None:
        self._head = head
        self._writer = make_response_writer(self._call, head, record.list_guard_results)

    async def send(self, frames: Sequence[Frame]) -> None:
        record = self._case_run.record
        for frame in frames:
            written = self._writer.feed(frame)
            if not self._started and (self._head.streamed or frame.last):
                self._set_head(*make_status_and_headers(record, self._head, self._client, frame))
            self._case_run.body += written

    def try_send(self, frames: Sequence[Frame]) -> bool:
        return False

    async def send_error(self, error: ProxyError, record: Record) -> None:
        refusal = families.make_client_error_response(
            self._client, error, REQUEST_ID, record.list_guard_results()
        )
        body = orjson.dumps(refusal.body)
        if self._started:
            self._case_run.body += self._writer.encode_error(body)
            return
        self._set_head(refusal.status, make_error_headers(record, error) | dict(refusal.headers))
        self._case_run.body = body

    def _set_head(self, status: int, fields: dict[str, str]) -> None:
        self._started = True
        self._case_run.status = self._case_run.record.status = status
        self._case_run.headers = fields


@frozen
class _SimulatedUpstreams:
    """The simulated upstreams, which send the responses of the test in order."""

    answers: list[ScriptedAnswer]
    requests: list[SentRequest]

    async def request(  # noqa: PLR0913  # the signature of the HTTP client
        self,
        url: str,
        headers: Mapping[str, str],
        body: bytes | BoundedUpload,
        timeouts: Timeouts,
        on_sent: Callable[[], None] = do_nothing,
        *,
        new_connection: bool = False,
        method: str = "POST",
    ) -> _SimulatedResponse:
        if not isinstance(body, bytes):
            raise TypeError("policy tests support only JSON bodies")
        answer = self.answers.pop(0) if self.answers else DEFAULT_ANSWER
        request = orjson.loads(body or b"{}")
        self.requests.append(SentRequest(url, dict(headers), request))
        if answer.fault == "connect":
            raise UpstreamUnavailable(UNREACHABLE_MESSAGE)
        on_sent()
        if answer.fault == "silent":
            await asyncio.sleep(timeouts.first_byte)
            raise UpstreamTimeout("first_byte" if timeouts.first_byte < timeouts.total else "total")
        return _SimulatedResponse(answer, answers.encode_response_chunks(answer, url, request))


@dataclass(slots=True)
class _SimulatedResponse:
    answer: ScriptedAnswer
    chunks: list[bytes]

    @property
    def status(self) -> int:
        return self.answer.status

    @property
    def headers(self) -> Mapping[str, str]:
        streamed = self.chunks[:1] != [] and self.chunks[0].startswith((b"data:", b"event:"))
        kind = "text/event-stream" if streamed else "application/json"
        return {"content-type": kind, **{k.lower(): v for k, v in self.answer.headers.items()}}

    async def read(self, on_data: OnData | None = None) -> bytes:
        if not self.chunks and self.answer.fault == "cut":
            raise UpstreamInvalid(BROKEN)
        return self.chunks.pop(0) if self.chunks else b""

    def release_after_last_frame(self) -> None:
        return None

    def release(self) -> None:
        return None
