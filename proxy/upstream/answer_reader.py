"""Reads upstream responses: the reader of a body by its media type, headers for clients, and the
remaining rate limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from proxy.dialects import DIALECTS
from proxy.dialects.documents import Documents
from proxy.dialects.families import FAMILIES, client_family, crosses, family_name
from proxy.dialects.family import ReadOptions
from proxy.dialects.frame_reader import FrameReader, Rewrite, StreamFrameReader, WholeFrameReader
from proxy.dialects.sequencer import Sequencer
from proxy.errors import UpstreamInvalid
from proxy.errors.words import MAX_WORD, first_items
from proxy.upstream.forwarded import OpenAttempt
from proxy.upstream.reply import Reply

if TYPE_CHECKING:
    from proxy.dialects.responses.sealing import DocumentSealer, ResponseIds

MIB = 1024 * 1024
ANSWER_BYTES = 64 * MIB  # of an answer, where the policy does not say it
VECTORS_BYTES = 256 * MIB  # 2,048 vectors of 3,072 numbers take 195 MB as some upstreams write them
MAX_SHOWN = 128  # characters of a header
MAX_DIGITS = 15  # of a remaining rate limit
JSON, EVENTS = "application/json", "text/event-stream"
SHOWN_BEGINS = {
    name: tuple([shown for shown in dialect.server.shown if shown.endswith("-")])
    for name, dialect in DIALECTS.items()
}


def reader_of(asked: OpenAttempt, reply: Reply, ids: ResponseIds | None = None) -> FrameReader:
    """Return the reader of a response by its media type. `ids` seals the ids of stored objects."""
    check_encoding(asked, reply)
    call, upstream, endpoint = asked.call, asked.target.upstream, asked.request.endpoint
    media_type = reply.headers.get("content-type", "")
    if media_type not in (JSON, EVENTS):
        media_type = media_type.partition(";")[0].strip().lower()
    is_stream = media_type == EVENTS and call.stream
    if media_type != JSON and not is_stream:
        raise UpstreamInvalid("The upstream sent neither JSON nor the requested stream.")
    dialect = DIALECTS[upstream.dialect]
    client, family = FAMILIES[client_family(call)], FAMILIES[family_name(dialect, endpoint)]
    is_crossing = crosses(client.name, family.name)
    server = dialect.server
    words = server.finishes if call.head.dialect != dialect.name else {}
    options = ReadOptions(
        call=call,
        whole=not is_stream,
        stream=call.stream and not is_stream,
        inspect=_reads_texts(asked),
        crossing=is_crossing,
        model_call=asked.attempt.model_call,
        finishes=tuple(words.items()),
    )
    rewrite: Rewrite | None = server.to_chat
    if ids is not None and not is_crossing and family.name in ("responses", "stored"):
        rewrite = _sealing(asked, ids)
    has_vectors = family.name == "embeddings"
    documents = Documents(upstream.max_answer_values, vectors=has_vectors)
    is_ordered = (is_crossing and client.marks_parts) or (options.inspect and family.marks_parts)
    order = Sequencer() if is_ordered and call.stream else None
    if is_stream:
        return StreamFrameReader(family, options, server, documents, rewrite=rewrite, order=order)
    limit = upstream.max_answer_bytes or (VECTORS_BYTES if has_vectors else ANSWER_BYTES)
    return WholeFrameReader(
        family, options, server, documents, limit=limit, rewrite=rewrite, order=order
    )


def check_encoding(asked: OpenAttempt, reply: Reply) -> None:
    """Raise ``UpstreamInvalid`` for a compressed response, which nobody requested."""
    headers = reply.headers
    if "content-encoding" in headers and headers["content-encoding"].lower() != "identity":
        asked.attempt.response_at = asked.record.now()  # the upstream has worked for it
        raise UpstreamInvalid("The upstream sent a compressed response, which was not requested.")


def _reads_texts(asked: OpenAttempt) -> bool:
    """Return True if guards inspect the texts of the answer or restore values in them."""
    plan = asked.record.plan
    guards = None if plan is None else plan.guards
    return guards is not None and (guards.of_output.in_force or guards.input_stage.restores)


def _sealing(asked: OpenAttempt, ids: ResponseIds) -> Rewrite:
    """Return what seals the ids in a document of Responses."""
    sealed = _ids_of(asked, ids)
    is_conversation = asked.request.endpoint == "conversations"
    return sealed.seal_conversation if is_conversation else sealed.seal


def _ids_of(asked: OpenAttempt, ids: ResponseIds) -> DocumentSealer:
    """Return the sealed ids of an answer, for the key that gets it."""
    from proxy.dialects.responses.sealing import DocumentSealer  # noqa: PLC0415  # with a secret alone

    record = asked.record
    deployment = record.plan.deployment if record.plan is not None else None
    return DocumentSealer(
        ids=ids,
        key=record.key or "",
        deployment=deployment or "",
        target=asked.target.id,
        state_ref=asked.call.state_ref,
        upstream=asked.target.upstream.name,
    )


def shown_of(asked: OpenAttempt, reply: Reply) -> tuple[tuple[str, str], ...]:
    """By allow-list, and only to a client that speaks the upstream's own dialect."""
    shown = DIALECTS[asked.target.upstream.dialect].server.shown
    if not shown or asked.target.upstream.dialect != asked.call.head.dialect:
        return ()
    headers = reply.headers
    begins = SHOWN_BEGINS[asked.target.upstream.dialect]
    names = [name for name in shown if name in headers]
    if begins:
        names = [name for name in headers if name in shown or name.startswith(begins)]
    if not names:
        return ()
    allowed = [
        (name, headers[name])
        for name in names
        if len(name) <= MAX_WORD and len(headers[name]) <= MAX_SHOWN and " " not in headers[name]
    ]
    return tuple(first_items(allowed))


def remaining(headers: Mapping[str, str]) -> dict[str, int]:
    """Return how many requests and tokens are left, as far as the headers have plain digits."""
    left = {}
    for unit in ("requests", "tokens"):
        value = headers.get(f"x-ratelimit-remaining-{unit}", "")
        if value.isascii() and value.isdigit() and len(value) <= MAX_DIGITS:
            left[unit] = int(value)
    return left
