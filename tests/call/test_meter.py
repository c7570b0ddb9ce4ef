"""Tokens, times and usage of a response, whole or streamed."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proxy.call.meter import MAX_FINISH_REASONS, Meter
from proxy.dialects.document import DocumentUsage, make_document_frame
from proxy.errors.words import MAX_ID, MAX_WORD
from proxy.money.estimate import TOKENS_PER_SECOND, HiddenOutput
from proxy.money.usage import MAX_TOKENS, Tokens
from proxy.types.events import (
    Delta,
    Event,
    Finish,
    Frame,
    Part,
    PartStart,
    ResponseStart,
    ToolCall,
    UsageReport,
)
from tests.for_each import for_each
from tests.frames import stream_frames, whole_frame


def chunk(**choice: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, **choice}]}


def feed(meter: Meter, doc: dict[str, Any], now: float) -> None:
    choices = doc.get("choices")
    members = {name for item in choices or () if isinstance(item, dict) for name in item}
    if "message" in members:
        frames = [whole_frame(doc, "chat")]
    else:
        frames = stream_frames(doc, family="completions" if "text" in members else "chat")
    for frame in frames:
        meter.feed(frame, now)


def test_invalid_usage_is_ignored_and_counted() -> None:
    meter = Meter()

    feed(meter, {"usage": {"prompt_tokens": 9, "completion_tokens": 2}}, 1.0)
    feed(meter, {"usage": {"prompt_tokens": -9, "completion_tokens": 2}}, 1.0)

    assert meter.invalid_usage == 1
    assert meter.compute_usage(lambda: 0, finished=True).tokens == Tokens(9, output=2)


ZEROS = {"usage": {"prompt_tokens": 0, "completion_tokens": 0}}
EARLY_USAGE = {"usage": {"prompt_tokens": 12, "completion_tokens": 0}}


@for_each(
    ("chunks", "prompt", "source", "tokens"),
    [
        ([chunk(text="Paris") | ZEROS], 400, "provider", Tokens()),
        ([EARLY_USAGE, chunk(text="x" * 40)], 400, "partial_estimate", Tokens(12, output=10)),
        (
            [chunk(text="Hi") | ZEROS, chunk(text="x" * 40)],
            400,
            "partial_estimate",
            Tokens(100, output=11),
        ),
        ([chunk(text="")], 0, "partial_estimate", Tokens()),
        ([chunk(text="Rome")], 4, "partial_estimate", Tokens(1, output=1)),
        ([chunk(text="Paris")], 5, "partial_estimate", Tokens(2, output=2)),
    ],
)
def test_report_or_estimate_counts(
    chunks: list[Any], prompt: int, source: str, tokens: Tokens
) -> None:
    meter = Meter()
    for item in chunks:
        feed(meter, item, 1.0)

    settled = meter.compute_usage(lambda: prompt, finished=True)
    assert (settled.source, settled.tokens) == (source, tokens)


def test_aborted_response_bills_the_larger_count() -> None:
    meter = Meter()
    feed(meter, {"usage": {"prompt_tokens": 12, "completion_tokens": 0}}, 1.0)
    feed(meter, chunk(text="x" * 40), 1.0)

    def settle(prompt: int, hidden: int) -> Tokens:
        hidden_output = HiddenOutput(hidden / TOKENS_PER_SECOND, max_tokens=9000)
        settled = meter.compute_usage(
            lambda: prompt, finished=False, hidden_output=lambda: hidden_output
        )
        assert settled.source == "partial_estimate"
        return settled.tokens

    assert settle(40, 0) == Tokens(12, output=10)
    assert settle(60, 0) == Tokens(15, output=10)
    assert settle(60, 50) == Tokens(15, output=60)
    assert settle(60, 9000) == Tokens(15, output=9000)


def test_hidden_output_is_bounded() -> None:
    hidden_output = HiddenOutput(seconds=1e6, responses=2**53, max_tokens=2**53)

    settled = Meter().compute_usage(lambda: 0, finished=False, hidden_output=lambda: hidden_output)

    assert settled.tokens == Tokens(output=MAX_TOKENS)


def tool(arguments: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]}


def pieces(text: str, cuts: list[int]) -> list[str]:
    ends = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[start:end] for start, end in pairwise(ends)]


@given(text=st.text(), arguments=st.text(), cuts=st.lists(st.integers(0, 99), max_size=9))
def test_split_stream_counts_like_whole(text: str, arguments: str, cuts: list[int]) -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 3}
    meter, streamed = Meter(), Meter()

    fields = {"content": text, **tool(arguments)}
    feed(meter, chunk(message=fields, finish_reason="stop") | {"usage": usage}, 1.0)
    for piece in pieces(text, cuts):
        feed(streamed, chunk(delta={"content": piece}, finish_reason=None), 1.0)
    for piece in pieces(arguments, cuts):
        feed(streamed, chunk(delta=tool(piece)), 1.0)
    feed(streamed, chunk(delta={}, finish_reason="stop"), 1.0)
    feed(streamed, {"choices": [], "usage": usage}, 1.0)

    assert state_of(streamed) == state_of(meter)


def state_of(meter: Meter) -> dict[str, Any]:
    return {name: getattr(meter, name) for name in Meter.__slots__ if name != "text_at"}


def test_upstream_metadata_is_bounded() -> None:
    meter = Meter()
    choices = [{"index": n, "text": "", "finish_reason": "f" * 10_000} for n in range(1000)]
    feed(meter, {"id": "i" * 10_000, "model": ["m"] * 10_000, "choices": choices}, 0.0)

    assert meter.response_id == "i" * MAX_ID
    assert meter.response_model is None
    assert len(meter.finish_reasons) == MAX_FINISH_REASONS
    assert {*meter.finish_reasons.values()} == {"f" * MAX_WORD}


@for_each("finished", [True, False])
@for_each("unreported", ["unknown", "none"])
def test_reported_usage_counts_without_estimates(unreported: Any, finished: bool) -> None:
    meter = Meter(estimates=False, unreported=unreported)

    meter.feed(make_document_frame({"text": "Paris."}), 1.0)
    silent = meter.compute_usage(lambda: 400, finished=finished)
    usage = UsageReport(Tokens(7), {"total_tokens": 7})
    meter.feed(make_document_frame({}, usage=DocumentUsage(usage)), 2.0)
    reported = meter.compute_usage(lambda: 0, finished=finished)

    assert (silent.source, silent.tokens) == (unreported, Tokens())
    assert reported.source == ("provider" if finished else "partial_estimate")
    assert reported.tokens == Tokens(7)


def test_events_of_frames_are_counted() -> None:
    meter = Meter()
    text, thought, call = Part("text", 0), Part("reasoning", 1), Part("arguments", 2)
    usage = UsageReport(Tokens(input=3, output=4), {})
    frames: list[tuple[Event, ...]] = [
        (ResponseStart("id", "model", None), PartStart(thought)),
        (Delta(thought, "Hm"),),
        (PartStart(call, ToolCall("1", "f")), Delta(call, "{}")),
        (Delta(text, "Paris"),),
        (Finish(0, "stop", "eos"), usage, Delta(text, "")),
        (),
    ]

    for now, events in enumerate(frames):
        meter.feed(Frame(events), now)

    assert (meter.response_id, meter.response_model) == ("id", "model")
    assert (meter.reasoning_quarters, meter.output_quarters) == (2, 2 + 3 + 5)
    assert (meter.first_token_at, meter.text_at, meter.last_token_at) == (1, 2, 3)
    assert meter.finish_reasons == {0: "eos"}
    assert (meter.reported, meter.reported_quarters) == (usage.tokens, meter.output_quarters)


def test_frame_is_estimated_once() -> None:
    meter = Meter()
    meter.feed(Frame((Delta(Part("text", 0), "Paris"),), quarters=99), 1)
    meter.feed(Frame((UsageReport(None, {}),)), 2)

    assert (meter.output_quarters, meter.text_at) == (99, 1)
    assert (meter.invalid_usage, meter.reported) == (1, None)


def test_response_id_is_read_from_a_later_frame() -> None:
    meter = Meter()
    meter.feed(Frame((ResponseStart(None, None, None),), doc={"id": ""}), 1)
    meter.feed(Frame((Delta(Part("text", 0), "Paris"),), doc={"id": "a", "model": "m"}), 2)

    assert (meter.response_id, meter.response_model) == ("a", "m")
