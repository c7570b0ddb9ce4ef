"""One attempt at a target: its context, its end, and the reader of its response."""

from __future__ import annotations

import re
from collections.abc import Mapping

from proxy.call.attempts import Attempt
from proxy.call.record import Record
from proxy.dialects import DIALECTS, families
from proxy.dialects.family import ReadOptions
from proxy.dialects.frames.reader import FamilyFrameReader, FrameReader, Rewrite
from proxy.dialects.frames.sequencer import Sequencer
from proxy.dialects.requests.upstream_request import UpstreamRequest
from proxy.dialects.responses.sealing import DocumentSealer, IdSealer
from proxy.dialects.wire.strict_json import DocumentParser
from proxy.errors import (
    ProxyError,
    RequestTimeout,
    StaleConnection,
    UpstreamInvalid,
    UpstreamRejected,
    UpstreamTimeout,
)
from proxy.errors.words import MAX_ID, MAX_WORD, first_items, shorten_to_ascii
from proxy.fields.token_bounds import CHOICE_COUNT_FIELDS, OPTION_GROUPS, count_total_choices
from proxy.money.usage import read_chat_usage
from proxy.runtime.frozen import frozen
from proxy.types import Call, ModelCall, Plan, Target
from proxy.upstream.errors import reclassify_policy_fault, redact_credentials
from proxy.upstream.health import TargetSlot
from proxy.upstream.reply import Reply


@frozen
class AttemptContext:
    """Context of the attempts for ``plan.model_calls[index]``."""

    plan: Plan
    call: Call
    record: Record
    index: int
    model_call: ModelCall

    def compute_time_left_s(self) -> float:
        """Return the seconds left for further attempts.

        The limit for all attempts is the sum of the ``total`` timeouts of the targets, or the
        client's timeout if that is lower.
        """
        allowed_s = 0.0
        for target in self.model_call.targets:
            allowed_s += target.upstream.timeouts.total
        if self.call.timeout_s is not None:
            allowed_s = min(allowed_s, self.call.timeout_s)
        return allowed_s - (self.record.now() - self.record.started)


@frozen
class OpenAttempt:
    """An attempt that holds a slot of its target. Call ``finish_attempt`` exactly once."""

    call: Call
    target: Target
    request: UpstreamRequest
    attempt: Attempt
    record: Record
    slot: TargetSlot

    def fail(self, error: BaseException) -> BaseException:
        """Record the failure. Return the error to raise, without our credentials.

        Call it at most once. A timeout that the client set does not count against the target.
        """
        is_timeout = isinstance(error, UpstreamTimeout) and error.code == "upstream_total_timeout"
        client_timeout_s, timeout_s = self.call.timeout_s, self.target.upstream.timeouts.total
        if is_timeout and client_timeout_s is not None and client_timeout_s < timeout_s:
            error = RequestTimeout("The timeout that the request set has passed.")
            self.attempt.error = error.code
            return error
        if isinstance(error, UpstreamRejected):
            error = reclassify_policy_fault(error, self.call, self.target)
        if isinstance(error, ProxyError):
            redact_credentials(error, self.target.upstream)
            self._restore_client_ids(error)
            self.attempt.error = error.code
            self.attempt.cause, self.attempt.system_text = error.cause, error.system_text
            self.attempt.findings = error.findings or self.attempt.findings
            if error.usage is not None:  # the final usage
                self.attempt.meter.set_reported_usage(read_chat_usage(error.usage))
                self.attempt.finished = self.attempt.meter.reported is not None
                self.attempt.bill = None
        else:
            self.attempt.error = "cancelled"
        if isinstance(error, StaleConnection):
            return error  # the target is not at fault
        if not is_timeout or self.record.now() - self.attempt.started > timeout_s / 2:
            self.slot.fail(error)  # otherwise earlier attempts used up the time, not this target
        return error

    def _restore_client_ids(self, error: ProxyError) -> None:
        """Replace the provider's ids of stored objects in a message by the client's ids."""
        state_ref = self.call.state_ref
        if state_ref is not None and state_ref.id:
            error.message = error.message.replace(state_ref.id, state_ref.client_id)
        for client_id, upstream_id in self.call.item_ids:
            if upstream_id in error.message:  # client ids may be as long as a body
                short_id = shorten_to_ascii(client_id, MAX_ID)
                error.message = error.message.replace(upstream_id, short_id)

    def on_sent(self) -> None:
        """Record that the upstream has the whole request."""
        self.attempt.sent_at = self.record.now()

    def finish_attempt(self) -> None:
        """Record the end of the attempt and release its slot."""
        self.attempt.ended = self.record.now()
        self.slot.release()


MIB = 1024 * 1024
MAX_RESPONSE_BYTES = 64 * MIB  # default
MAX_EMBEDDINGS_BYTES = 256 * MIB  # 2,048 vectors of 3,072 numbers take up to 195 MB
MAX_HEADER_LENGTH = 128
PLAIN_NUMBER = re.compile("[0-9]{1,15}")  # a remaining rate limit
JSON_TYPE, EVENT_STREAM_TYPE = "application/json", "text/event-stream"
_CHOICE_FIELDS = OPTION_GROUPS.union(CHOICE_COUNT_FIELDS, ("prompt",))
"""Fields that may request several choices."""
SHOWN_PREFIXES = {
    name: tuple(h for h in dialect.server.forwarded_response_headers if h.endswith("-"))
    for name, dialect in DIALECTS.items()
}


