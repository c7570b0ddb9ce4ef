"""The dashboards: what they ask, and how they are written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from dashboards.build import cost, drawing, policy, reliability
from dashboards.build.panels import Board

FOLDER = Path(__file__).parents[1]
BOARDS: Mapping[str, Board] = {
    "cost": cost.BOARD,
    "reliability": reliability.BOARD,
    "policy": policy.BOARD,
}


def written(board: Board) -> str:
    """Give a dashboard's file: the same text for the same board."""
    drawn = json.loads(json.dumps(drawing.board(board), cls=JSONEncoder))
    for variable in drawn["templating"]["list"]:
        _tidy(variable)
    return json.dumps(drawn, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _tidy(variable: dict[str, Any]) -> None:
    """Take away what the library says of every variable and Grafana knows of intervals only."""
    for name in ("auto", "auto_count", "auto_min"):
        variable.pop(name, None)
