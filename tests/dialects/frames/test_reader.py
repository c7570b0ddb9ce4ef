"""Frames and errors of a response are the same at any cut of its bytes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.family import (
    Family,
    ReadOptions,
    Shape,
    has_shape,
    is_empty,
    is_null_or_number,
    is_text,
    make_word_check,
)
from proxy.dialects.frames.reader import FamilyFrameReader, SurrogateJoiner
from proxy.dialects.vendors.openai import OPENAI
from proxy.dialects.wire.strict_json import DocumentParser, is_null_or_word
from proxy.errors import UpstreamError, UpstreamInvalid
from proxy.runtime.fair_queue import LARGE_BYTES
from proxy.types import Call, RequestHead
from proxy.types.events import (
    RESPONSE_END,
    Attach,
    Delta,
    Finish,
    Frame,
    Json,
    Part,
    PartEnd,
    PartStart,
    ResponseStart,
    ToolCall,
)
from tests.doubles import event
from tests.for_each import for_each

CALL = Call(RequestHead("openai", "chat", "/v1/chat/completions", "r"), {})
PART = Part("text", 0)
TEXTS = b"".join(event(b'{"text": "%b"}' % text) for text in (b"Par", b"is.", b""))
DONE = event(b"[DONE]")


class TextReader:
    """Reads documents with a text. One with ``end`` ends the response."""

    def __init__(self, options: ReadOptions) -> None:
        self.texts: list[str] = []

    def read(self, doc: dict[str, Any], raw: bytes) -> Sequence[Frame]:
        if "end" in doc:
            return [Frame((RESPONSE_END,), doc=doc, raw=raw)]
        self.texts.append(doc.get("text", ""))
        return [Frame((Delta(PART, self.texts[-1], ("text",)),), doc=doc, raw=raw)]

    def end(self, *, has_done_marker: bool = False) -> Sequence[Frame]:
        if not (has_done_marker or self.texts == ["whole"]):
            raise UpstreamInvalid("not complete")
        return [Frame((RESPONSE_END,))]


FAMILY = Family(
    name="chat",
    reader=TextReader,
    writer=lambda _: pytest.fail("nothing is written"),
    has_part_events=False,
    result_list="texts",
)


class LastWord:
    """Keeps each frame until the next one."""

    def __init__(self) -> None:
        self.kept: list[Frame] = []

    def feed(self, frame: Frame) -> Iterable[Frame]:
        released, self.kept = self.kept, [frame]
        return released

    def end(self) -> Iterable[Frame]:
        released, self.kept = self.kept, []
        return released


def stream_reader(**options: Any) -> FamilyFrameReader:
    return FamilyFrameReader(FAMILY, ReadOptions(CALL), OPENAI.server, DocumentParser(), **options)


def whole_reader(limit: int = 2 * LARGE_BYTES) -> FamilyFrameReader:
    options = ReadOptions(CALL, whole=True)
    return FamilyFrameReader(FAMILY, options, OPENAI.server, DocumentParser(), limit=limit)


def read(reader: FamilyFrameReader, pieces: Iterable[bytes]) -> tuple[list[Frame], str | None]:
    """Return the frames, and the code of the fault."""
    frames: list[Frame] = []
    try:
        for piece in pieces:
            for document in reader.feed(piece):
                frames += reader.read(document)
        for document in reader.close():
            frames += reader.read(document)
        frames += reader.end()
    except UpstreamError as error:
        return [*frames, *reader.pop_frames_before_error()], error.code
    return frames, None


def texts(frames: Iterable[Frame]) -> list[str]:
    return [e.text for frame in frames for e in frame.events if isinstance(e, Delta)]


@pytest.mark.parametrize("wire", [TEXTS + DONE, TEXTS + event(b"{oops")], ids=["good", "broken"])
@given(cuts=st.lists(st.integers(0, 100), max_size=10))
def test_any_cut_of_bytes_gives_the_same_frames(wire: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(wire)) for cut in cuts), len(wire)]
    pieces = [wire[a:b] for a, b in itertools.pairwise(edges)]

    assert read(stream_reader(), pieces) == read(stream_reader(), [wire])


def test_nothing_is_read_after_the_end() -> None:
    frames, fault = read(stream_reader(), [event(b'{"end": 1}') + TEXTS + b"data: {oops\n\n"])

    assert (texts(frames), frames[-1].last, fault) == ([], True, None)


def test_split_surrogate_pair_is_joined_in_rewritten_documents() -> None:
    wire = event(b'{"text": "\\ud83d"}') + event(b'{"text": "\\ude00"}') + DONE

    frames, fault = read(stream_reader(rewrite=lambda doc: {**doc, "more": 1}), [wire])

    assert (texts(frames), fault) == (["", "\U0001f600"], None)


@pytest.mark.parametrize(("end", "fault"), [(DONE, None), (b"", "upstream_invalid_response")])
def test_reordered_frames_precede_the_end(end: bytes, fault: str | None) -> None:
    frames, code = read(stream_reader(sequencer=LastWord()), [TEXTS + end])

    assert (texts(frames), code) == (["Par", "is.", ""], fault)
    assert frames[-1].last == (fault is None)


@for_each("sequencer", [None, LastWord()], ids=["bare", "ordered"])
@for_each(
    ("wire", "expected"),
    [
        (TEXTS + event(b"{oops"), ["Par", "is.", ""]),
        (event(b'{"text": "a\\ud83d"}') + DONE, ["a"]),  # an incomplete character
    ],
)
def test_frames_before_an_error_are_returned(
    wire: bytes, expected: list[str], sequencer: LastWord | None
) -> None:
    frames, fault = read(stream_reader(sequencer=sequencer), [wire])

    assert (texts(frames), fault) == (expected, "upstream_invalid_response")


def test_error_at_done_is_raised_at_once() -> None:
    reader = stream_reader(sequencer=LastWord())
    text, end_document = reader.feed(event(b'{"text": "a\\ud83d"}') + DONE)

    assert reader.read(text) == []
    with pytest.raises(UpstreamInvalid):
        reader.read(end_document)
    assert texts(reader.pop_frames_before_error()) == ["a"]


def test_raw_bytes_have_no_line_breaks() -> None:
    wire = b'data: {\ndata: "text": "Paris"}\n\n' + DONE

    [frame, _], _ = read(stream_reader(), [wire])

    assert frame.raw == b'{"text":"Paris"}'


@for_each(
    ("error", "end", "usage"),
    [
        (b'{"error": {"message": "overloaded", "code": 503}, "usage": {"a": 1}}', b"d", {"a": 1}),
        (b'{"error": {"message": "overloaded \\ud83d", "param": "\\ud83d"}}', b"d ?", None),
    ],
)
def test_error_document_ends_a_stream_with_its_error(error: bytes, end: bytes, usage: Any) -> None:
    reader = stream_reader()
    [document] = reader.feed(event(error))

    with pytest.raises(UpstreamError, match="overloaded") as caught:
        reader.read(document)
    assert caught.value.message.encode().endswith(end)
    assert caught.value.usage == usage


def test_large_document_has_size_and_estimate() -> None:
    text = b"a" * LARGE_BYTES
    wire = b'{"texts": [], "text": "%b"}' % text

    [frame], fault = read(whole_reader(), [wire])

    assert (frame.size, frame.quarters, frame.last, fault) == (len(wire), len(text), True, None)


@pytest.mark.parametrize("wire", [b"{}", b'{"texts": {}}', b"[]", b"{oops"])
def test_document_without_response_is_invalid(wire: bytes) -> None:
    assert read(whole_reader(), [wire]) == ([], "upstream_invalid_response")


SHAPE = {"id": is_null_or_word, "usage": {"tokens": is_null_or_number}}
SHAPES: list[tuple[Shape, list[Any], list[Any]]] = [
    (is_null_or_word, ["msg_1", "", None], ["a" * 129, "a b", " a", 5]),
    (is_null_or_number, [5], ["5", [5]]),
    (is_text, ["a b"], [None]),
    (is_empty, ["", None, [], {}], [0, ["a"]]),
    (make_word_check("a"), ["a", None], ["b", ["a"]]),
    (SHAPE, [{}, {"id": "x", "usage": {"tokens": 5}}],
        [{"usage": {"tokens": 5, "more": 5}}, {"id": "x", "more": None}, {"usage": 5}, []]),
]  # fmt: skip


@for_each(("shape", "fitting", "others"), SHAPES)
def test_value_matches_a_shape(shape: Shape, fitting: list[Any], others: list[Any]) -> None:
    assert [value for value in (*fitting, *others) if has_shape(value, shape)] == fitting


OTHER_PART = Part("text", 1)
HIGH, LOW = "\ud83d", "\ude00"


def delta(text: str, part: Part = PART, **members: str) -> Frame:
    doc: Json = {"text": text, **members}
    return Frame((Delta(part, text, ("text",)),), doc=doc, raw=b"{}")


def fed(*frames: Frame) -> list[tuple[str, Json | None, bytes | None]]:
    joiner = SurrogateJoiner()
    results = [joiner.feed(frame) for frame in frames]
    return [(frame.events[0].text, frame.doc, frame.raw) for frame in results]  # type: ignore[union-attr]


def test_surrogate_pair_is_joined_in_the_second_delta() -> None:
    assert fed(delta("A " + HIGH), delta(LOW + " b"), delta("c")) == [
        ("A ", {"text": "A "}, None),
        ("\U0001f600 b", {"text": "\U0001f600 b"}, None),
        ("c", {"text": "c"}, b"{}"),
    ]


def test_surrogates_of_one_part_are_joined() -> None:
    frames = delta(HIGH), delta("x", OTHER_PART), delta(LOW), delta(HIGH + LOW)

    assert [text for text, *_ in fed(*frames)] == ["", "x", "\U0001f600", "\U0001f600"]


@for_each(
    "frames",
    [
        (delta(HIGH), delta("x")),
        (delta(LOW),),
        (delta(HIGH), Frame((PartEnd(PART),))),
        (delta(HIGH), Frame((RESPONSE_END,))),
        (delta("x", id=HIGH),),
        (delta(HIGH), Frame((Finish(0, "stop"),))),
        (Frame((ResponseStart(HIGH, None, None),)),),
        (Frame((PartStart(PART, ToolCall("id", HIGH)),)),),
        (Frame((Attach(PART, "signature", {"of": [HIGH]}),)),),
    ],
)
def test_lone_surrogate_is_invalid(frames: tuple[Frame, ...]) -> None:
    with pytest.raises(UpstreamInvalid):
        fed(*frames)


def test_end_of_another_text_keeps_a_pending_surrogate() -> None:
    joiner = SurrogateJoiner()
    joiner.feed(delta(HIGH, Part("text", 0, choice=1)))
    joiner.feed(delta(HIGH))
    ends = Frame((PartEnd(OTHER_PART), Finish(2, "stop")))

    assert joiner.feed(ends) == ends
    with pytest.raises(UpstreamInvalid):
        joiner.feed(Frame((Finish(1, "stop"),)))


def test_texts_of_a_frame_without_a_document_are_joined() -> None:
    frames = [Frame((PartStart(PART), Delta(PART, "a" + HIGH))), Frame((Delta(PART, LOW),))]
    joiner = SurrogateJoiner()

    [begin, delta] = [joiner.feed(frame) for frame in frames]

    assert begin.events == (PartStart(PART), Delta(PART, "a"))
    assert delta.events == (Delta(PART, "\U0001f600"),)
