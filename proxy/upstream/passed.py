"""What is other about calls that are passed on: how they are sent, when they may be sent again, and
how their answers are read."""

from __future__ import annotations

from proxy.dialects import DIALECTS
from proxy.dialects.documents import Documents
from proxy.dialects.passed import build_passed
from proxy.dialects.passed_answer import (
    PassedBytes,
    PassedDocument,
    passed_head,
    shown_headers,
)
from proxy.dialects.reading import AnswerReader
from proxy.dialects.upstream_request import UpstreamRequest
from proxy.errors import ProxyError
from proxy.meter import Meter
from proxy.passed_usage import passed_tokens
from proxy.types import Head, Target
from proxy.types.passthrough import PassedPath
from proxy.types.way import USES_NOTHING
from proxy.upstream.answer_reader import ANSWER_BYTES, check_encoding, shown_of
from proxy.upstream.forwarded import OpenAttempt
from proxy.upstream.reply import Reply
from proxy.upstream.retry import AttemptContext, is_untaken


def request_of(context: AttemptContext, target: Target) -> UpstreamRequest:
    """Return the request of a call that is passed on, for a target. Raise ``BadRequest``."""
    passed, path = context.call.head.passed, context.plan.passed
    if passed is None or path is None:
        raise RuntimeError("the call is not passed on")
    spoken = DIALECTS[target.upstream.dialect]
    return build_passed(context.call, passed, path, target, spoken)


def new_meter(method: str) -> Meter:
    """Return what finds the usage that an answer says in whatever words; of one that says nothing
    it is not known. To look up or to delete what is there uses nothing: what such an answer says,
    it would say each time it is asked."""
    if method in USES_NOTHING:
        return Meter(lambda data: None, "none")
    return Meter(passed_tokens, "unknown")


def is_safe_again(context: AttemptContext, path: PassedPath, failure: ProxyError) -> bool:
    """True if a call that has failed may be sent once more, there or elsewhere: nobody can have
    taken it, or it changes nothing."""
    upload = context.call.upload
    if upload is not None and upload.begun:
        return False
    if path.may_repeat(context.call.head.method):
        return True
    return is_untaken(failure, context.record.attempts)


def head_of(asked: OpenAttempt, reply: Reply) -> Head | None:
    """Return the head of an answer that is passed on; None where a reply is none."""
    if not 200 <= reply.status < 300:
        return None
    check_encoding(asked, reply)
    most = asked.target.upstream.max_answer_bytes or ANSWER_BYTES
    passed = passed_head(reply.status, reply.headers, most)
    shown = (*shown_of(asked, reply), *shown_headers(reply.headers))
    return Head(streamed=not passed.read, headers=shown, passed=passed)


def reader_of(asked: OpenAttempt, head: Head) -> AnswerReader:
    """Return what reads an answer, or passes its bytes."""
    leg, upstream = asked.attempt.leg, asked.target.upstream
    if head.passed is None or head.streamed:
        return PassedBytes(leg, "" if head.passed is None else head.passed.media_type)
    documents = Documents(upstream.max_answer_values)
    return PassedDocument(leg, documents, upstream.max_answer_bytes or ANSWER_BYTES)
