"""Spans and GenAI metrics of every kind of call. ``--update-golden`` rewrites the spans."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.runtime.otel_settings import OtelSettings
from tests.conftest import policies_for, running_proxy
from tests.doubles import (
    Json,
    Script,
    ScriptedUpstream,
    chat,
    chat_events,
    cut_before_head,
    legacy_completion,
    respond,
    stream,
)
from tests.telemetry.collector import Collector, attributes_of
from tests.test_pipeline import BEARER

GOLDEN = Path(__file__).parent / "golden"
QUESTION = [{"role": "user", "content": "Where is the hippo?"}]
PASSING = {
    "gen_ai.response.time_to_first_chunk": "SECONDS",
    "headrace.guard.duration": "SECONDS",
    "headrace.overhead_ms": "MS",
    "headrace.policy.revision": "REVISION",
    "headrace.request.id": "ID",
    "server.port": "PORT",
}
KINDS = {2: "SERVER", 3: "CLIENT"}


@dataclass(frozen=True)
class Kind:
    """One kind of call: its request, the upstream's script, and additional policies."""

    body: Json = field(default_factory=dict)
    scripts: tuple[Callable[[], Script], ...] = (lambda: respond(chat()),)
    rules: str = ""
    path: str = "/v1/chat/completions"
    before: int = 0
    profiles: tuple[str, ...] = ()
    headers: dict[str, str] = field(default_factory=dict)


CALLS: dict[str, Kind] = {
    "whole": Kind({"temperature": 0.5, "max_tokens": 20, "seed": 7, "n": 2, "stop": ["END", "\n"]},
        (lambda: respond(chat(usage={"prompt_tokens": 9, "completion_tokens": 7, "total_tokens": 16,
        "prompt_tokens_details": {"audio_tokens": 4, "image_tokens": 3},
        "completion_tokens_details": {"audio_tokens": 2, "image_tokens": 1}})),)),
    "stream": Kind({"stream": True}, (lambda: stream(chat_events("Par", "is.")),)),
    "completion": Kind({"model": "support-chat", "prompt": "Where?"},
        (lambda: respond(legacy_completion()),), path="/v1/completions"),
    "embeddings": Kind({"model": "support-chat", "input": "Where?"},
        (lambda: respond({"object": "list", "data": [],
        "usage": {"prompt_tokens": 4, "total_tokens": 4}}),), path="/v1/embeddings"),
    "cut": Kind({"stream": True}, (lambda: stream(chat_events("Par", "is."), cut_after=2),)),
    "refused-by-upstream": Kind(scripts=(lambda: respond({"error": {"message": "no"}}, 400),)),
    "fallback": Kind({"model": "resilient"}, (lambda: respond({}, 500), lambda: respond(chat()))),
    "retry": Kind({"model": "support-chat"}, (cut_before_head, lambda: respond(chat())),
        rules="retry: {times: 1, wait: 1ms}"),
    "wrong-field": Kind({"temperature": "hot"}),
    "unknown-deployment": Kind({"model": "no-such-model"}),
    "rule-refuses": Kind(rules="refuse: {message: Not today}"),
    "blocked-in": Kind(rules="input: [{guard: keywords, words: [hippo]}]"),
    "flagged-in": Kind(rules="input: [{guard: keywords, words: [hippo], action: flag}]"),
    "blocked-out": Kind(rules="output: [{guard: keywords, words: [Paris]}]"),
    "blocked-out-stream": Kind({"stream": True}, (lambda: stream(chat_events("In Par", "is.")),),
        rules="output: [{guard: keywords, words: [Paris]}]"),
    "limited": Kind(rules="limits: [{name: one, requests: 1 per day, per: key}]", before=1),
    "hit": Kind(rules="cache: {ttl: 1h}", before=1),
    "of-another-gateway": Kind(headers={"helicone-property-app": "mobile", "x-title": "Desk",
        "helicone-session-id": "s"}),
    "for-phoenix":
        Kind({"user": "jane"}, profiles=("openinference",), headers={"x-headrace-session": "s-1"}),
    "for-langfuse":
        Kind({"user": "jane"}, profiles=("langfuse",), headers={"x-headrace-session": "s-1"}),
}  # fmt: skip


def policies(upstream: str, kind: Kind) -> str:
    if kind.rules.startswith("retry"):
        return policies_for(upstream).replace(
            "  support-chat:\n", f"  support-chat:\n    {kind.rules}\n"
        )
    if kind.rules.startswith(("input", "output", "limits", "cache")):
        rule = f"match: all, {kind.rules}"
    else:
        rule = f"match: first, rules: [{{name: only, {kind.rules}}}]" if kind.rules else ""
    return (
        f"{policies_for(upstream)}\npolicies:\n  default: {{{rule}}}\n"
        if rule
        else policies_for(upstream)
    )


async def spans_of(
    kind: Kind, folder: Path, upstream: ScriptedUpstream, collector: Collector
) -> list[Any]:
    """Make the call, after a number of equal calls, and return its spans."""
    upstream.answer_with(kind.scripts[-1]())
    upstream.then(*(script() for script in kind.scripts[:-1]))
    body = {"model": "search-answers", "messages": QUESTION, **kind.body}
    if "prompt" in body or "input" in body:
        del body["messages"]
    otlp = ("otlp_proto_http",)
    settings = {
        "otlp_endpoint": collector.url,
        "otel": OtelSettings(exporters=otlp, metric_exporters=otlp),
        "trace_profiles": kind.profiles,
    }
    async with (
        running_proxy(folder / "p", policies(upstream.url, kind), **settings) as proxy,
        aiohttp.ClientSession(base_url=proxy.url) as client,
    ):
        for _ in range(kind.before + 1):
            try:
                headers = {**BEARER, **kind.headers}
                async with client.post(kind.path, headers=headers, json=body) as response:
                    await response.read()
            except aiohttp.ClientPayloadError:
                pass
        records = await proxy.sink.wait(kind.before + 1)
    trace = records[-1].ids.trace_id
    return [span for span in collector.spans if span.trace_id.hex() == trace]


