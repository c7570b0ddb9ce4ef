"""Reads upstream responses: the reader of a body by its media type, headers for clients, and the
remaining rate limit."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from proxy.dialects import DIALECTS
from proxy.dialects.documents import Documents
from proxy.dialects.families import FAMILIES, crosses
from proxy.dialects.family import ReadOptions
from proxy.dialects.frame_reader import Rewrite, StreamFrameReader, WholeFrameReader
from proxy.dialects.hub import chat_order, turning
from proxy.dialects.reading import AnswerReader, StreamReader, WholeReader
from proxy.dialects.sequencer import Sequencer
from proxy.dialects.switched import Families, client_family, family_name, uses_frames
from proxy.errors import UpstreamInvalid
from proxy.upstream.forwarded import OpenAttempt
from proxy.upstream.reply import Reply
from proxy.words import MAX_WORD, few

if TYPE_CHECKING:
    from proxy.dialects.responses.sealing import AnswerIds, ResponseIds

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


def reader_of(asked: OpenAttempt, reply: Reply, ids: ResponseIds | None = None) -> AnswerReader:
    """Choose by what came, not by what was asked; an answer of no known kind is refused. The ids of
    what its provider keeps are sealed by ``ids``."""
    headers = reply.headers
    check_encoding(asked, reply)
    call, leg, endpoint = asked.call, asked.attempt.leg, asked.request.endpoint
    media_type = headers.get("content-type", "")
    if media_type not in (JSON, EVENTS):
        media_type = media_type.partition(";")[0].strip().lower()
    upstream = asked.target.upstream
    spoken = DIALECTS[upstream.dialect]
    families = client_family(call), family_name(spoken, endpoint)
    if uses_frames(families, call, asked.record.plan):
        return _frame_reader(asked, media_type, families, ids)
    server = spoken.server.endpoints.get(endpoint, spoken.server)
    asks = DIALECTS[call.head.dialect]
    turn = turning(call, endpoint, asks, spoken)
    form = asks.families.get(call.head.endpoint)
    given = spoken.families.get(endpoint)
    own = form is not None and form == given
    waits = given is None and media_type == EVENTS
    sequence = None if form is None or own else chat_order(call, form, waits=waits)
    seal = None if ids is None or form != "responses" or not own else _ids_of(asked, ids).sealed
    documents = Documents(upstream.max_answer_values, vectors=endpoint == "embeddings")
    if media_type == EVENTS and call.stream:
        ordered = _reads_texts(asked)
        return StreamReader(
            leg,
            turn,
            server,
            documents,
            own=own,
            seal=seal,
            ordered=ordered,
            chat_order=sequence,
        )
    if media_type != JSON:
        raise UpstreamInvalid("The upstream sent neither JSON nor the requested stream.")
    limit = upstream.max_answer_bytes or (VECTORS_BYTES if documents.vectors else ANSWER_BYTES)
    return WholeReader(
        leg,
        turn,
        server,
        documents,
        stream=call.stream,
        limit=limit,
        own=own,
        seal=seal,
        chat_order=sequence,
    )


def _frame_reader(
    asked: OpenAttempt, media_type: str, families: Families, ids: ResponseIds | None
) -> StreamFrameReader | WholeFrameReader:
    """Return a reader of frames."""
    call, upstream = asked.call, asked.target.upstream
    client, family = [FAMILIES[name] for name in families]
    is_crossing = crosses(*families)
    is_stream = media_type == EVENTS and call.stream
    if media_type != JSON and not is_stream:
        raise UpstreamInvalid("The upstream sent neither JSON nor the requested stream.")
    dialect = DIALECTS[upstream.dialect]
    server = dialect.server.endpoints.get(asked.request.endpoint, dialect.server)
    words = server.finishes if call.head.dialect != dialect.name else {}
    options = ReadOptions(
        call=call,
        whole=not is_stream,
        stream=call.stream and not is_stream,
        inspect=_reads_texts(asked),
        crossing=is_crossing,
        model_call=asked.attempt.leg,
        finishes=tuple(words.items()),
    )
    rewrite: Rewrite | None = None
    if family.answers and not family.marks_parts:  # some vendors have a form of their own
        rewrite = server.to_hub
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
        asked.attempt.began = asked.record.now()  # the upstream has worked for it
        raise UpstreamInvalid("The upstream sent a compressed response, which was not requested.")


def _reads_texts(asked: OpenAttempt) -> bool:
    """True if texts of the answer are read, or values put back into them: each as one."""
    plan = asked.record.plan
    guards = None if plan is None else plan.guards
    return guards is not None and (guards.of_output.in_force or guards.of_input.restores)


def _sealing(asked: OpenAttempt, ids: ResponseIds) -> Rewrite:
    """Return what seals the ids in a document of Responses."""
    sealed = _ids_of(asked, ids)
    if asked.request.endpoint != "conversations":
        return sealed.sealed
    from proxy.dialects.responses import conversations  # noqa: PLC0415  # few calls

    return partial(conversations.sealed, ids=sealed)


def _ids_of(asked: OpenAttempt, ids: ResponseIds) -> AnswerIds:
    """Return the sealed ids of an answer, for the key that gets it."""
    from proxy.dialects.responses.sealing import AnswerIds  # noqa: PLC0415  # with a secret alone

    record = asked.record
    deployment = record.plan.deployment if record.plan is not None else None
    return AnswerIds(
        ids=ids,
        key=record.key or "",
        deployment=deployment or "",
        target=asked.target.title,
        pin=asked.call.pin,
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
    return tuple(few(allowed))


def remaining(headers: Mapping[str, str]) -> dict[str, int]:
    """Return how many requests and tokens are left, as far as the headers have plain digits."""
    left = {}
    for unit in ("requests", "tokens"):
        value = headers.get(f"x-ratelimit-remaining-{unit}", "")
        if value.isascii() and value.isdigit() and len(value) <= MAX_DIGITS:
            left[unit] = int(value)
    return left
