"""The shape of a dialect: what a wire format says, both ways, as tables and pure functions.

A client's dialect reads a request into OpenAI's form and writes an answer out of it; an upstream's
writes the request and reads the answer. So each dialect needs one reader and one writer, never a
translator for each pair.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Protocol

from proxy.dialects.statuses import DENIALS, USUAL, Statuses
from proxy.errors import ProxyError, UpstreamFinding
from proxy.fields.checks import Fields
from proxy.runtime.frozen import frozen
from proxy.types import Call, Endpoint, Json, RequestHead, Secret
from proxy.types.events import FamilyName
from proxy.types.guard import GuardResults

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

    def __call__(self, verdicts: GuardResults, *, flagged: bool) -> int: ...


@frozen
class ErrorResponse:
    """An error in a dialect's own form; ``body`` also serves as the data of an error event."""

    status: int
    body: Json
    headers: tuple[tuple[str, str], ...] = ()


def ok(verdicts: GuardResults, *, flagged: bool) -> int:
    return 200


def unchanged(endpoint: Endpoint, body: Json) -> Json:
    return body


@frozen
class ClientDialect:
    """How clients of the dialect ask and are answered.

    A request: ``header_prefix`` begins the names of the dialect's own headers. Each may come once;
    where a dialect has the very routes of another one, any of them makes a call one of this
    dialect. ``read_headers`` adds to the head what they say, if that is more than our own do.
    ``rules`` say which fields do not fit each other, of bodies that have one of ``ruled``.
    ``to_chat`` puts a checked body into OpenAI's form; ``named`` finds a model and a deployment in
    one name.
    ``aliases`` are other names of fields: where a field stands under both, ``to_chat`` keeps the
    field and leaves the alias out. ``filtered`` are the fields of which only a part may pass.

    A response: ``whole`` returns the document of a whole answer by those of its model calls; None
    if it is the only one. ``add_verdicts`` adds the verdicts of our guards and the upstream's to a
    whole answer and to an error, with ``streams_verdicts`` also to the chunk that finishes a
    choice. ``status`` returns the status, which guards may change, as may an upstream that has
    ``flagged`` the answer. ``headers`` returns headers by the document (None for a stream), the
    number of attempts and the verdict of the cache. ``done`` is true if a stream ends with
    ``[DONE]``, ``always_usage`` if its last chunk carries usage unasked.

    ``reads_error_events`` is true if clients take an error event for the failure of a stream, which
    then ends cleanly; for all others the connection is cut. ``reads_any_logprobs`` is true if those
    of legacy completions may have chat's form, ``reads_times`` if an answer tells the time that its
    model took.

    ``known_by`` is a header that its clients send with each request, by which they are known on a
    path that is not served.

    ``user`` finds the end user in the ``metadata`` of a body without ``user``. ``endpoints`` are
    the clients of endpoints with other responses.
    """

    routes: Mapping[tuple[str, str], Endpoint]
    credential: Callable[[Headers], Secret | None]
    refuse: Callable[[ProxyError, str], ErrorResponse]
    read_headers: Callable[[Headers, RequestHead], RequestHead] | None = None
    header_prefix: str | None = None
    rules: Mapping[Endpoint, tuple[Rule, ...]] = field(default_factory=dict)
    ruled: frozenset[str] = frozenset()
    to_chat: Callable[[Endpoint, Json], Json] = unchanged
    aliases: Mapping[str, str] = field(default_factory=dict)
    filtered: tuple[str, ...] = ()
    whole: Callable[[Call, Mapping[int, Json]], Json] | None = None
    add_verdicts: Callable[[Json, GuardResults, Findings], Json] | None = None
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
    known_by: str | None = None
    endpoints: Mapping[Endpoint, ClientDialect] = field(default_factory=dict)


@frozen
class UpstreamDialect:
    """How an upstream of the dialect is asked, and how its answers differ from those of the family.

    ``prefix`` goes before ``paths`` when a ``base_url`` has no path of its own. ``to_chat`` puts a
    document into the form of its family. ``finishes`` are finish reasons that only clients of the
    dialect know, with OpenAI's words. ``shown`` are the response headers (or prefixes ending in
    ``-``) that a client of the same dialect may see.
    ``usage_option`` is true if usage in streams must be requested. ``statuses`` has the meanings of
    response statuses, ``denials`` the words of an error by which its guards deny a call.
    ``implied`` has the upstream's behavior without a field, as a value of that field.
    ``required_headers`` are those that it refuses a request without, and that only a policy can
    name. It gets the headers of its own clients whose names begin with ``forwarded_prefix``, and
    ``usual_headers`` if they have none.
    """

    prefix: str
    paths: Mapping[Endpoint, str]
    authorize: Callable[[str], tuple[str, str]]
    from_chat: Callable[[Endpoint, Json], Json] = unchanged
    to_chat: Callable[[Json], Json] | None = None
    finishes: Mapping[str, str] = field(default_factory=dict)
    streams: bool = True
    usage_option: bool = True
    shown: tuple[str, ...] = ()
    statuses: Statuses = field(default_factory=lambda: USUAL)
    denials: frozenset[str] = DENIALS
    implied: Mapping[str, object] = field(default_factory=lambda: IMPLIED)
    required_headers: tuple[str, ...] = ()
    forwarded_prefix: str | None = None
    usual_headers: Mapping[str, str] = field(default_factory=dict)


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
    client: ClientDialect
    server: UpstreamDialect
    types: Mapping[Endpoint, Fields] = field(default_factory=dict)
    provider: str | None = None
    cells: TableCells = TableCells()
    families: Mapping[Endpoint, FamilyName] = field(default_factory=dict)
