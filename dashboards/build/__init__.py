"""Generates Grafana dashboards."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from dashboards.build import cost, drawing, policy, reliability
from dashboards.build.panels import Board

FOLDER = Path(__file__).parents[1]
BOARDS: Mapping[str, Board] = {
    "cost": cost.BOARD,
    "reliability": reliability.BOARD,
    "policy": policy.BOARD,
}


def render(board: Board) -> str:
    """Return the JSON of a dashboard."""
    document = json.loads(json.dumps(drawing.board(board), cls=JSONEncoder))
    for variable in document["templating"]["list"]:
        for name in ("auto", "auto_count", "auto_min"):  # Grafana has them for intervals only
            variable.pop(name, None)
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
