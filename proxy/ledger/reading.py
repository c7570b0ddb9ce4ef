"""Reading a ledger while the proxy writes it: one read-only transaction, which sees one moment."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from proxy.ledger.migration import known
from proxy.ledger.schema import views
from proxy.ledger.sqlite import translated
from proxy.ledger.store import Unusable

WAIT_S = 5.0


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a ledger for reading; one of an earlier version shows the columns of this one. Raises
    ``Unusable``, also for faults while it is read."""
    try:
        address = f"{path.absolute().as_uri()}?mode=ro"
        file = sqlite3.connect(address, uri=True, timeout=WAIT_S, isolation_level=None)
        try:
            file.row_factory = sqlite3.Row
            file.execute("BEGIN")
            version = known(file)
            if version is None:
                raise Unusable("the file is not a Headrace ledger")
            for view in views(version):
                file.execute(view)
            yield file
        finally:
            file.close()
    except sqlite3.Error as error:
        raise Unusable(f"{path} cannot be read: {translated(error).reason}") from None
    except Unusable as error:
        raise Unusable(f"{path} cannot be read: {error.reason}") from None
