"""The ids of calls, one a line: the ledger that ``tests/recipes/test_recipes.py`` adds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from proxy.ledger.rows import Rows
from proxy.ledger.store import Counts, to_write_error


class AcmeStore:
    def __init__(self, path: Path) -> None:
        self._path = path

    def open(self) -> None:
        try:
            self._path.touch()
        except OSError as error:
            raise to_write_error(error) from None

    def write(self, batch: Sequence[Rows], counts: Counts) -> None:
        try:
            with self._path.open("a") as file:
                file.writelines(f"{rows.call['request_id']}\n" for rows in batch)
        except OSError as error:
            raise to_write_error(error) from None

    def prune(self) -> bool:
        return False

    def close(self, counts: Counts) -> None:
        return None
