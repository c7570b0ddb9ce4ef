"""Protocols between the pipeline and the packages that implement its stages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol

from proxy.call.record import Record
from proxy.errors import ProxyError
from proxy.types import Call, Plan, RequestHead, ResponseHead
from proxy.types.events import Frame
from proxy.types.guard import GuardClient


class Sink(Protocol):
    """Receives the released frames of a response: a client, or the cache."""

    async def set_response_head(self, head: ResponseHead, record: Record) -> None:
        """Set the response head. A client gets it with the first frame."""

    async def send(self, frames: Sequence[Frame]) -> None:
        """Send frames, to a client in its dialect. Raises ``ClientDisconnected``."""

    def try_send(self, frames: Sequence[Frame]) -> bool:
        """Send frames if that needs no ``await``. Return False if nothing was sent.

        Never called with the first or the last frame of a response.
        """


class Exchange(Sink, Protocol):
    """One HTTP request of a client and the response to it."""

    @property
    def is_disconnected(self) -> bool:
        """True if the client has closed the connection."""

    @property
    def is_response_complete(self) -> bool:
        """True if the whole response was written to the client."""

    @property
    def request_id(self) -> str:
        """Id in the headers of every response, errors included."""

    def read_head(self) -> RequestHead:
        """Parse the request line and the headers. Raises ``RequestError``."""

    async def read_call(self, head: RequestHead, caller: str) -> Call:
        """Read and validate the body, within bounds of size and time. Raises ``RequestError``.

        Keys share the event loop fairly: the body is parsed in the time slices of ``caller``.
        """

    def start_keepalive(self, record: Record) -> None:
        """Send keepalive events from now on whenever the call's stream is silent.

        The first one sends the response head, so a later failure is sent as an error event.
        """

    async def send_error(self, error: ProxyError, record: Record) -> None:
        """Send an error response, or an error event if the response has started."""


class Caller(Protocol):
    """A virtual key under one policy revision."""

    @property
    def key(self) -> str:
        """Name of the virtual key."""

    @property
    def credential(self) -> str | None:
        """Fingerprint of the secret that the client sent."""

    @property
    def controls_sampling(self) -> bool:
        """True if the client's trace context decides whether the call is sampled."""

    def decide(self, call: Call) -> Plan:
        """Return the plan for a call, without side effects. Raises ``RequestError``."""


class Policy(Protocol):
    """One policy revision. A call uses one revision from start to end."""

    @property
    def revision(self) -> str: ...

    def identify(self, head: RequestHead) -> Caller:
        """Authenticate the client. Raises ``Unauthorized``."""


class Policies(Protocol):
    """Holds the active policy revision."""

    def get_active_policy(self) -> Policy:
        """Return the active revision."""

    async def reload_if_requested(self, head: RequestHead) -> Policy:
        """Return the active revision, reloaded first if ``bypass_cache`` is set and the key may."""


Feed = Callable[[Sequence[Frame]], Coroutine[Any, Any, None] | None]
"""Processes frames without waiting. Returns an awaitable if later frames must wait, else None."""


class UpstreamResponse(AbstractAsyncContextManager["UpstreamResponse"], Protocol):
    """A response that an upstream has started. Leaving the context closes the connection."""

    @property
    def head(self) -> ResponseHead: ...

    def frames(self, feed: Feed | None = None) -> AsyncIterator[Sequence[Frame]]:
        """Yield frames in batches as they arrive. The last one has ``last``.

        Frames that arrive while the caller waits for the next batch may go to ``feed`` instead.
        Raises ``UpstreamError``.
        """


class BudgetCheck(Protocol):
    """Checks the budget of an admitted call before it uses an upstream."""

    def raise_deferred_refusal(self) -> None:
        """Raise ``LimitExceeded`` if the call was admitted only for a cached response."""


