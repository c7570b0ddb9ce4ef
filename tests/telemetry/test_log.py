"""The log: one true line per call, and a writer that nothing can hold up."""

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
from proxy.errors.words import Word
from proxy.money.usage import NANO, Tokens
from proxy.policy.schema.rules import Cap
from proxy.telemetry.lines import (
    MAX_LINE,
    MAX_LINES,
    SCHEMAS,
    LineWriter,
    Schema,
    line_logger,
    native,
)
from proxy.telemetry.log import PARAMETERS, CallLog, LogLevel, canonical
from proxy.types import Call, Plan, RequestHead, Target, Upstream
from tests.conftest import running_proxy, world
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
    """Nothing that was not foreseen may happen in these tests."""
    raise error


def test_lines_arrive_in_order_and_whole(tmp_path: Path) -> None:
    drops = Drops()
    file = tmp_path / "log"
    fd = os.open(file, os.O_WRONLY | os.O_CREAT)
    writer = LineWriter(fd, drops, raising)

    for number in range(1000):
        writer.put(b"%d\n" % number)
    writer.close()

    assert file.read_text().split() == [str(n) for n in range(1000)]
    assert drops.counts == {}
    os.close(fd)


def test_a_stalled_reader_holds_nobody_up_and_the_loss_is_counted() -> None:
    drops = Drops()
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    writer = LineWriter(writing, drops, raising)

    for _ in range(MAX_LINES * 2):
        writer.put(b"x" * 200 + b"\n")
    writer.close(timeout=0.05)

    assert drops.counts["queue_full"] > MAX_LINES / 2
    assert drops.counts["shutdown"] > 0
    os.close(reading)  # the writer's thread ends with a broken pipe, and with it its descriptor


def test_a_reader_that_left_and_a_full_disk_are_counted() -> None:
    drops = Drops()
    reading, writing = os.pipe()
    os.close(reading)
    full = os.open("/dev/full", os.O_WRONLY)

    for fd in (writing, full):
        writer = LineWriter(fd, drops, raising)
        writer.put(b"x\n")
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
    os.set_blocking(writing, False)  # once it is full it takes a part, and then nothing

    def dropped(reason: str, count: int) -> None:
        drops(reason, count)
        event.set()

    writer = LineWriter(writing, dropped, raising)
    lines = [b"%d" % number + b"x" * (size - 4) for number in range(100, 200)]
    for _ in range(2):  # the second has room for nothing
        event.clear()
        writer.put(*(line + b"\n" for line in lines))
        assert event.wait(10)
    written = os.read(reading, 8192)
    writer.put(b"last\n")
    writer.close()
    written += os.read(reading, 8192)
    os.close(reading)
    os.close(writing)

    outputs = written.split(b"\n")
    assert [line for line in outputs if line in lines] == lines[:total]
    assert outputs[-2:] == [b"last", b""]
    assert drops.counts == {"write_failed": 2 * len(lines) - total}


def test_broken_line_is_counted_and_next_ones_are_written(tmp_path: Path) -> None:
    drops, failures = Drops(), list[Exception]()
    broken = threading.Event()
    fd = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)

    def failed(error: Exception) -> None:
        failures.append(error)
        broken.set()

    writer = LineWriter(fd, drops, failed)
    hostile: Any = "no bytes"
    writer.put(hostile)
    assert broken.wait(10)
    writer.put(b"good\n")
    writer.close()
    os.close(fd)

    assert (tmp_path / "log").read_bytes() == b"good\n"
    assert (drops.counts, [type(failure) for failure in failures]) == ({"error": 1}, [TypeError])


def test_a_call_that_reached_nothing_has_nulls_and_no_zeros() -> None:
    record = new_record()
    record.ended = record.started

    line = canonical(record)

    assert line["tokens"] is line["cost_usd"] is line["deployment"] is None
    assert line["usage_source"] == "none"


@for_each("nano", [1, 1_350, 123_456_789, 4_000_000_000_000_001])
def test_money_is_a_number_that_reads_as_what_it_is(nano: int) -> None:
    record = new_record()
    record.ended = record.started
    record.saved = CacheSavings(Tokens(), nano)

    line = orjson.dumps(canonical(record))

    assert json.loads(line, parse_float=Decimal)["saved_usd"] * NANO == nano


def test_the_numbers_of_a_request_are_told_and_none_of_its_texts() -> None:
    record = new_record()
    head = RequestHead("openai", "completions", "/v1/completions", "req_1")
    body = {"max_tokens": 20, "temperature": 0.5, "n": "a text", "stop": "another", "seed": None}
    record.set_head(head)
    record.call = Call(head, body, requested_models=("smol",))
    record.ended = record.started

    assert canonical(record)["parameters"] == {"max_tokens": 20, "temperature": 0.5}
    assert {*Cap.model_fields} <= {*PARAMETERS}


def test_a_clients_words_are_cut_and_stay_on_one_line() -> None:
    record = new_record()
    head = RequestHead("openai", "completions", "/v1/completions", "req_1")
    record.set_head(head)
    record.call = Call(head, {}, requested_models=("a\n\x1b[31m\u2028" + "x" * 500,))
    record.ended = record.started
    lines: list[bytes] = []

    CallLog(line_logger(lines.append, INFO), INFO).end(record)

    assert lines[0].count(b"\n") == 1
    [model] = json.loads(lines[0])["models"]
    assert len(model) == 64
    assert model.isprintable()


