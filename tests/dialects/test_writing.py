"""Writing an answer: untouched bytes pass, the rest is put in the client's own form."""

from __future__ import annotations

import json

from proxy.dialects import DIALECTS
from proxy.dialects.writing import EventWriter, WholeWriter
from proxy.types import Call, Chunk, Door
from tests.doubles import legacy, legacy_events

CALL = Call(Door("openai", "completions", "/v1/completions", "req_1"), {}, models=("m",))


def events(dialect: str, *, wants_usage: bool = False) -> EventWriter:
    return EventWriter(DIALECTS[dialect].client, wants_usage=wants_usage)


def test_bytes_that_nothing_has_changed_pass_as_they_came() -> None:
    raw = b'{"choices" : [ {"text":"x"} ]}'

    assert events("openai").feed(Chunk({"choices": [{}]}, raw)) == b"data: " + raw + b"\n\n"


def test_raw_bytes_of_several_lines_are_written_anew() -> None:
    assert events("openai").feed(Chunk({"a": 1}, b'{\n"a":1}')) == b'data: {"a":1}\n\n'


def test_bare_usage_goes_only_to_whom_it_was_promised() -> None:
    usage = Chunk(legacy_events("x")[-1])

    assert events("openai").feed(usage) == b""
    assert b'"usage"' in events("openai", wants_usage=True).feed(usage)


def test_only_scale_streams_end_without_done() -> None:
    last = Chunk(None, last=True)

    ends = {name: events(name).feed(last) for name in DIALECTS}

    assert ends.pop("scale") == b""
    assert set(ends.values()) == {b"data: [DONE]\n\n"}


def test_enkrypt_adds_its_detections_to_whole_answers_and_to_the_finish_of_streams() -> None:
    whole = WholeWriter(DIALECTS["enkrypt"].client, CALL).feed(Chunk(legacy(), last=True))
    first, *_, finish = [Chunk(e, b"{}") for e in legacy_events("x", with_usage=False)]

    assert json.loads(whole)["enkrypt_policy_detections"]["input_guardrails"]["summary"] == {}
    assert json.loads(whole)["prompt"] == []
    assert events("enkrypt").feed(first) == b"data: {}\n\n"
    assert b"enkrypt_policy_detections" in events("enkrypt").feed(finish)
