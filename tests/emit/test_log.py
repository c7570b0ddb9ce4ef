"""The log: one true line per call, and a writer that nothing can hold up."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import orjson

from proxy.app.site import new_record
from proxy.emit.log import MAX_LINES, CallLog, LineWriter, canonical, events
from proxy.types import Call, Door


class Drops:
    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def __call__(self, reason: str, count: int) -> None:
        self.counts[reason] = self.counts.get(reason, 0) + count


def test_lines_arrive_in_order_and_whole(tmp_path: Path) -> None:
    drops = Drops()
    file = tmp_path / "log"
    fd = os.open(file, os.O_WRONLY | os.O_CREAT)
    writer = LineWriter(fd, drops)

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
    writer = LineWriter(writing, drops)

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
        writer = LineWriter(fd, drops)
        writer.put(b"x\n")
        writer.close()
        os.close(fd)

    assert drops.counts == {"write_failed": 2}


def test_a_call_that_reached_nothing_has_nulls_and_no_zeros() -> None:
    record = new_record()
    record.ended = record.started

    line = canonical(record)

    assert line["tokens"] is line["cost_usd"] is line["deployment"] is None
    assert line["usage_source"] == "none"


def test_a_clients_words_are_cut_and_stay_on_one_line() -> None:
    record = new_record()
    door = Door("openai", "completions", "/v1/completions", "req_1")
    record.join(door)
    record.call = Call(door, {}, models=("a\n\x1b[31m\u2028" + "x" * 500,))
    record.ended = record.started
    lines: list[bytes] = []

    CallLog(lines.append).end(record)

    assert lines[0].count(b"\n") == 1
    [model] = json.loads(lines[0])["models"]
    assert len(model) == 64
    assert model.isprintable()


def test_events_are_lines_with_time_and_level() -> None:
    lines: list[bytes] = []

    events(lines.append).info("policy.in_force", revision="abc")

    said = orjson.loads(lines[0])
    assert (said["event"], said["level"], said["revision"]) == ("policy.in_force", "info", "abc")
    assert said["time"].endswith("+00:00")
