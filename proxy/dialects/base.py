"""The shape of a dialect: what a wire format says, both ways, as tables and pure functions.

A client's dialect reads a request into OpenAI's form and writes an answer out of it; an upstream's
writes the request and reads the answer. So each dialect needs one reader and one writer, never a
translator for each pair.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple, Protocol

from proxy.dialects.statuses import DENIALS, USUAL, Statuses
from proxy.errors import ProxyError, UpstreamFinding
from proxy.fields.checks import Fields
from proxy.frozen import frozen
from proxy.types import AnswerPiece, Call, Endpoint, Json, RequestHead, Secret
from proxy.types.events import FamilyName
from proxy.types.guard import Verdicts

Headers = Mapping[str, str]  # names in lower case
Findings = Sequence[UpstreamFinding]
Rule = Callable[[Json], None]  # raises BadField when fields do not fit each other

IMPLIED: Mapping[str, object] = {
    "context_length_exceeded_behavior": "error",
    "include_stop_str_in_output": False,
}
"""What most upstreams do that cannot be told: refuse too long a prompt, leave out the stop text."""


class AnswerStatus(Protocol):
    """Returns the status of an answer; ``flagged`` says that the upstream found fault with it."""

    def __call__(self, verdicts: Verdicts, *, flagged: bool) -> int: ...


@frozen
class ErrorResponse:
    """An error in a dialect's own form; ``body`` also serves as the data of an error event."""

    status: int
    body: Json
    headers: tuple[tuple[str, str], ...] = ()


class AnswerWriter(Protocol):
    """Feed it chunks; it returns bytes as soon as there is something to send. ``weight`` is
    about how many bytes it takes to write a chunk."""

    @property
    def media_type(self) -> str: ...

    def weight(self, chunk: AnswerPiece) -> int: ...

    def feed(self, chunk: AnswerPiece) -> bytes: ...

    def fail(self, document: bytes) -> bytes:
        """Return the events that end a stream with an error, given as the body of a refusal."""
        ...


def ok(verdicts: Verdicts, *, flagged: bool) -> int:
    return 200


def unchanged(endpoint: Endpoint, body: Json) -> Json:
    return body


@frozen
class Client:
    """How clients of the dialect ask and are answered.

    A request: ``header_prefix`` begins the names of the dialect's own headers. Each may come once;
    where a dialect has the very routes of another one, any of them makes a call one of this
    dialect. ``read_headers`` adds to the head what they say, if that is more than our own do.
    ``rules`` say which fields do not fit each other, of bodies that have one of ``ruled``.
    ``to_hub`` puts a checked body into OpenAI's form; ``named`` finds a model and a deployment in
    one name.
    ``aliases`` are other names of fields: where a field stands under both, ``to_hub`` keeps the
    field and leaves the alias out. ``filtered`` are the fields of which only a part may pass.

    An answer: ``whole`` rewords it; None means that OpenAI's form passes untouched.
    ``add_verdicts`` adds what guards found, ours and the upstream's, to a whole answer and to an
    error; with ``streams_verdicts`` also to the chunk that finishes a choice. ``status`` is that of
    an answer, which guards may change, as may an upstream that has ``flagged`` it. ``headers``
    returns those of an answer, by its document (None for a stream), its attempts and the verdict of
    the cache. ``done`` is true where a stream ends with ``[DONE]``, ``always_usage`` where its last
    chunk carries usage unasked.

    ``reads_error_events`` is true where clients take an error event for the failure of a stream,
    which then ends cleanly; only a broken connection tells all others. ``reads_any_logprobs`` is
    true where those of legacy completions may have chat's form, ``reads_times`` where an answer
    says how long its model took.

    ``known_by`` is a header that its clients send with each request, by which they are known on a
    path that is not served.

    ``user`` finds the end user in the ``metadata`` of a body that says it under no ``user``.
    ``events`` makes what writes a stream that is none of OpenAI's to a call. ``endpoints`` are the
    clients of endpoints at which they are answered otherwise.
    """

    routes: Mapping[tuple[str, str], Endpoint]
    credential: Callable[[Headers], Secret | None]
    refuse: Callable[[ProxyError, str], ErrorResponse]
    read_headers: Callable[[Headers, RequestHead], RequestHead] | None = None
    header_prefix: str | None = None
    rules: Mapping[Endpoint, tuple[Rule, ...]] = field(default_factory=dict)
    ruled: frozenset[str] = frozenset()
    to_hub: Callable[[Endpoint, Json], Json] = unchanged
    aliases: Mapping[str, str] = field(default_factory=dict)
    filtered: tuple[str, ...] = ()
    whole: Callable[[Call, Mapping[int, Json]], Json] | None = None
    add_verdicts: Callable[[Json, Verdicts, Findings], Json] | None = None
    streams_verdicts: bool = False
    status: AnswerStatus = ok
    headers: Callable[[Json | None, int, str], tuple[tuple[str, str], ...]] | None = None
    named: Callable[[str], tuple[str, str | None]] | None = None
    done: bool = True
    always_usage: bool = False
    reads_error_events: bool = False
    reads_any_logprobs: bool = False
    reads_times: bool = False
    user: Callable[[Json], str | None] | None = None
    events: Callable[[Call | None], AnswerWriter] | None = None
    known_by: str | None = None
    endpoints: Mapping[Endpoint, Client] = field(default_factory=dict)


