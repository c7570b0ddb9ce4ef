"""Reads upstream responses: the reader of a body by its media type, and headers for clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from proxy.dialects import DIALECTS
from proxy.dialects.families import FAMILIES, client_family, crosses, family_name
from proxy.dialects.family import ReadOptions
from proxy.dialects.frames.reader import FamilyFrameReader, FrameReader, Rewrite
from proxy.dialects.frames.sequencer import Sequencer
from proxy.dialects.wire.upstream_json import Documents
from proxy.errors import UpstreamInvalid
from proxy.errors.words import MAX_WORD, first_items
from proxy.upstream.attempt import OpenAttempt
from proxy.upstream.reply import Reply

if TYPE_CHECKING:
    from proxy.dialects.responses.sealing import ResponseIds

MIB = 1024 * 1024
MAX_RESPONSE_BYTES = 64 * MIB  # default
MAX_EMBEDDINGS_BYTES = 256 * MIB  # 2,048 vectors of 3,072 numbers take up to 195 MB
MAX_HEADER_LENGTH = 128
MAX_DIGITS = 15  # of a remaining rate limit
JSON, EVENTS = "application/json", "text/event-stream"
SHOWN_PREFIXES = {
    name: tuple([header for header in dialect.server.shown if header.endswith("-")])
    for name, dialect in DIALECTS.items()
}


def new_reader(
    open_attempt: OpenAttempt, reply: Reply, ids: ResponseIds | None = None
) -> FrameReader:
    """Return the reader of a response. ``ids`` seals the ids of stored objects.

    Raises ``UpstreamInvalid`` for an unexpected media type.
    """
    check_encoding(open_attempt, reply)
    call, upstream = open_attempt.call, open_attempt.target.upstream
    media_type = reply.headers.get("content-type", "")
    if media_type not in (JSON, EVENTS):
        media_type = media_type.partition(";")[0].strip().lower()
    is_stream = media_type == EVENTS and call.stream
    if media_type != JSON and not is_stream:
        raise UpstreamInvalid("The upstream sent neither JSON nor the requested stream.")
    dialect = DIALECTS[upstream.dialect]
    client = FAMILIES[client_family(call)]
    family = FAMILIES[family_name(dialect, open_attempt.request.endpoint)]
    is_crossing = crosses(client.name, family.name)
    server, plan = dialect.server, open_attempt.record.plan
    guards = None if plan is None else plan.guards
    finishes = server.finishes if call.head.dialect != dialect.name else {}
    options = ReadOptions(
        call=call,
        whole=not is_stream,
        stream=call.stream and not is_stream,
        inspect=guards is not None and (guards.of_output.in_force or guards.input_stage.restores),
        crossing=is_crossing,
        model_call=open_attempt.attempt.model_call,
        finishes=tuple(finishes.items()),
    )
    rewrite: Rewrite | None = server.to_chat
    if ids is not None and not is_crossing and family.seals_ids:
        rewrite = _sealing(open_attempt, ids)
    documents = Documents(upstream.max_answer_values, vectors=family.has_vectors)
    is_ordered = (is_crossing and client.marks_parts) or (options.inspect and family.marks_parts)
    order = Sequencer() if is_ordered and call.stream else None
    limit = None
    if not is_stream:
        default = MAX_EMBEDDINGS_BYTES if family.has_vectors else MAX_RESPONSE_BYTES
        limit = upstream.max_answer_bytes or default
    return FamilyFrameReader(
        family, options, server, documents, limit=limit, rewrite=rewrite, order=order
    )


def check_encoding(open_attempt: OpenAttempt, reply: Reply) -> None:
    """Raise ``UpstreamInvalid`` for a compressed response."""
    if reply.headers.get("content-encoding", "identity").lower() != "identity":
        open_attempt.attempt.response_at = open_attempt.record.now()  # the upstream has worked
        raise UpstreamInvalid("The upstream sent a compressed response, which was not requested.")


def _sealing(open_attempt: OpenAttempt, ids: ResponseIds) -> Rewrite:
    """Return the rewrite that seals ids for the key of the call."""
    from proxy.dialects.responses.sealing import DocumentSealer  # noqa: PLC0415  # with a secret

    record = open_attempt.record
    deployment = record.plan.deployment if record.plan is not None else None
    sealer = DocumentSealer(
        ids=ids,
        key=record.key or "",
        deployment=deployment or "",
        target=open_attempt.target.id,
        state_ref=open_attempt.call.state_ref,
        upstream=open_attempt.target.upstream.name,
    )
    is_conversation = open_attempt.request.endpoint == "conversations"
    return sealer.seal_conversation if is_conversation else sealer.seal


def client_headers(open_attempt: OpenAttempt, reply: Reply) -> tuple[tuple[str, str], ...]:
    """Return the allowlisted headers for a client that uses the upstream's dialect."""
    dialect = open_attempt.target.upstream.dialect
    allowlist = DIALECTS[dialect].server.shown
    if not allowlist or dialect != open_attempt.call.head.dialect:
        return ()
    headers, prefixes = reply.headers, SHOWN_PREFIXES[dialect]
    names = [name for name in allowlist if name in headers]
    if prefixes:
        names = [name for name in headers if name in allowlist or name.startswith(prefixes)]
    if not names:
        return ()
    allowed = [
        (name, headers[name])
        for name in names
        if len(name) <= MAX_WORD
        and len(headers[name]) <= MAX_HEADER_LENGTH
        and " " not in headers[name]
    ]
    return tuple(first_items(allowed))


def remaining_rate_limit(headers: Mapping[str, str]) -> dict[str, int]:
    """Return the remaining requests and tokens, as far as the headers have plain digits."""
    remaining = {}
    for unit in ("requests", "tokens"):
        value = headers.get(f"x-ratelimit-remaining-{unit}", "")
        if value.isascii() and value.isdigit() and len(value) <= MAX_DIGITS:
            remaining[unit] = int(value)
    return remaining
