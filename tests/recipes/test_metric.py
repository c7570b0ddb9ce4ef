"""The recipe for a metric, followed in a copy: declared once and counted once."""

from __future__ import annotations

from pathlib import Path

from tests.recipes.copies import copied


def test_a_metric_is_declared_and_counted(tmp_path: Path) -> None:
    copy = copied(tmp_path / "copy", "A metric", "acme")
    copy.add_item(
        "proxy/telemetry/catalog/table.py",
        "CALLS",
        'counter("headrace_acme_calls_total", "Calls of a test of a recipe.", labels.DEPLOYMENT)',
    )
    copy.add_at_end(
        "proxy/telemetry/call_metrics.py",
        "count",
        'series["headrace_acme_calls_total", deployment].value += 1',
    )

    bounds = copy.run("proxy", "metrics", "policies")
    copy.run("tools.docs")
    copy.test("tests/recipes/added/check_metric.py")

    [line] = [line for line in bounds.splitlines() if line.startswith("headrace_acme_calls_total")]
    assert line.split()[1] == "counter"
    item = "- `headrace_acme_calls_total` (`deployment`): Calls of a test of a recipe."
    assert item in copy.read("docs/metrics.md")