class OrderedEvent(NamedTuple):
    """An event of a stream in its place. ``raw`` are its bytes, None once any has waited; ``size``
    is how many bytes it came in."""

    event: Json
    raw: bytes | None
    size: int


class EventOrder(Protocol):
    """Feed it events that take turns; it returns those that follow now. ``left`` returns all that
    still waits, as the stream has ended. Raises ``ProxyError`` where too much waits."""

    def feed(self, event: Json, raw: bytes) -> Sequence[OrderedEvent]: ...

    def left(self) -> Sequence[OrderedEvent]: ...


@frozen
class Server:
    """How an upstream of the dialect is asked, and what its answers need to become OpenAI's form.

    ``prefix`` goes before ``paths`` when a ``base_url`` has no path of its own. ``finishes`` are
    finish reasons that only clients of the dialect know, with OpenAI's words. ``shown`` are the
    response headers (or prefixes ending in ``-``) that a client of the same dialect may see.
    ``usage_option`` says whether usage in streams must be asked for. ``statuses`` says what those
    of its responses mean, ``denials`` by which words of an error its guards deny a call.
    ``implied`` says what the upstream does about a field that it does not know, as if it had been
    told so. ``required_headers`` are those that it refuses a request without, and that only a
    policy can name. ``answers`` is the list that each whole answer has. Where its streams are none
    of OpenAI's, ``events`` makes what reads one of their events as chunks in chat's form, for a
    client of the same form or of another, and ``numbers`` what gives events the numbers that they
    lack, None for one that lacks none, ``order`` what puts those in sequence that take turns.
    ``own_to_hub`` is ``to_hub`` for one of the same form. It gets the headers of its own clients
    whose names begin with ``passed_prefix``, and ``usual_headers`` where they have none. ``ends``
    are the types of the events that such a stream ends with. ``failure`` returns the error object
    of a document that has failed in other words. ``endpoints`` are the servers of endpoints that
    are asked and answer otherwise.
    """

    prefix: str
    paths: Mapping[Endpoint, str]
    authorize: Callable[[str], tuple[str, str]]
    from_hub: Callable[[Endpoint, Json], Json] = unchanged
    to_hub: Callable[[Json], Json] | None = None
    finishes: Mapping[str, str] = field(default_factory=dict)
    streams: bool = True
    usage_option: bool = True
    shown: tuple[str, ...] = ()
    statuses: Statuses = field(default_factory=lambda: USUAL)
    denials: frozenset[str] = DENIALS
    implied: Mapping[str, object] = field(default_factory=lambda: IMPLIED)
    required_headers: tuple[str, ...] = ()
    answers: str = "choices"
    events: Callable[[bool], Callable[[Json], list[Json]]] | None = None
    numbers: Callable[[], Callable[[Json], Json | None]] | None = None
    order: Callable[[], EventOrder] | None = None
    own_to_hub: Callable[[Json], Json] | None = None
    passed_prefix: str | None = None
    usual_headers: Mapping[str, str] = field(default_factory=dict)
    ends: frozenset[str] = frozenset()
    failure: Callable[[Json], Json | None] | None = None
    endpoints: Mapping[Endpoint, Server] = field(default_factory=dict)


@frozen
class TableCells:
    """What the tables of ``docs/dialects.md`` say of a dialect in words, in Markdown.

    Where a client names its ``credential``, ``deployment`` and ``tags``, and what a policy should
    know of an ``upstream`` besides.
    """

    credential: str = "`Authorization: Bearer`"
    deployment: str = ""
    tags: str = ""
    upstream: str = ""


@frozen
class Dialect:
    """One wire format. ``fields`` are the request fields that it knows, by endpoint.

    ``name`` is its word in policies and metrics. ``provider`` is whose prices count where a policy
    names no provider: None where many providers speak the dialect.

    ``types`` are the same without their ranges, where its servers differ in those: then a client's
    values are held to them on arrival, and to the ranges of the upstream that they go to.

    ``families`` are the API families of the endpoints whose requests are neither chats nor legacy
    completions.
    """

    name: str
    fields: Mapping[Endpoint, Fields]
    client: Client
    server: Server
    types: Mapping[Endpoint, Fields] = field(default_factory=dict)
    provider: str | None = None
    cells: TableCells = TableCells()
    families: Mapping[Endpoint, FamilyName] = field(default_factory=dict)
