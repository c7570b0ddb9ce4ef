"""The ids of calls, one a line: the ledger that ``tests/recipes/test_recipes.py`` adds."""

from __future__ import annotations

from pathlib import Path

from proxy.ledger.rows import CALL_COLUMNS, Rows
from proxy.ledger.store import Counts, to_write_error

ID = CALL_COLUMNS.index("request_id")


class AcmeStore:
    def __init__(self, path: Path) -> None:
        self._path = path

    def open(self) -> None:
        try:
            self._path.touch()
        except OSError as error:
            raise to_write_error(error) from None

    def write(self, rows: Rows, counts: Counts) -> None:
        try:
            with self._path.open("a") as file:
                file.writelines(f"{row[ID]}\n" for row in rows.calls)
        except OSError as error:
            raise to_write_error(error) from None

    def prune(self) -> bool:
        return False

    def close(self, counts: Counts) -> None:
        return None
