"""Records of a dialect: tables and pure functions for clients and for upstreams.

A client dialect converts requests to OpenAI's format and writes responses. An upstream dialect
converts requests from that form and reads responses. No pair of dialects needs specific code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Protocol

from proxy.dialects.statuses import DEFAULT_STATUSES, DENIAL_CODES, Statuses
from proxy.errors import ProxyError, UpstreamFinding
from proxy.fields.checks import Fields
from proxy.runtime.frozen import frozen
from proxy.types import Call, Endpoint, Json, RequestHead
from proxy.types.events import FamilyName
from proxy.types.guard import GuardResults

AUTHORIZATION = "authorization"
Headers = Mapping[str, str]  # names in lower case
Findings = Sequence[UpstreamFinding]
Rule = Callable[[Json], None]  # raises InvalidField if fields contradict each other

DEFAULT_VALUES: Mapping[str, object] = {
    "context_length_exceeded_behavior": "error",
    "include_stop_str_in_output": False,
}
"""Meaning of absent fields at most upstreams: they reject long prompts and omit the stop text."""


@frozen
class ErrorResponse:
    """An error in a dialect's own form. ``body`` is also the data of an error event."""

    status: int
    body: Json
    headers: tuple[tuple[str, str], ...] = ()


class MakeErrorResponse(Protocol):
    """Returns an error in the form of the dialect."""

    def __call__(
        self, error: ProxyError, request_id: str, *, ends_stream: bool = False
    ) -> ErrorResponse:
        """``ends_stream``: the client has received part of the response."""
        ...


@frozen
class ClientDialect:
    """Client side of a dialect: how its clients send requests and read responses."""

    routes: Mapping[tuple[str, str], Endpoint]
    """Endpoints by method and path."""
    make_error_response: MakeErrorResponse

    # Requests
    key_headers: tuple[str, ...] = (AUTHORIZATION,)
    """Headers that may have the key. The first one that is set counts."""
    read_headers: Callable[[Headers, RequestHead], RequestHead] | None = None
    """Adds values of the dialect's own headers to the request head."""
    header_prefix: str | None = None
    """Prefix of the dialect's headers. It selects the dialect on routes that two dialects share."""
    identifying_header: str | None = None
    """Header that all clients of the dialect send. It selects the dialect on unknown paths."""
    rules: Mapping[Endpoint, tuple[Rule, ...]] = field(default_factory=dict)
    """Checks of combinations of fields."""
    ruled_fields: frozenset[str] = frozenset()
    """Fields that the rules read. Bodies without any of them need no check."""
    to_chat: Callable[[Endpoint, Json], Json] | None = None
    """Converts a validated body to OpenAI's fields."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Fields by their other names. The field has precedence over its alias."""
    filtered_fields: tuple[str, ...] = ()
    """Fields from which ``to_chat`` removes members."""
    split_off_deployment: Callable[[str], tuple[str, str | None]] | None = None
    """Splits a name of the client into the model and the deployment."""
    read_end_user: Callable[[Json], str | None] | None = None
    """Returns the end user in the body's ``metadata``."""

    # Responses
    merge_documents: Callable[[Call, Mapping[int, Json]], Json] | None = None
    """Merges the documents of the model calls, by index of the model call, into the response."""
    add_guard_results: Callable[[Json, GuardResults, Findings], Json] | None = None
    """Adds guard results to a whole response or an error."""
    streams_guard_results: bool = False
    """Add guard results to the last chunk of each choice of a stream, too."""
    choose_success_status: Callable[[GuardResults, bool], int] | None = None
    """Returns the status of a successful response.

    Arguments: the guard results and whether a guard of the upstream found something.
    """
    make_response_headers: Callable[[Json | None, int, str], tuple[tuple[str, str], ...]] | None = (
        None
    )
    """Returns headers for the whole document, the number of attempts and the cache outcome."""
    sends_done: bool = True
    """End streams with ``data: [DONE]``."""
    always_sends_usage: bool = False
    """Send usage at the end of each stream, even if the request does not ask for it."""
    error_event_endpoints: frozenset[Endpoint] = frozenset()
    """Endpoints whose clients read error events. Others only notice a closed connection."""
    accepts_chat_logprobs: bool = False
    """Clients accept chat's log-probabilities in legacy completions."""
    reports_latency: bool = False
    """Add the latency of each model to its response."""


@frozen
class UpstreamDialect:
    """Upstream side of a dialect, and the differences of its responses from the family."""

    # Requests
    prefix: str
    """Path between a ``base_url`` without a path and the path of an endpoint."""
    paths: Mapping[Endpoint, str]
    key_header: str = AUTHORIZATION
    """Header with the key; ``authorization`` has it as a Bearer token."""
    required_headers: tuple[str, ...] = ()
    """Headers that the policy must set for each upstream."""
    forwarded_header_prefix: str | None = None
    """Prefix of client headers that are forwarded."""
    default_headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of requests whose client does not send them."""
    from_chat: Callable[[Endpoint, Json], Json] | None = None
    """Converts a body from OpenAI's fields."""
    can_stream: bool = True
    has_usage_option: bool = True
    """Usage in streams must be requested by ``stream_options``."""
    default_values: Mapping[str, object] = field(default_factory=lambda: DEFAULT_VALUES)
    """Values of fields that mean the same as their absence."""

    # Responses
    to_chat: Callable[[Json], Json] | None = None
    """Converts a document to the form of its family."""
    finish_reasons: Mapping[str, str] = field(default_factory=dict)
    """OpenAI's finish reasons by those of the vendor."""
    forwarded_response_headers: tuple[str, ...] = ()
    """Headers, or prefixes ending in ``-``, for clients of the same dialect."""
    statuses: Statuses = field(default_factory=lambda: DEFAULT_STATUSES)
    denial_codes: frozenset[str] = DENIAL_CODES
    """Codes and types of errors by which a guard of the upstream denies a call."""


@frozen
class Dialect:
    """A vendor's wire format, for clients and for upstreams."""

    name: str
    """Name in policies and metrics."""
    fields: Mapping[Endpoint, Fields]
    """Request fields with the ranges of the vendor."""
    client: ClientDialect
    server: UpstreamDialect
    lenient_fields: Mapping[Endpoint, Fields] = field(default_factory=dict)
    """Fields without ranges, for clients whose upstream may have others. Empty if none differ."""
    provider: str | None = None
    """Default provider for prices, None if many providers use the dialect."""
    families: Mapping[Endpoint, FamilyName] = field(default_factory=dict)
    """API families of endpoints other than chat and legacy completions."""
