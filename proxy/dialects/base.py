"""Records of a dialect: tables and pure functions for clients and for upstreams.

A client dialect converts requests to OpenAI's format and writes responses. An upstream dialect
converts requests from that form and reads responses. No pair of dialects needs specific code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Protocol

from proxy.dialects.statuses import DENIALS, USUAL, Statuses
from proxy.errors import ProxyError, UpstreamFinding
from proxy.fields.checks import Fields
from proxy.runtime.frozen import frozen
from proxy.types import Call, Endpoint, Json, RequestHead
from proxy.types.events import FamilyName
from proxy.types.guard import GuardResults

AUTHORIZATION = "authorization"
Headers = Mapping[str, str]  # names in lower case
Findings = Sequence[UpstreamFinding]
Rule = Callable[[Json], None]  # raises BadField if fields contradict each other

IMPLIED: Mapping[str, object] = {
    "context_length_exceeded_behavior": "error",
    "include_stop_str_in_output": False,
}
"""Default behavior of most upstreams: they refuse too long prompts, and omit the stop text."""


@frozen
class ErrorResponse:
    """An error in a dialect's own form; ``body`` also serves as the data of an error event."""

    status: int
    body: Json
    headers: tuple[tuple[str, str], ...] = ()


class Refuse(Protocol):
    """Returns an error in the form of the dialect."""

    def __call__(
        self, error: ProxyError, request_id: str, *, ends_stream: bool = False
    ) -> ErrorResponse:
        """`ends_stream`: the client has received part of the response."""
        ...


@frozen
class ClientDialect:
    """Client side of a dialect.

    Requests: the first of ``key_headers`` that is set has the key, ``authorization`` as a Bearer
    token. ``header_prefix`` is the prefix of the dialect's headers; on a route that two dialects
    share, such a header selects this one. ``read_headers`` adds their values to the request head.
    ``rules`` check combinations of fields in bodies that have one of ``ruled``. ``to_chat``
    converts a validated body to OpenAI's format. ``named`` splits a name into model and deployment.
    ``aliases`` are other names of fields; the field has precedence. ``filtered`` are fields of
    which only a part is accepted. ``user`` reads the end user from ``metadata``. ``known_by`` is a
    header that all clients of the dialect send, which selects it on unknown paths.

    Responses: ``whole`` merges the documents of several model calls. ``add_verdicts`` adds guard
    results to a response or an error, with ``streams_verdicts`` also to the last chunk of a choice.
    ``status`` returns the status by guard results and whether the upstream flagged the response.
    ``headers`` returns extra headers. ``done`` is True if streams end with ``[DONE]``,
    ``always_usage`` if their last chunk always has usage. ``reads_error_events`` is True if clients
    handle error events; for others the connection is closed. ``reads_any_logprobs`` accepts chat's
    log-probabilities in legacy completions. ``reads_times`` adds the model's latency. ``endpoints``
    are the clients of endpoints with other responses.
    """

    routes: Mapping[tuple[str, str], Endpoint]
    refuse: Refuse
    key_headers: tuple[str, ...] = (AUTHORIZATION,)
    read_headers: Callable[[Headers, RequestHead], RequestHead] | None = None
    header_prefix: str | None = None
    rules: Mapping[Endpoint, tuple[Rule, ...]] = field(default_factory=dict)
    ruled: frozenset[str] = frozenset()
    to_chat: Callable[[Endpoint, Json], Json] | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    filtered: tuple[str, ...] = ()
    whole: Callable[[Call, Mapping[int, Json]], Json] | None = None
    add_verdicts: Callable[[Json, GuardResults, Findings], Json] | None = None
    streams_verdicts: bool = False
    status: Callable[[GuardResults, bool], int] | None = None
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
    """Upstream side of a dialect, and the differences of its responses from the family.

    ``prefix`` precedes ``paths`` if a ``base_url`` has no path. ``key_header`` has the key, in
    ``authorization`` as a Bearer token. ``to_chat`` converts a document to its family's form.
    ``finishes`` maps finish reasons of the vendor to OpenAI's. ``shown`` are response headers (or
    prefixes ending in ``-``) that clients of the same dialect receive. ``usage_option`` is True if
    usage in streams must be requested. ``statuses`` maps response statuses, ``denials`` are the
    words of errors by which its guards deny a call. ``implied`` has the default behavior of absent
    fields. ``required_headers`` must be set in the policy. Client headers with ``forwarded_prefix``
    are forwarded; ``usual_headers`` are sent if the client has none.
    """

    prefix: str
    paths: Mapping[Endpoint, str]
    key_header: str = AUTHORIZATION
    from_chat: Callable[[Endpoint, Json], Json] | None = None
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
class Dialect:
    """A wire format. ``fields`` are its request fields by endpoint.

    ``name`` is its name in policies and metrics. ``provider`` is the default provider for prices,
    None if many providers use the dialect. ``types`` are the fields without ranges, if the ranges
    differ between servers: values are then checked against the ranges of the upstream. ``families``
    are the API families of endpoints other than chat and legacy completions.
    """

    name: str
    fields: Mapping[Endpoint, Fields]
    client: ClientDialect
    server: UpstreamDialect
    types: Mapping[Endpoint, Fields] = field(default_factory=dict)
    provider: str | None = None
    families: Mapping[Endpoint, FamilyName] = field(default_factory=dict)
