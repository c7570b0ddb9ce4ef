"""Sizes of the data that each store, log and span keeps of an ended call."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from proxy.call.record import Record
from proxy.call.summary import summarize
from proxy.ledger.rows import make_rows
from proxy.money.usage import Price
from proxy.policy.catalog import list_labels
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.review.call_history import CallHistory
from proxy.policy.review.compare import CandidateSink
from proxy.policy.store import read_folder
from proxy.telemetry.decisions import make_decision_entry
from proxy.telemetry.lines import build_line_logger
from proxy.telemetry.log import CallLog, LogLevel
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.trace import TraceSink
from proxy.types import Call, Plan, RequestHead, Target
from proxy.types.limit import Limit
from tests.ledger.records import call_entry

FROM_POLICIES = (type, type(sys), Target, Limit, Price, Snapshot)
FREED_WITH_THE_CALL = (Call, RequestHead, Plan)
ENVIRON = {"UPSTREAM_KEY": "sk-upstream-secret"}


def measure_size(value: object, *excluded: type) -> int:
    """Return the bytes reachable from a value, without policies and excluded types."""
    observed: set[int] = set()
    total, stack = 0, [value]
    while stack:
        item = stack.pop()
        if id(item) in observed or isinstance(item, (*FROM_POLICIES, *excluded)) or callable(item):
            continue
        observed.add(id(item))
        total += sys.getsizeof(item)
        stack += _parts(item)
    return total


def _parts(value: object) -> Iterator[object]:
    if isinstance(value, Mapping):
        yield from value.keys()
        yield from value.values()
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from value
    yield from getattr(value, "__dict__", {}).values()
    for kind in type(value).__mro__:
        slots = getattr(kind, "__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(value, name):
                yield getattr(value, name)


class SpanList:
    def __init__(self) -> None:
        self.received: list[ReadableSpan] = []

    def enqueue(self, spans: Sequence[ReadableSpan]) -> None:
        self.received += spans


class StoredData:
    """The sinks of a process, and the size of what each stores of a call."""

    def __init__(self, policies: Path, candidate: Path) -> None:
        self.snapshot = read_folder(policies, ENVIRON)
        self.other = read_folder(candidate, ENVIRON)
        self.metrics = Metrics("0")
        self.metrics.allow_policy_labels(list_labels(self.snapshot))()

    def measure(self, record: Record) -> dict[str, int]:
        """Return the bytes of a call in stores, logs, spans and explanations."""
        past = CallHistory(self._find, lambda: self.other)
        candidate = CandidateSink(lambda: self.other, lambda kind, rule: None)
        lines: list[bytes] = []
        levels = LogLevel("debug", lambda: 0.0)
        log = CallLog(build_line_logger(lines.append, levels), levels)
        spans = SpanList()
        traces = TraceSink([spans], ALWAYS_ON, Resource({}))
        for sink in (past, candidate, log, traces, self.metrics):
            sink.emit(record)
        entry = call_entry(1, record)
        rows = make_rows(entry)
        sizes = {
            "the record": measure_size(record, *FREED_WITH_THE_CALL),
            "a recent call": measure_size(past),
            "a candidate's examples": measure_size(candidate),
            "a decision": len(orjson.dumps(make_decision_entry(summarize(record)))),
            "a ledger entry": measure_size(entry),
            "the rows of a call": measure_size(rows.call),
            "the spans": encode_spans(spans.received).ByteSize(),
            "/candidate": _explanation_size(candidate.explain_latest_changes()),
        }
        sizes |= {f"row {number}": measure_size(row) for number, row in enumerate(rows.attempts)}
        sizes |= {f"log line {number}": len(line) for number, line in enumerate(lines)}
        if record.head is not None:
            sizes["/explain"] = _explanation_size(past.explain(record.head.request_id))
        return sizes

    def longest_metrics_line(self) -> bytes:
        return max(self.metrics.render()[0].splitlines(), key=len)

    def _find(self, revision: str) -> Snapshot | None:
        return self.snapshot if revision == self.snapshot.revision else None


def _explanation_size(explanation: Any) -> int:
    if explanation is None:
        return 0
    return max(len(orjson.dumps(explanation.to_json())), len(explanation.format_tree().encode()))
