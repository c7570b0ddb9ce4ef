"""What each room promises the pipeline. Any object of this shape fits; ``app`` chooses which."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import Any, Protocol, Self

from proxy.call.record import Record
from proxy.errors import ProxyError
from proxy.types import Call, Plan, RequestHead, ResponseHead
from proxy.types.events import Frame
from proxy.types.guard import GuardClient


class Exchange(Protocol):
    """One client: its request, and the way back to it."""

    @property
    def is_disconnected(self) -> bool:
        """True once nobody is left to read."""

    @property
    def is_complete(self) -> bool:
        """True once a whole answer was sent, and taken: who leaves then has not left early."""

    @property
    def request_id(self) -> str:
        """The id that every answer names, a refusal of what cannot be read too."""

    def read_head(self) -> RequestHead:
        """Read the head alone. Raises a ``Refused`` for what no dialect can read."""

    async def read_call(self, head: RequestHead, caller: str) -> Call:
        """Read the body, within bounds of size and time, and check each of its fields. ``caller``
        is the key in whose turns the call is served."""

    def keep_alive(self, record: Record) -> None:
        """Send keepalive events from now on whenever the stream of a call that has one is silent:
        the head too if need be, after which a failure is an error event."""

    async def start(self, head: ResponseHead, record: Record) -> None:
        """Remember the head; it leaves with the first frame, so a refusal is possible till then."""

    async def send(self, frames: Sequence[Frame]) -> None:
        """Write frames in the client's dialect, together. Raises ``ClientGone``."""

    def try_send(self, frames: Sequence[Frame]) -> bool:
        """Do so where it is little work and waits for nobody. False, and nothing is done, where it
        is not."""

    async def send_error(self, error: ProxyError, record: Record) -> None:
        """Send a refusal: an error response, or an error event and a broken end once bytes have
        left."""


class Caller(Protocol):
    """A virtual key under one revision of the policies."""

    @property
    def key(self) -> str:
        """Its name."""

    @property
    def credential(self) -> str | None:
        """Which of its texts the caller has, in a short form that tells nothing of it."""

    @property
    def controls_sampling(self) -> bool:
        """True if the trace that it is in decides whether its calls are sampled."""

    def decide(self, call: Call) -> Plan:
        """Return the plan for this call. Pure. Raise a ``Refused``."""


class Policy(Protocol):
    """One revision of the policies; a call is decided by the same one from start to end."""

    @property
    def revision(self) -> str: ...

    def identify(self, head: RequestHead) -> Caller:
        """Find who calls. Raises ``Unauthorized``."""


class Policies(Protocol):
    """Where the policy in force is kept."""

    def active(self) -> Policy:
        """Return the revision in force."""

    async def read(self, head: RequestHead) -> Policy:
        """Return the revision for this call, re-read from disk if its key may ask for that."""


HandOn = Callable[[Sequence[Frame]], bool]
"""Takes frames of an answer as they come. False if the answer is to return them all the same, to
whoever knows what is left to be done with them."""


