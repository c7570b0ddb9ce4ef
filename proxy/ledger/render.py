"""Formats of usage: a table with bars, CSV and JSON. Costs are exact."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime

import orjson

from proxy.errors.words import format_count, shorten
from proxy.ledger.spending import SpendingLine, SpendingReport
from proxy.ledger.statements import PruneResult
from proxy.money.usage import format_usd

FORMULA_PREFIXES = tuple("=+-@＝＋－＠")  # noqa: RUF001  # full-width signs count too
"""First characters of texts that spreadsheets treat as formulas."""
BAR_WIDTH = 24
BAR_BLOCKS = " ▏▎▍▌▋▊▉█"


def list_measures(line: SpendingLine) -> dict[str, int | str | float | None]:
    """Return a line's values: USD as exact text, shares from 0 to 1, None where unknown."""
    return {
        "calls": line.calls,
        "tokens_in": line.tokens_in,
        "tokens_out": line.tokens_out,
        "cost_usd": format_cost(line.cost),
        "lost_cost_usd": format_cost(line.lost_cost),
        "saved_usd": format_cost(line.saved),
        "attempts": line.attempts,
        "unpriced": compute_fraction(line.unpriced, line.attempts),
        "estimated": compute_fraction(line.estimated, line.attempts),
    }


def format_cost(nano: int | None) -> str | None:
    """Return USD with six decimals at least, so that columns are easy to compare."""
    if nano is None:
        return None
    dollars, _, decimals = format_usd(nano).partition(".")
    return f"{dollars}.{decimals:0<6}"


def describe_pruning(pruned: PruneResult, limit: datetime) -> str:
    """Return a text with the number of pruned calls, and the reason for keeping others."""
    text = f"{format_count(pruned.calls, 'call')} pruned"
    if pruned.calls:
        text += f" (cost ${format_cost(pruned.nano_usd)})"
    moment = f"{limit:%Y-%m-%d %H:%M} UTC"
    if pruned.retained:
        retained = f"kept {format_count(pruned.retained, 'call')} before {moment}"
        return f"{text}\n{retained}, because budgets of this week or month may need the data"
    return text if pruned.calls else f"{text}: none started before {moment}"


def compute_fraction(part: int, total: int | None) -> float | None:
    return round(part / total, 4) if total else None


def format_table(report: SpendingReport) -> str:
    """Return aligned columns, a total, and a bar for the share of each group in the cost."""
    measures = [*list_measures(report.total)]
    heads = [*report.by, *(name.removesuffix("_usd").replace("_", " ") for name in measures)]
    total = report.total._replace(group=("total", *[""] * len(report.by))[: len(report.by)])
    rows = [heads, *map(_make_table_cells, (*report.lines, total))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    bars = ["", *_draw_bars(report.lines), ""]
    lines = [f"{report.start:%Y-%m-%d %H:%M} to {report.end:%Y-%m-%d %H:%M} UTC"]
    for row, bar in zip(rows, bars, strict=True):
        names = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        values = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join([*names[: len(report.by)], *values[len(report.by) :], bar]).rstrip())
    return "\n".join(lines)


def _make_table_cells(line: SpendingLine) -> list[str]:
    names = ("-" if value is None else shorten(value) for value in line.group)
    return [*names, *(_format_measure(*measure) for measure in list_measures(line).items())]


def _format_measure(name: str, value: int | str | float | None) -> str:
    if value is None:
        return "-"
    if name.endswith("_usd"):
        return f"${value}"
    return f"{value:.1%}" if isinstance(value, float) else f"{value:,}"


def _draw_bars(lines: Sequence[SpendingLine]) -> Iterator[str]:
    """Yield a bar per line, by cost, or by calls if no line has a cost."""
    costs = [line.cost or 0 for line in lines]
    sizes = costs if any(costs) else [line.calls for line in lines]
    for size in sizes:
        full, eighths = divmod(size * BAR_WIDTH * 8 // max(*sizes, 1), 8)
        yield (BAR_BLOCKS[-1] * full + BAR_BLOCKS[eighths]).rstrip()


def format_csv(report: SpendingReport) -> str:
    """Return one line per group, or one line without groups. Unknown values are empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*report.by, *list_measures(report.total)])
    for line in report.lines if report.by else (report.total,):
        writer.writerow([*map(_make_csv_cell, line.group), *list_measures(line).values()])
    return text.getvalue().rstrip("\n")


def _make_csv_cell(text: str | None) -> str | None:
    """Return a text on one line that no spreadsheet treats as a formula (OWASP's advice)."""
    if text is None:
        return None
    text_line = shorten(text, len(text))
    return f"'{text_line}" if text_line.startswith(FORMULA_PREFIXES) else text_line


def format_json(report: SpendingReport) -> str:
    """Return groups and total. Unknown values are null."""
    data = {
        "since": report.start.isoformat(),
        "until": report.end.isoformat(),
        "groups": [
            {"group": dict(zip(report.by, line.group, strict=True)), **list_measures(line)}
            for line in report.lines
        ],
        "total": list_measures(report.total),
    }
    return orjson.dumps(data, option=orjson.OPT_INDENT_2).decode()


FORMATS: Mapping[str, Callable[[SpendingReport], str]] = {
    "table": format_table,
    "csv": format_csv,
    "json": format_json,
}
