"""Guards of frames show the texts of recorded streams as the recordings have them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

import orjson
import pytest

from proxy.call.record import Record, TraceIds
from proxy.errors import GuardBlocked
from proxy.guards.engine import Engine
from proxy.guards.kinds.keywords import Keywords
from proxy.guards.run import PolicyGuards
from proxy.ports import OutputGuards
from proxy.types import Plan, ResponseHead
from proxy.types.events import FamilyName, Frame
from proxy.types.guard import GuardPlan, GuardRule
from tests.checked import checked
from tests.golden.pipeline import PAIRS, Pipeline, call_of, documents_of, written
from tests.golden.recording import read
from tests.golden.replay import MARKER, MODEL, events_of
from tests.golden.test_markers import SILENT, Marked, all_marked, escaped, marked_streams
from tests.golden.texts import texts_of
from tests.guards.doubles import Ticks

WORDS = Keywords("word", ["Paris", "secret"])
MARKERS = Keywords("word", [MARKER], whole_words=False)
RULES = {
    "masked": GuardRule("words", WORDS, "mask"),
    "flagged": GuardRule("words", WORDS, "flag"),
    "masking": GuardRule("keywords", MARKERS, "mask"),
    "blocking": GuardRule("keywords", MARKERS, "block"),
}


def guarding(client: str, *rules: GuardRule, stream: bool = True) -> tuple[OutputGuards, Record]:
    """Return the output guards of one call of a client."""
    call = call_of(client, stream=stream)
    record = Record(TraceIds("a" * 32, "b" * 16, "c" * 16), 0.0, datetime.now(UTC), Ticks())
    plan = Plan("1", "k", "d", {}, (), guards=GuardPlan((), rules))
    gate = PolicyGuards(Engine(Ticks())).for_call(plan, call, record)
    return gate.guard_output(call, ResponseHead(streamed=stream)), record


async def sent(
    family: FamilyName, client: FamilyName, pieces: Sequence[bytes], *rules: GuardRule
) -> tuple[bytes, Record]:
    """Return what a client gets of a stream, and the record of the call."""
    watch, record = guarding(client, *rules)
    pipeline = Pipeline(family, client, inspect=True)
    frames: list[Frame] = []
    try:
        for frame in pipeline.frames(documents_of(pieces)):
            frames += await watch.inspect(frame)
    except GuardBlocked:
        pass
    return written(client, checked(frames, split=True)), record


@pytest.mark.parametrize("guard", ["masked", "flagged"])
@pytest.mark.parametrize(("name", "client"), PAIRS)
async def test_clients_read_what_guards_show(name: str, client: FamilyName, guard: str) -> None:
    recording = read(name)
    output = recording.outputs[f"{client} {guard}"]

    body, record = await sent(recording.family, client, events_of(recording.upstream), RULES[guard])

    if output.call["models"] != [MODEL]:  # a fallback answered otherwise
        return
    texts, recorded = texts_of(client, body), texts_of(client, output.body)
    if "error" in output.call:  # what waited for its place precedes the error
        assert all([texts[place].startswith(text) for place, text in recorded.items()])
    else:
        assert texts == recorded
    if recording.family == client:  # others get no values without a place in their family
        results = [result for _, result in record.guard_results()]
        assert {item.guard: item.verdict for item in results} == output.call.get("guards", {})
        findings = {item.guard: dict(item.findings) for item in results if item.findings}
        assert findings == output.call.get("findings", {})


@pytest.mark.parametrize("guard", ["masking", "blocking"])
@pytest.mark.parametrize(("name", "client"), PAIRS)
async def test_marker_in_one_place_is_inspected(name: str, client: FamilyName, guard: str) -> None:
    marked: Marked
    for marked in marked_streams()[name]:
        body, _ = await sent(read(name).family, client, marked.pieces, RULES[guard])
        for event, path in escaped(body):
            case = f"{marked.slot} -> {client}: {event.slot(path)}"
            assert marked.is_name, case
            assert SILENT.intersection(path), case


@pytest.mark.parametrize(("name", "client"), PAIRS)
async def test_markers_in_all_strings_are_masked(name: str, client: FamilyName) -> None:
    recording = read(name)

    body, _ = await sent(recording.family, client, all_marked(recording), RULES["masking"])

    assert [event.slot(path) for event, path in escaped(body)] == []


def chunk_of(delta: object, **options: object) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    chunk = {"id": "a", "object": "chat.completion.chunk", "choices": [choice], **options}
    return b"data: " + orjson.dumps(chunk) + b"\n\n"


END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


@pytest.mark.parametrize("guard", ["masked", "masking"])
@pytest.mark.parametrize(
    "pieces",
    [
        [chunk_of({"function_call": {"name": "Pa"}}), chunk_of({"function_call": {"name": "ris"}})],
        [chunk_of({"function_call": {"name": "zeb"}}), chunk_of({"function_call": {"name": "ra"}})],
        [chunk_of({"content": "a"}), chunk_of({}, choices=["Paris zebra"])],
        [chunk_of({"content": "a"}), chunk_of({}, choices=[["Paris zebra"]])],
    ],
)
async def test_words_beside_the_texts_of_a_chat_are_inspected(
    pieces: list[bytes], guard: str
) -> None:
    body, _ = await sent("chat", "chat", [*pieces, END], RULES[guard])

    names = b"".join(re.findall(rb'"name":"(.*?)"', body)).decode()
    word = "Paris" if guard == "masked" else "zebra"
    assert word not in names
    assert word not in body.decode()
