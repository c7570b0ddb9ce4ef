"""Embeddings are one document, which passes."""

from __future__ import annotations

import orjson
import pytest

from proxy.dialects.document import EMBEDDINGS
from proxy.dialects.family import ReadOptions, WriteOptions
from proxy.errors import UpstreamInvalid
from proxy.money.usage import Tokens
from proxy.types import Call, Json, RequestHead
from proxy.types.events import Extension, Frame, Start, UsageReport
from tests.checked import OrderChecker

CALL = Call(RequestHead("openai", "embeddings", "/v1/embeddings", "req_1"), {"input": "a"})
DOC: Json = {
    "object": "list",
    "model": "m",
    "data": [{"index": 0, "embedding": [0.5]}],
    "usage": {"prompt_tokens": 2, "total_tokens": 2},
}


def read(doc: Json) -> Frame:
    reader = EMBEDDINGS.reader(ReadOptions(CALL, whole=True, inspect=True))
    [frame] = OrderChecker().each(reader.read(doc, orjson.dumps(doc)))
    return frame


def test_a_document_passes_byte_for_byte() -> None:
    raw = b'{ "data": [] }'
    [frame] = EMBEDDINGS.reader(ReadOptions(CALL, whole=True)).read({"data": []}, raw)
    writer = EMBEDDINGS.writer(WriteOptions(CALL, True, tuple))

    assert writer.feed(frame._replace(last=True)) == raw


def test_a_changed_document_is_written() -> None:
    frame = read(DOC)._replace(raw=None, last=True)

    assert orjson.loads(EMBEDDINGS.writer(WriteOptions(CALL, True, tuple)).feed(frame)) == DOC


def test_usage_and_findings_are_events() -> None:
    frame = read({**DOC, "hook_results": {}})

    [start, extension, usage] = frame.events[:3]
    assert start == Start(None, "m", None)
    assert extension == Extension("hook_results", {})
    assert isinstance(usage, UsageReport)
    assert usage.tokens == Tokens(input=2)


def test_a_body_without_a_document_is_invalid() -> None:
    with pytest.raises(UpstreamInvalid):
        EMBEDDINGS.reader(ReadOptions(CALL, whole=True)).end()
