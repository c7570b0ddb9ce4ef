"""Writes the generated parts of the documentation, between their markers.

python -m tools.docs           # write them
python -m tools.docs --check   # say which are not what they should be
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import yaml

from dashboards.build import BOARDS
from dashboards.build.panels import Board
from proxy.dialects import ROUTES
from proxy.emit.declared import declared
from proxy.error_table import ERROR_TABLE
from tools import guards, hidden, losses

DOCS = Path(__file__).parents[1] / "docs"


def metrics() -> Iterator[str]:
    yield "| metric | kind | labels | what it says |"
    yield "|---|---|---|---|"
    for name, kind, labels, help_text in declared():
        yield f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels)} | {help_text} |"


def codes() -> Iterator[str]:
    yield "| code | status | type | when |"
    yield "|---|---|---|---|"
    for row in ERROR_TABLE:
        listed = ", ".join(f"`{code}`" for code in row.codes)
        types = ", ".join(row.types or (f"`{row.error.type}`",))
        when = row.when or (row.error.__doc__ or "").splitlines()[0]
        yield f"| {listed} | {row.status or row.error.status} | {types} | {when} |"


def routes() -> Iterator[str]:
    yield "| method | path | dialect | endpoint |"
    yield "|---|---|---|---|"
    for (method, path), (dialect, endpoint) in ROUTES.items():
        shared = " (or portkey)" if dialect == "openai" else ""
        yield f"| {method} | `{path}` | {dialect}{shared} | {endpoint} |"


def panels(board: Board) -> Iterator[str]:
    yield "| question | panel |"
    yield "|---|---|"
    for row in board.rows:
        for panel in row.panels:
            yield f"| {panel.question} | {row.title}: **{panel.title}** |"


def alerts() -> Iterator[str]:
    yield "| alert | urgency | page |"
    yield "|---|---|---|"
    rules = yaml.safe_load((DOCS.parent / "dashboards" / "rules" / "alerts.yaml").read_text())
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        page = Path(rule["annotations"]["runbook"])
        title = (DOCS.parent / page).read_text().splitlines()[0].removeprefix("# ")
        yield f"| `{rule['alert']}` | {rule['labels']['severity']} | [{title}]({page.name}) |"


BLOCKS: dict[str, dict[str, Callable[[], Iterator[str]]]] = {
    "dashboards.md": {name: partial(panels, board) for name, board in BOARDS.items()},
    "dialects.md": {"routes": routes, "losses": losses.tables},
    "errors.md": {"codes": codes},
    "runbooks/README.md": {"alerts": alerts},
    "guard-quality.md": {"hidden": hidden.table},
    "guards.md": {
        "common": guards.common,
        "kinds": guards.kinds,
        "detectors": guards.detectors,
        "silent": guards.silent,
    },
    "metrics.md": {"metrics": metrics},
}


def written(text: str, blocks: dict[str, Callable[[], Iterator[str]]]) -> str:
    """Give a page with its blocks made anew. Raises ``ValueError`` when a marker is missing."""
    for name, make in blocks.items():
        start, end = f"<!-- generated: {name} -->", f"<!-- end: {name} -->"
        if start not in text or end not in text:
            raise ValueError(f"the markers of {name} are missing")
        before, _, rest = text.partition(start)
        after = rest.partition(end)[2]
        body = "\n".join(make()).rstrip()
        text = f"{before}{start}\n{body}\n{end}{after}"
    return text


def main() -> int:
    stale = []
    for page, blocks in BLOCKS.items():
        file = DOCS / page
        text = file.read_text()
        fresh = written(text, blocks)
        if fresh != text:
            stale.append(page)
        if "--check" not in sys.argv:
            file.write_text(fresh)
    if "--check" in sys.argv and stale:
        print(f"not up to date: {', '.join(stale)}; run make docs")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