class Limits(Protocol):
    """Rate limits, budgets and concurrency limits."""

    def make_reservation(
        self, plan: Plan, call: Call, record: Record
    ) -> AbstractAsyncContextManager[BudgetCheck]:
        """Return a context that reserves estimated usage on entry, and settles usage on exit."""


class OutputGuards(Protocol):
    """Output guards of one response."""

    @property
    def is_retry_requested(self) -> bool:
        """True if a guard requests another response. No frame of this one was released."""

    def try_inspect(self, frame: Frame) -> Sequence[Frame] | None:
        """Inspect a frame if that needs no ``await``, otherwise return None.

        Return the frames that are released, which may be none or earlier ones. Raises
        ``GuardBlocked``.
        """

    async def inspect(self, frame: Frame) -> Sequence[Frame]:
        """Inspect a frame and return the frames that are released. Raises ``GuardBlocked``."""

    def release_partial_placeholder(self) -> Sequence[Frame]:
        """Return frames held for the rest of a placeholder, once the response breaks off."""


class CallGuards(Protocol):
    """Guards of one call."""

    async def inspect(self) -> tuple[Plan, Call]:
        """Inspect the request. Return the call with masked text, and the plan after rerouting.

        Raises ``GuardBlocked``.
        """

    async def redact_error(self, error: ProxyError) -> None:
        """Redact upstream text in an error with the output guards. It may quote the prompt."""

    def build_output_guards(self, call: Call, head: ResponseHead) -> OutputGuards:
        """Return the output guards for a response to ``call``.

        Raises ``GuardBlocked`` for a response that no guard can read, unless the policy allows it.
        """


class Guards(Protocol):
    """Builds the guards of calls."""

    def build_call_guards(self, plan: Plan, call: Call, record: Record) -> CallGuards:
        """Return the guards of one call."""


class GuardClients(Protocol):
    """HTTP and model clients for guards."""

    def build_guard_client(self, record: Record, *, call_waits: bool = True) -> GuardClient:
        """Return the client for the guards of one call. Its requests join the trace of the call.

        ``call_waits`` is False if the call continues while the guard runs.
        """


class Embedder(Protocol):
    """Computes embeddings with a deployment of the policy."""

    async def embed(
        self, record: Record, deployment: str, text: str, *, call_waits: bool
    ) -> tuple[str, Any]:
        """Return the id of the target that responded, and its response with the embedding.

        ``call_waits`` is False if the call continues meanwhile. Raises ``ProxyError``.
        """


FetchResponse = Callable[[Sink], Awaitable[None]]
"""Fetches a response from an upstream and relays it to a sink."""


class Cache(Protocol):
    """Response cache."""

    async def serve(
        self, plan: Plan, call: Call, record: Record, client: Sink, forward: FetchResponse
    ) -> None:
        """Send the cached response, or the response that an equal call is receiving now.

        On a miss ``forward`` fetches the response, which is then stored. ``call`` is the request
        before masking. Raises what ``forward`` raises, and ``BadRequest``.
        """


RedactError = Callable[[ProxyError], Awaitable[None]]
"""Redacts upstream text in an error."""


class Forwarder(Protocol):
    """Opens responses of upstreams."""

    def open(
        self, plan: Plan, call: Call, record: Record, redact_error: RedactError
    ) -> Awaitable[UpstreamResponse]:
        """Return the first response that starts, trying the targets of the plan in order.

        ``redact_error`` redacts errors within a response. Raises ``UpstreamError``, or
        ``InvalidField`` if the target's API cannot express the request.
        """


class Emitter(Protocol):
    """Emits traces, metrics, logs and ledger rows of calls."""

    def emit_on_exit(self, record: Record) -> AbstractContextManager[None]:
        """Emit the record once on exit. Never raises and never waits."""


class EventLog(Protocol):
    """Logs events of the process. Event names have the form ``policy.in_force``."""

    def info(self, event: str, **fields: object) -> None: ...

    def warning(self, event: str, **fields: object) -> None: ...

    def error(self, event: str, **fields: object) -> None: ...
