"""Call log: one line per call, written without blocking."""

from __future__ import annotations

import fcntl
import json
import os
import re
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from proxy.call.attempts import CacheSavings
from proxy.call.record import Record, new_record
from proxy.errors import UpstreamUnavailable
from proxy.errors.words import BoundedText
from proxy.money.usage import NANO_PER_USD, Tokens
from proxy.policy.schema.rules import CapConfig
from proxy.telemetry.lines import (
    MAX_LINE_BYTES,
    MAX_WAITING_LINES,
    SCHEMAS,
    LineWriter,
    Schema,
    build_line_logger,
    to_native,
)
from proxy.telemetry.log import LOGGED_PARAMETERS, CallLog, LogLevel, build_call_line
from proxy.types import Call, Plan, RequestHead, Target, Upstream
from tests.conftest import policies_for, running_proxy
from tests.doubles import ScriptedUpstream
from tests.for_each import for_each
from tests.test_pipeline import BEARER, ROUTES

INFO = LogLevel("info", lambda: 0.0)


class Drops:
    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def __call__(self, reason: str, count: int) -> None:
        self.counts[reason] = self.counts.get(reason, 0) + count


def raising(error: Exception) -> None:
    """Fail on any unexpected error."""
    raise error


def test_lines_are_written_in_order_and_complete(tmp_path: Path) -> None:
    drops = Drops()
    file = tmp_path / "log"
    fd = os.open(file, os.O_WRONLY | os.O_CREAT)
    writer = LineWriter(fd, drops, raising)

    for number in range(1000):
        writer.enqueue(b"%d\n" % number)
    writer.close()

    assert file.read_text().split() == [str(n) for n in range(1000)]
    assert drops.counts == {}
    os.close(fd)


def test_writer_redacts_each_line(tmp_path: Path) -> None:
    file = tmp_path / "log"
    fd = os.open(file, os.O_WRONLY | os.O_CREAT)
    writer = LineWriter(fd, Drops(), raising)

    for number in range(3):
        writer.enqueue(b"%d Bearer 0123456789\n" % number)
    writer.close()

    assert file.read_text() == "".join(f"{number} [redacted]\n" for number in range(3))
    os.close(fd)


def test_stalled_reader_blocks_nobody_and_losses_are_counted() -> None:
    drops = Drops()
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    writer = LineWriter(writing, drops, raising)

    for _ in range(MAX_WAITING_LINES * 2):
        writer.enqueue(b"x" * 200 + b"\n")
    writer.close(timeout=0.05)

    assert drops.counts["queue_full"] > MAX_WAITING_LINES / 2
    assert drops.counts["shutdown"] > 0
    os.close(reading)  # the broken pipe ends the writer's thread, which closes its descriptor


def test_losses_by_closed_pipe_and_full_disk_are_counted() -> None:
    drops = Drops()
    reading, writing = os.pipe()
    os.close(reading)
    full = os.open("/dev/full", os.O_WRONLY)

    for fd in (writing, full):
        writer = LineWriter(fd, drops, raising)
        writer.enqueue(b"x\n")
        writer.close()
        os.close(fd)

    assert drops.counts == {"write_failed": 2}


@pytest.mark.parametrize(
    ("size", "total"),
    [(100, 40), (64, 64), (241, 17)],
    ids=["a line is cut", "between lines", "before the end of a line"],
)
def test_full_disk_loses_no_written_part_of_a_batch(size: int, total: int) -> None:
    drops, event = Drops(), threading.Event()
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writing, False)  # when full it accepts a part, and then nothing

    def dropped(reason: str, count: int) -> None:
        drops(reason, count)
        event.set()

    writer = LineWriter(writing, dropped, raising)
    lines = [b"%d" % number + b"x" * (size - 4) for number in range(100, 200)]
    for _ in range(2):  # the second batch does not fit at all
        event.clear()
        writer.enqueue(*(line + b"\n" for line in lines))
        assert event.wait(10)
    written = os.read(reading, 8192)
    writer.enqueue(b"last\n")
    writer.close()
    written += os.read(reading, 8192)
    os.close(reading)
    os.close(writing)

    outputs = written.split(b"\n")
    assert [line for line in outputs if line in lines] == lines[:total]
    assert outputs[-2:] == [b"last", b""]
    assert drops.counts == {"write_failed": 2 * len(lines) - total}


