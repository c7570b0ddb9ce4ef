"""Frames of documents, for tests of code that reads frames."""

from __future__ import annotations

import json

from proxy.dialects.families import FAMILIES
from proxy.dialects.family import ReadOptions
from proxy.types import Call, RequestHead
from proxy.types.events import FamilyName, Frame
from tests.doubles import Json


def whole_frame(doc: Json, family: FamilyName = "completions", *, model_call: int = 0) -> Frame:
    head = RequestHead("openai", "completions", "/v1/completions", "req_1")
    options = ReadOptions(Call(head, {}), whole=True, model_call=model_call)
    [frame] = FAMILIES[family].reader(options).read(doc, json.dumps(doc).encode())
    return frame


def stream_frames(*docs: Json, family: FamilyName = "chat") -> list[Frame]:
    head = RequestHead("openai", "chat", "/v1/chat/completions", "req_1")
    reader = FAMILIES[family].reader(ReadOptions(Call(head, {}, stream=True)))
    return [frame for doc in docs for frame in reader.read(doc, json.dumps(doc).encode())]
