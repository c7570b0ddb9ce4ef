"""Compares the results of policy tests with their expectations, and reports them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

import orjson

from proxy.dialects.chat.merging import get_choices
from proxy.dialects.wire import sse
from proxy.money.usage import NANO_PER_USD
from proxy.policytest.cases import Expect
from proxy.policytest.harness import CaseRun
from proxy.runtime.frozen import frozen
from proxy.types import Json

MISSING_TEXT = "nothing"
TEXT_FIELDS = ("prompt", "messages", "input", "suffix", "tools", "functions")
Difference = tuple[str, Any, Any]
"""Name of a value, its expected value, and its actual value."""


@frozen
class CaseResult:
    """Result of one test: its name, its ``file:line``, and its differences from expectations."""

    name: str
    location: str
    differences: tuple[str, ...]


@frozen
class CoverageItem:
    """A rule or a deployment, and whether any test used it."""

    kind: str
    name: str
    location: str
    covered: bool


@frozen
class Report:
    """Results of all tests, and which parts of the policies they cover."""

    results: tuple[CaseResult, ...]
    parts: tuple[CoverageItem, ...]

    @property
    def failed_count(self) -> int:
        return sum(bool(result.differences) for result in self.results)

    @property
    def coverage_percent(self) -> int:
        """Percentage of rules and deployments that a test used, rounded down."""
        return 100 * sum(part.covered for part in self.parts) // max(1, len(self.parts))


def format_text(report: Report) -> str:
    lines = []
    for result in report.results:
        if result.differences:
            lines.append(f"FAILED {result.location}: {result.name}")
            lines += [f"    {difference}" for difference in result.differences]
    uncovered = [part for part in report.parts if not part.covered]
    lines += [f"not covered: {part.kind} {part.name} ({part.location})" for part in uncovered]
    count, covered = len(report.parts), len(report.parts) - len(uncovered)
    lines.append(f"{covered} of {count} rules and deployments covered ({report.coverage_percent}%)")
    lines.append(
        f"{len(report.results) - report.failed_count} passed, {report.failed_count} failed"
    )
    return "\n".join(lines)


def format_json(report: Report) -> str:
    """Return an object: ``tests`` with their differences, ``parts`` with their coverage."""
    counts = {"failed": report.failed_count, "coverage_percent": report.coverage_percent}
    data = {**counts, "tests": report.results, "parts": report.parts}
    return orjson.dumps(data, option=orjson.OPT_INDENT_2).decode()


FORMATS: dict[str, Callable[[Report], str]] = {"text": format_text, "json": format_json}


def find_differences(expect: Expect, case_run: CaseRun) -> list[str]:
    """Return a sentence for each value that differs from the expected one."""
    parts = [*_find_result_differences(expect, case_run), *_find_body_differences(expect, case_run)]
    return [
        f"{name}: expected {_format_value(want)}, got {_format_value(got)}"
        for name, want, got in parts
    ]


def _find_result_differences(expect: Expect, case_run: CaseRun) -> Iterator[Difference]:
    record, plan = case_run.record, case_run.record.plan
    targets = [target for m in (plan.model_calls if plan else ()) for target in m.targets]
    cost = record.billing.cost
    actual = {
        "deployment": plan.deployment if plan else None,
        "tags": dict(plan.tags) if plan else {},
        "rules": list(plan.rules) if plan else [],
        "shadow_rules": list(plan.shadow_rules) if plan else [],
        "plan": [target.id for target in targets],
        "targets": [attempt.target.id for attempt in record.attempts],
        "status": case_run.status,
        "error": record.error.code if record.error else "none",
        "cost_usd": None if cost is None else Decimal(cost) / NANO_PER_USD,
    }
    for name, result in actual.items():
        expected = getattr(expect, name)
        if expected is not None and expected != result:
            yield name, expected, result
    for name, verdict in (expect.guards or {}).items():
        results = [(f"{stage}.{r.guard}", r.verdict) for stage, r in record.list_guard_results()]
        verdicts = [result for guard, result in results if guard == name]
        if verdict not in verdicts:  # after a guard retry, a guard has several verdicts
            missing = _describe_missing_value(guard for guard, _ in results)
            yield f"guards.{name}", verdict, verdicts[-1] if verdicts else missing
    for name, amount in (expect.charged or {}).items():
        charged = case_run.charged.get(name, _describe_missing_value(case_run.charged))
        if amount != charged:
            yield f"charged.{name}", amount, charged


def _describe_missing_value(available_names: Iterable[str]) -> str:
    available = ", ".join(sorted(set(available_names)))
    return f"{MISSING_TEXT} (available: {available})" if available else MISSING_TEXT


def _find_body_differences(expect: Expect, case_run: CaseRun) -> Iterator[Difference]:
    if expect.upstream is not None:
        body = case_run.requests[-1].body if case_run.requests else {}
        yield from _compare_values("upstream.body", expect.upstream.body or {}, body)
        if expect.upstream.text is not None and expect.upstream.text != join_request_text(body):
            yield "upstream.text", expect.upstream.text, join_request_text(body)
    if expect.client is not None:
        yield from _compare_values("client.headers", expect.client.headers, case_run.headers)
        body = _parse_document(case_run.body)
        yield from _compare_values("client.body", expect.client.body or {}, body)
        if expect.client.text is not None and expect.client.text != join_response_text(case_run):
            yield "client.text", expect.client.text, join_response_text(case_run)


def _compare_values(path: str, expected: Any, actual: Any) -> Iterator[Difference]:
    """Yield the differences in a value. A mapping may have more keys than expected."""
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        for name, value in expected.items():
            yield from _compare_values(f"{path}.{name}", value, actual.get(name, MISSING_TEXT))
    elif expected != actual:
        yield path, expected, actual


def _format_value(value: Any) -> str:
    return str(value) if isinstance(value, (str, Decimal)) else orjson.dumps(value).decode()


def _parse_document(body: bytes) -> Json:
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return data if isinstance(data, dict) else {}


def join_request_text(body: Json) -> str:
    """Return all texts of a request that a model reads, in order, joined by newlines."""
    return "\n".join(
        text for name in TEXT_FIELDS if name in body for text in _iter_texts(body[name])
    )


def _iter_texts(value: Any, name: str = "") -> Iterator[str]:
    if isinstance(value, str) and name not in ("role", "type", "id"):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _iter_texts(inner, key)
    elif isinstance(value, list):
        for item in value:
            yield from _iter_texts(item, name)


def join_response_text(case_run: CaseRun) -> str:
    if not case_run.headers.get("content-type", "").startswith("text/event-stream"):
        return _join_document_text(_parse_document(case_run.body))
    reader = sse.EventReader(limit=len(case_run.body) + 1)
    events = [*reader.feed(case_run.body), *reader.close()]
    return "".join(_join_document_text(_parse_document(event)) for event in events)


def _join_document_text(document: Json) -> str:
    choices = get_choices(document) or [document.get("choice") or {}]
    texts = []
    for choice in choices:
        message = choice.get("message") or choice.get("delta") or choice
        texts.append(message.get("content") or message.get("text") or "")
    return "".join(texts)