def make_reader(
    open_attempt: OpenAttempt, reply: Reply, ids: IdSealer | None = None
) -> FrameReader:
    """Return the reader of a response. ``ids`` seals the ids of stored objects.

    Raises ``UpstreamInvalid`` for an unexpected media type.
    """
    check_encoding(open_attempt, reply)
    call, upstream = open_attempt.call, open_attempt.target.upstream
    media_type = reply.headers.get("content-type", "")
    if media_type not in (JSON_TYPE, EVENT_STREAM_TYPE):
        media_type = media_type.partition(";")[0].strip().lower()
    is_stream = media_type == EVENT_STREAM_TYPE and call.stream
    if media_type != JSON_TYPE and not is_stream:
        raise UpstreamInvalid("The upstream sent neither JSON nor the requested stream.")
    dialect = DIALECTS[upstream.dialect]
    client = families.FAMILIES[families.find_client_family(call)]
    family = families.FAMILIES[families.find_family_name(dialect, open_attempt.request.endpoint)]
    is_translated = families.needs_translation(client.name, family.name)
    server, plan = dialect.server, open_attempt.record.plan
    guards = None if plan is None else plan.guards
    is_same_dialect = call.head.dialect == dialect.name
    inspect = guards is not None and (guards.output_stage.in_force or guards.input_stage.restores)
    options = ReadOptions(
        call,
        not is_stream,
        call.stream and not is_stream,
        inspect=inspect,
        is_translated=is_translated,
        one_choice=inspect and is_stream and _has_one_choice(open_attempt),
        model_call=open_attempt.attempt.model_call,
        finish_reasons={} if is_same_dialect else server.finish_reasons,
        shown_as=client.shown_as,
    )
    rewrite: Rewrite | None = server.to_chat
    if ids is not None and not is_translated and family.has_stored_ids:
        rewrite = _make_id_sealer(open_attempt, ids)
    documents = DocumentParser(upstream.max_answer_values, allows_vectors=family.has_vectors)
    is_ordered = (is_translated and client.has_part_events) or (
        options.inspect and family.has_part_events
    )
    sequencer = None
    if is_ordered and call.stream:
        sequencer = Sequencer(is_joined_by_index=not is_translated)
    limit = None
    if not is_stream:
        default = MAX_EMBEDDINGS_BYTES if family.has_vectors else MAX_RESPONSE_BYTES
        limit = upstream.max_answer_bytes or default
    return FamilyFrameReader(
        family, options, server, documents, limit=limit, rewrite=rewrite, sequencer=sequencer
    )


def _has_one_choice(open_attempt: OpenAttempt) -> bool:
    """Return True if neither the client nor a rule asks for several choices."""
    body, plan = open_attempt.call.body, open_attempt.record.plan
    if plan is not None:
        model_call = plan.model_calls[open_attempt.attempt.model_call]
        body = {**body, **model_call.get_overrides(open_attempt.target).set}
    return _CHOICE_FIELDS.isdisjoint(body) or count_total_choices(body) == 1


def check_encoding(open_attempt: OpenAttempt, reply: Reply) -> None:
    """Raise ``UpstreamInvalid`` for a compressed response."""
    headers = reply.headers
    if "content-encoding" in headers and headers["content-encoding"].lower() != "identity":
        open_attempt.attempt.response_at = open_attempt.record.now()  # the upstream has answered
        raise UpstreamInvalid("The upstream sent a compressed response, which was not requested.")


def _make_id_sealer(open_attempt: OpenAttempt, ids: IdSealer) -> Rewrite:
    record = open_attempt.record
    deployment = record.plan.deployment if record.plan is not None else None
    sealer = DocumentSealer(
        id_sealer=ids,
        key_name=record.key or "",
        deployment=deployment or "",
        target=open_attempt.target.id,
        state_ref=open_attempt.call.state_ref,
        upstream=open_attempt.target.upstream.name,
    )
    is_conversation = open_attempt.request.endpoint == "conversations"
    return sealer.seal_conversation if is_conversation else sealer.seal


def select_client_headers(open_attempt: OpenAttempt, reply: Reply) -> tuple[tuple[str, str], ...]:
    """Return the allowlisted headers for a client that uses the upstream's dialect."""
    dialect = open_attempt.target.upstream.dialect
    allowlist = DIALECTS[dialect].server.forwarded_response_headers
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


def read_remaining_rate_limit(headers: Mapping[str, str]) -> dict[str, int]:
    """Return the remaining requests and tokens, as far as the headers have plain digits."""
    remaining = {}
    for unit in ("requests", "tokens"):
        name = f"x-ratelimit-remaining-{unit}"
        if name in headers and PLAIN_NUMBER.fullmatch(headers[name]):
            remaining[unit] = int(headers[name])
    return remaining
