"""Writes the committed dashboards: ``python -m dashboards``."""

from __future__ import annotations

from dashboards.build import BOARDS, FOLDER, render


def main() -> None:
    for name, board in BOARDS.items():
        (FOLDER / f"{name}.json").write_text(render(board))


main()