def test_failed_line_is_counted_and_next_ones_are_written(tmp_path: Path) -> None:
    drops, failures = Drops(), list[Exception]()
    broken = threading.Event()
    fd = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)

    def failed(error: Exception) -> None:
        failures.append(error)
        broken.set()

    writer = LineWriter(fd, drops, failed)
    hostile: Any = "no bytes"
    writer.enqueue(hostile)
    assert broken.wait(10)
    writer.enqueue(b"good\n")
    writer.close()
    os.close(fd)

    assert (tmp_path / "log").read_bytes() == b"good\n"
    assert (drops.counts, [type(failure) for failure in failures]) == ({"error": 1}, [TypeError])


def test_call_without_upstream_has_nulls() -> None:
    record = new_record()
    record.ended = record.started

    line = build_call_line(record)

    assert line["tokens"] is line["cost_usd"] is line["deployment"] is None
    assert line["usage_source"] == "none"


@for_each("nano", [1, 1_350, 123_456_789, 4_000_000_000_000_001])
def test_cost_is_an_exact_decimal_number(nano: int) -> None:
    record = new_record()
    record.ended = record.started
    record.saved = CacheSavings(Tokens(), nano)

    line = orjson.dumps(build_call_line(record))

    assert json.loads(line, parse_float=Decimal)["saved_usd"] * NANO_PER_USD == nano


def test_only_numeric_parameters_are_logged() -> None:
    record = new_record()
    head = RequestHead("openai", "completions", "/v1/completions", "req_1")
    body = {"max_tokens": 20, "temperature": 0.5, "n": "a text", "stop": "another", "seed": None}
    record.set_head(head)
    record.call = Call(head, body, requested_models=("smol",))
    record.ended = record.started

    assert build_call_line(record)["parameters"] == {"max_tokens": 20, "temperature": 0.5}
    assert {*CapConfig.model_fields} <= {*LOGGED_PARAMETERS}


def test_client_values_are_truncated_to_one_line() -> None:
    record = new_record()
    head = RequestHead("openai", "completions", "/v1/completions", "req_1")
    record.set_head(head)
    record.call = Call(head, {}, requested_models=("a\n\x1b[31m\u2028" + "x" * 500,))
    record.ended = record.started
    lines: list[bytes] = []

    CallLog(build_line_logger(lines.append, INFO), INFO).emit(record)

    assert lines[0].count(b"\n") == 1
    [model] = json.loads(lines[0])["models"]
    assert len(model) == 64
    assert model.isprintable()


def test_warnings_for_the_client_are_logged() -> None:
    record = new_record()
    head = RequestHead("portkey", "chat", "/v1/chat/completions", "req_1", warnings=("of head",))
    record.set_head(head)
    record.call = Call(head, {}, requested_models=("m",), warnings=("of call",))
    record.plan = Plan("r", "k", "d", {}, (), warnings=("tag team dropped",))
    record.add_warnings(["of upstream"])
    record.ended = record.started

    fields = build_call_line(record)["warnings"]

    assert sorted(fields) == ["of call", "of head", "of upstream", "tag team dropped"]


def test_too_long_line_drops_its_longest_lists() -> None:
    record = new_record()
    record.ended = record.started
    record.warnings = [BoundedText("w" * 1000)] * 100
    lines: list[bytes] = []

    CallLog(build_line_logger(lines.append, INFO), INFO).emit(record)

    line = json.loads(lines[0])
    assert len(lines[0]) <= MAX_LINE_BYTES
    assert (line["warnings"], line["cut"], line["outcome"]) == ([], ["warnings"], "success")