class UpstreamResponse(Protocol):
    """An answer that has begun; entering owns it, leaving closes the upstream."""

    @property
    def head(self) -> ResponseHead: ...

    def frames(self, hand_on: HandOn | None = None) -> AsyncIterator[Sequence[Frame]]:
        """Return the frames, a few at a time: those that have come together. End with one that is
        marked ``last``, or raise an ``UpstreamError``. Chunks between that come while they are
        waited for may go to ``hand_on``."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class BudgetCheck(Protocol):
    """What one call has reserved."""

    def require_budget(self) -> None:
        """Raise ``LimitExceeded`` for a call that was let in for a kept answer alone."""


class Limits(Protocol):
    """What a key, a deployment or a tag may still use."""

    def admit(
        self, plan: Plan, call: Call, record: Record
    ) -> AbstractAsyncContextManager[BudgetCheck]:
        """Reserve on entering, settle to what was really used on every way out."""


class OutputGuards(Protocol):
    """The output guards at one answer."""

    @property
    def retry_requested(self) -> bool:
        """True once a guard wants another answer; nothing of this one is shown."""

    def try_inspect(self, frame: Frame) -> Sequence[Frame] | None:
        """Return what may now be shown: nothing yet, this frame, or earlier ones too; None where
        that takes longer, and the frame is to be given to ``inspect``. Raise ``GuardBlocked``."""

    async def inspect(self, frame: Frame) -> Sequence[Frame]:
        """Return what may now be shown, in the time that it takes. Raise ``GuardBlocked``."""

    def abort(self) -> Sequence[Frame]:
        """The answer has broken off: give what was clear and had only waited for more."""


class CallGuards(Protocol):
    """The guards of one call."""

    async def inspect(self) -> tuple[Plan, Call]:
        """Pass the call, or give it with texts masked, or with a plan that leads elsewhere. Raises
        ``GuardBlocked``."""

    async def redact_error(self, error: ProxyError) -> None:
        """Take out of an error what the guards of answers do not let pass of an upstream's words,
        which may quote the question."""

    def guard_output(self, call: Call, head: ResponseHead) -> OutputGuards:
        """Start watching one answer to the call, as its upstream got it. Raise ``GuardBlocked`` for
        one that no guard can read, where policy does not let that pass."""


class Guards(Protocol):
    """The detectors that a plan asks for."""

    def for_call(self, plan: Plan, call: Call, record: Record) -> CallGuards:
        """Return the guards of one call."""


class GuardClients(Protocol):
    """The ways out of the process for guards that ask somebody else."""

    def of(self, record: Record, *, waits: bool = True) -> GuardClient:
        """Return the ways out for guards of one call, which ``waits`` for their answers or goes on
        meanwhile; what they send joins its trace."""


class Embedder(Protocol):
    """Computes embeddings with a deployment of the policy."""

    async def embed(
        self, record: Record, deployment: str, text: str, *, waits: bool
    ) -> tuple[str, Any]:
        """Return the target that has computed an embedding, and its response, for a call that
        ``waits`` for it or goes on meanwhile. Raises ``ProxyError``."""


class Sink(Protocol):
    """Where what may be shown of an answer goes: a client, or what stands in for several."""

    async def start(self, head: ResponseHead, record: Record) -> None: ...

    async def send(self, frames: Sequence[Frame]) -> None: ...

    def try_send(self, frames: Sequence[Frame]) -> bool:
        """Send frames after the first and before the last, where that is little work and waits for
        nobody. False, and nothing is done, where it is not."""


FetchResponse = Callable[[Sink], Awaitable[None]]


class Cache(Protocol):
    """Answers given before, or being given."""

    async def serve(
        self, plan: Plan, call: Call, record: Record, client: Sink, forward: FetchResponse
    ) -> None:
        """Show a client the kept answer to this very question under this very policy, or the one
        that an equal call is getting now; else let ``forward`` fetch and show one, and keep it.

        ``call`` is as the client sent it. Raises what ``forward`` raises, and ``BadRequest``.
        """


Review = Callable[[ProxyError], Awaitable[None]]
"""Takes out of an error what guards do not let pass of an upstream's words."""


class Forwarder(Protocol):
    """The upstreams."""

    def open(
        self, plan: Plan, call: Call, record: Record, review: Review
    ) -> Awaitable[UpstreamResponse]:
        """Return the first answer that begins; ``redact_error`` looks at the errors that come
        within an answer. Raise ``UpstreamError``, or ``BadField`` for a request that the target's
        dialect cannot express."""


class BillingRegistry(Protocol):
    """What was billed that several calls may show, of all instances."""

    async def bill_once(self, name: str, owner: str) -> bool:
        """True for the first owner who bills something by a name, each time that it asks."""


class Emitter(Protocol):
    """What the world learns of a call."""

    def observing(self, record: Record) -> AbstractContextManager[None]:
        """Emit the record once, on every way out; never raise, never wait."""


class EventLog(Protocol):
    """Where events of the process go: a name such as ``policy.in_force``, and what is known."""

    def info(self, event: str, **fields: object) -> None: ...

    def warning(self, event: str, **fields: object) -> None: ...

    def error(self, event: str, **fields: object) -> None: ...