def test_all_that_a_client_is_warned_of_is_in_the_line() -> None:
    record = new_record()
    head = RequestHead("portkey", "chat", "/v1/chat/completions", "req_1", warnings=("of head",))
    record.set_head(head)
    record.call = Call(head, {}, requested_models=("m",), warnings=("of call",))
    record.plan = Plan("r", "k", "d", {}, (), warnings=("tag team dropped",))
    record.warn(["of upstream"])
    record.ended = record.started

    fields = canonical(record)["warnings"]

    assert sorted(fields) == ["of call", "of head", "of upstream", "tag team dropped"]


def test_a_line_that_would_be_too_long_goes_without_its_longest_lists() -> None:
    record = new_record()
    record.ended = record.started
    record.warnings = [Word("w" * 1000)] * 100
    lines: list[bytes] = []

    CallLog(line_logger(lines.append, INFO), INFO).end(record)

    line = json.loads(lines[0])
    assert len(lines[0]) <= MAX_LINE
    assert (line["warnings"], line["cut"], line["outcome"]) == ([], ["warnings"], "success")


def test_events_are_lines_with_time_and_level() -> None:
    lines: list[bytes] = []

    line_logger(lines.append, INFO).info("policy.in_force", revision="abc")

    fields = orjson.loads(lines[0])
    assert (fields["event"], fields["level"], fields["revision"]) == (
        "policy.in_force",
        "info",
        "abc",
    )
    assert fields["time"].endswith("+00:00")


def test_an_event_has_the_fields_it_is_given_and_no_others() -> None:
    lines: list[bytes] = []

    line_logger(lines.append, INFO).warning("bug", place=Path("a"), names=["x" * MAX_LINE])

    line = orjson.loads(lines[0])
    assert lines[0].endswith(b"}\n")
    assert list(line) == ["time", "place", "names", "event", "level", "cut"]
    assert (line["place"], line["names"], line["cut"]) == ("a", [], ["names"])


def test_the_level_of_a_logger_may_change() -> None:
    lines: list[bytes] = []
    levels = LogLevel("error", lambda: 0.0)
    log = line_logger(lines.append, levels)

    log.warning("bug")
    levels.put("debug", 60)
    log.debug("bug")

    assert [orjson.loads(line)["level"] for line in lines] == ["debug"]


def ended(error: Exception | None = None) -> Record:
    record = new_record()
    target = Target(Upstream("openai", "openai", "http://here"), "gpt-4o-mini")
    attempt = record.start_attempt(target, 0)
    attempt.ended = record.ended = record.now()
    record.error = error  # type: ignore[assignment]  # one of ours
    return record


def logged(
    record: Record, levels: LogLevel = INFO, ratio: float = 1.0, schema: Schema = native
) -> list[dict[str, Any]]:
    lines: list[bytes] = []
    CallLog(line_logger(lines.append, levels, schema), levels, ratio).end(record)
    return [json.loads(line) for line in lines]


def test_a_call_that_failed_upstream_is_a_warning() -> None:
    levels = LogLevel("warning", lambda: 0.0)

    assert logged(ended(), levels=levels) == []
    [line] = logged(ended(UpstreamUnavailable("no")), levels=levels)
    assert (line["level"], line["outcome"]) == ("warning", "upstream_error")


def test_at_debug_each_attempt_has_a_line() -> None:
    call, attempt = logged(ended(), levels=LogLevel("debug", lambda: 0.0))

    assert (call["event"], attempt["event"]) == ("call", "attempt")
    assert (attempt["upstream"], attempt["model"]) == ("openai", "gpt-4o-mini")
    assert attempt["trace_id"] == call["trace_id"]


def test_a_share_of_what_went_well_is_logged_and_all_that_did_not() -> None:
    well = [logged(ended(), ratio=0.25) for _ in range(2000)]
    badly = [logged(ended(UpstreamUnavailable("no")), ratio=0.0) for _ in range(20)]

    lines = [line for lines in well for line in lines]
    assert 300 < len(lines) < 700
    assert {line["sample_ratio"] for line in lines} == {0.25}
    assert [len(lines) for lines in badly] == [1] * 20


@pytest.mark.parametrize("schema", SCHEMAS)
def test_events_and_calls_are_told_under_the_same_names(schema: str) -> None:
    lines: list[bytes] = []
    line_logger(lines.append, INFO, SCHEMAS[schema]).info("policy.in_force", revision="abc")
    [call] = logged(ended(), schema=SCHEMAS[schema])

    event = json.loads(lines[0])
    names = {"native": "event", "ecs": "event.action", "otel": "Body"}
    assert (event[names[schema]], call[names[schema]]) == ("policy.in_force", "call")


async def test_unread_log_delays_no_call(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    """A pipe takes 64 KiB, some 80 lines."""
    route = ROUTES["openai"]
    unread, log = os.pipe()
    async with (
        running_proxy(tmp_path / "policies", world(upstream.url), log_fd=log) as proxy,
        aiohttp.ClientSession(base_url=proxy.url) as client,
    ):
        for _ in range(150):
            body = route.body(streamed=False)
            async with client.post(route.path, headers=BEARER, json=body) as response:
                assert response.status == 200
        async with client.get(f"{proxy.admin}/metrics") as response:
            text = await response.text()
        os.close(unread)  # else the stop would wait for a reader
    os.close(log)

    [waiting] = re.findall(r'telemetry_queue_length{signal="logs"} (\d+)', text)
    assert int(waiting) > 0