def test_event_has_only_its_fields() -> None:
    lines: list[bytes] = []

    build_line_logger(lines.append, INFO).warning(
        "bug", place=Path("a"), names=["x" * MAX_LINE_BYTES]
    )

    line = orjson.loads(lines[0])
    assert lines[0].endswith(b"}\n")
    assert list(line) == ["time", "place", "names", "event", "level", "cut"]
    assert (line["place"], line["names"], line["cut"]) == ("a", [], ["names"])
    assert (line["event"], line["level"], line["time"][-6:]) == ("bug", "warning", "+00:00")


def test_log_level_may_change() -> None:
    lines: list[bytes] = []
    levels = LogLevel("error", lambda: 0.0)
    log = build_line_logger(lines.append, levels)

    log.warning("bug")
    levels.set_temporarily("debug", 60)
    log.debug("bug")

    assert [orjson.loads(line)["level"] for line in lines] == ["debug"]


def ended(error: Exception | None = None) -> Record:
    record = new_record()
    target = Target(Upstream("openai", "openai", "http://here"), "gpt-4o-mini")
    attempt = record.start_attempt(target, 0)
    attempt.ended = record.ended = record.now()
    record.error = error  # type: ignore[assignment]  # an error of the product
    return record


def logged(
    record: Record, levels: LogLevel = INFO, ratio: float = 1.0, schema: Schema = to_native
) -> list[dict[str, Any]]:
    lines: list[bytes] = []
    CallLog(build_line_logger(lines.append, levels, schema), levels, ratio).emit(record)
    return [json.loads(line) for line in lines]


def test_upstream_error_is_logged_as_warning() -> None:
    levels = LogLevel("warning", lambda: 0.0)

    assert logged(ended(), levels=levels) == []
    [line] = logged(ended(UpstreamUnavailable("no")), levels=levels)
    assert (line["level"], line["outcome"]) == ("warning", "upstream_error")


def test_debug_level_logs_each_attempt() -> None:
    call, attempt = logged(ended(), levels=LogLevel("debug", lambda: 0.0))

    assert (call["event"], attempt["event"]) == ("call", "attempt")
    assert (attempt["upstream"], attempt["model"]) == ("openai", "gpt-4o-mini")
    assert attempt["trace_id"] == call["trace_id"]


def test_successes_are_sampled_and_failures_are_not() -> None:
    well = [logged(ended(), ratio=0.25) for _ in range(2000)]
    badly = [logged(ended(UpstreamUnavailable("no")), ratio=0.0) for _ in range(20)]

    lines = [line for lines in well for line in lines]
    assert 300 < len(lines) < 700
    assert {line["sample_ratio"] for line in lines} == {0.25}
    assert [len(lines) for lines in badly] == [1] * 20


@pytest.mark.parametrize("schema", SCHEMAS)
def test_events_and_calls_use_the_names_of_the_schema(schema: str) -> None:
    lines: list[bytes] = []
    build_line_logger(lines.append, INFO, SCHEMAS[schema]).info("policy.in_force", revision="abc")
    [call] = logged(ended(), schema=SCHEMAS[schema])

    event = json.loads(lines[0])
    names = {"native": "event", "ecs": "event.action", "otel": "Body"}
    assert (event[names[schema]], call[names[schema]]) == ("policy.in_force", "call")


async def test_unread_log_delays_no_call(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    """A pipe holds 64 KiB, about 80 lines."""
    route = ROUTES["openai"]
    unread, log = os.pipe()
    async with (
        running_proxy(tmp_path / "policies", policies_for(upstream.url), log_fd=log) as proxy,
        aiohttp.ClientSession(base_url=proxy.url) as client,
    ):
        for _ in range(150):
            body = route.body(streamed=False)
            async with client.post(route.path, headers=BEARER, json=body) as response:
                assert response.status == 200
        async with client.get(f"{proxy.admin}/metrics") as response:
            text = await response.text()
        os.close(unread)  # otherwise the exit would wait for a reader
    os.close(log)

    [waiting] = re.findall(r'telemetry_queue_length{signal="logs"} (\d+)', text)
    assert int(waiting) > 0