def render_tree(spans: list[Any]) -> str:
    """Render spans as a tree with names, kinds, statuses, attributes and events."""
    lines: list[str] = []

    def draw(parent: bytes, depth: int) -> None:
        lower = [span for span in spans if span.parent_span_id == parent]
        for span in sorted(lower, key=lambda span: span.start_time_unix_nano):
            pad = "  " * depth
            failed = " ERROR" if span.status.code == 2 else ""
            lines.append(f"{pad}{KINDS[span.kind]} {span.name}{failed}")
            lines.extend(f"{pad}  {line}" for line in attributes(span))
            for event in span.events:
                lines.append(f"{pad}  * {event.name}")
                lines.extend(f"{pad}    {line}" for line in attributes(event))
            draw(span.span_id, depth + 1)

    draw(b"", 0)
    return "\n".join(lines) + "\n"


def attributes(of: Any) -> list[str]:
    event = {
        **attributes_of(of),
        **{name: sign for name, sign in PASSING.items() if name in attributes_of(of)},
    }
    return [f"{name} = {json.dumps(value)}" for name, value in sorted(event.items())]


@pytest.mark.parametrize("name", CALLS)
async def test_spans_match_the_golden_file(
    name: str, tmp_path: Path, upstream: ScriptedUpstream, collector: Collector, update_golden: bool
) -> None:
    spans = await spans_of(CALLS[name], tmp_path, upstream, collector)

    observed, golden = render_tree(spans), GOLDEN / f"{name}.txt"
    if update_golden:
        golden.write_text(observed)
    assert observed == golden.read_text()
    assert observed.count("\n") > 5
    assert len({span.span_id for span in spans}) == len(spans)


def test_every_golden_file_has_a_call() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(CALLS)


def test_spans_contain_no_text() -> None:
    for path in GOLDEN.glob("*.txt"):
        assert not re.search("hippo|Paris|Where|hr-test-key|sk-", path.read_text()), path.name


INFERENCE = "gen_ai.client.inference"


async def metrics_of(
    call: str, folder: Path, upstream: ScriptedUpstream, collector: Collector
) -> dict[str, list[tuple[dict[str, Any], float]]]:
    """Make a call. Return the labels and the sums of its series, by metric."""
    await spans_of(CALLS[call], folder, upstream, collector)
    series = {}
    for name, metric in collector.metrics.items():
        points = getattr(metric, metric.WhichOneof("data")).data_points
        series[name.removeprefix(INFERENCE + ".")] = [
            (attributes_of(point), point.sum if hasattr(point, "sum") else point.as_int)
            for point in points
        ]
    return series


async def test_tokens_are_counted_by_modality(
    tmp_path: Path, upstream: ScriptedUpstream, collector: Collector
) -> None:
    series = await metrics_of("whole", tmp_path, upstream, collector)

    counts = {
        (side, labels["gen_ai.token.modality"]): count
        for side in ("input", "output")
        for labels, count in series[f"usage.{side}_tokens"]
    }
    assert counts == {
        ("input", "audio"): 4,
        ("input", "image"): 3,
        ("input", "text"): 2,
        ("output", "audio"): 2,
        ("output", "image"): 1,
        ("output", "text"): 4,
    }
    [(labels, size)] = series["operation.input_tokens"]
    assert size == 9
    assert labels == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "smol",
        "server.address": "127.0.0.1",
        "server.port": labels["server.port"],
    }
    bounds = collector.metrics[f"{INFERENCE}.operation.input_tokens"].histogram.data_points[0]
    assert [*bounds.explicit_bounds] == [4**power for power in range(14)]
    assert "time_to_first_chunk" not in series


async def test_stream_has_a_time_to_first_chunk(
    tmp_path: Path, upstream: ScriptedUpstream, collector: Collector
) -> None:
    series = await metrics_of("stream", tmp_path, upstream, collector)

    [(_, first_seconds)] = series["time_to_first_chunk"]
    [(_, duration)] = series["duration"]
    assert 0 < first_seconds <= duration
    [(labels, _)] = series["usage.input_tokens"]
    assert labels["gen_ai.token.modality"] == "unknown"


EMBEDDINGS = "gen_ai.client.embeddings"


@pytest.mark.parametrize(
    ("call", "names"),
    [
        ("embeddings", {f"{EMBEDDINGS}.duration", f"{EMBEDDINGS}.operation.input_tokens"}),
        ("refused-by-upstream", {"duration"}),
        ("rule-refuses", set()),
    ],
)
async def test_other_calls_have_fewer_metrics(
    call: str, names: set[str], tmp_path: Path, upstream: ScriptedUpstream, collector: Collector
) -> None:
    series = await metrics_of(call, tmp_path, upstream, collector)

    assert series.keys() == names
    if call == "embeddings":
        assert series[f"{EMBEDDINGS}.operation.input_tokens"][0][1] == 4
    for labels, _ in series.get("duration", []):
        assert labels["error.type"] == "upstream_refused"
