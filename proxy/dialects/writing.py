"""Responses in the client's dialect: their status, errors, and the writer of an answer.

Verdicts of guards in shadow are not for clients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from proxy.dialects.base import ClientDialect, ErrorResponse, ok
from proxy.dialects.families import FAMILIES, client_family
from proxy.dialects.family import FamilyWriter, WriteOptions
from proxy.dialects.findings import is_flagged
from proxy.errors import ProxyError
from proxy.types import Call, Json, ResponseHead
from proxy.types.events import Extension, Frame, UsageReport
from proxy.types.guard import GuardResults

Judged = Callable[[], GuardResults]


def nobody() -> GuardResults:
    return ()


def answer_status(
    client: ClientDialect, verdicts: GuardResults, *, flagged: bool, data: Json | None = None
) -> int:
    """Return the status of an answer that passes; of a stream, by what is known at its beginning.
    ``data`` is its first document, in which guards of the upstream may say what they found."""
    if client.status is ok:
        return 200
    flagged = flagged or (data is not None and is_flagged(data))
    return client.status(_visible(verdicts), flagged=flagged)


def refusal(
    client: ClientDialect, error: ProxyError, request_id: str, verdicts: GuardResults
) -> ErrorResponse:
    """Return an error in the client's own form, with the verdicts of guards where it has words for
    them."""
    response = client.refuse(error, request_id)
    visible = _visible(verdicts)
    if client.add_verdicts is None or not (visible or error.findings):
        return response
    return replace(response, body=client.add_verdicts(response.body, visible, error.findings))


def _visible(verdicts: GuardResults) -> GuardResults:
    return [(stage, result) for stage, result in verdicts if not result.shadow]


def first_document(frame: Frame) -> Json:
    """Return the members of a frame that decide on the head of a response: findings of upstream
    guards, and usage."""
    members: Json = {}
    for event in frame.events:
        if type(event) is Extension:
            members[event.name] = event.value
        elif type(event) is UsageReport and event.tokens is not None:
            members["usage"] = {"prompt_tokens": event.tokens.prompt_total}
    return members


def has_content(frame: Frame) -> bool:
    """Return True if a frame is not a keep-alive."""
    return frame.last or bool(frame.events) or frame.doc is not None


def answer_writer(call: Call, head: ResponseHead, verdicts: Judged) -> FamilyWriter:
    """Return the writer of an answer for its client."""
    if head.passthrough is not None:
        from proxy.dialects.passthrough.response import PassthroughWriter  # noqa: PLC0415  # few calls are such

        return PassthroughWriter(head.passthrough)
    options = WriteOptions(call, whole=not head.streamed, verdicts=verdicts)
    return FAMILIES[client_family(call)].writer(options)
