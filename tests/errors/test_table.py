"""The table of errors: every one that a client can meet, once."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from collections.abc import Iterator

import proxy
from proxy.errors import ProxyError, RequestError, UpstreamError
from proxy.errors.table import CODES, ERROR_TABLE
from proxy.guards.findings import RetryWanted
from proxy.upstream.wire.pool import PoolExhausted

NEVER_READ = [RequestError, UpstreamError, RetryWanted, PoolExhausted]
"""The first two are only what others are kinds of; the watch of an answer catches the third; the
last reads as any time-out to connect."""


def kinds(kind: type[ProxyError]) -> Iterator[type[ProxyError]]:
    if kind.__module__.startswith("proxy."):
        yield kind
    for item in kind.__subclasses__():
        yield from kinds(item)


def test_every_error_that_a_client_can_meet_stands_once_in_the_table() -> None:
    for module in pkgutil.walk_packages(proxy.__path__, "proxy."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)

    listed = [kind for row in ERROR_TABLE for kind in (row.error, *row.alike)]

    assert sorted(kind.__name__ for kind in [*listed, *NEVER_READ]) == sorted(
        kind.__name__ for kind in kinds(ProxyError)
    )
    assert len(CODES) == len(set(CODES))
    assert [kind for row in ERROR_TABLE for kind in row.alike if kind.code != row.error.code] == []


def test_the_page_of_errors_is_the_same_from_every_entry() -> None:
    entry = "from proxy import guards, pipeline, server; from tools import docs; "
    pages = {
        subprocess.run(  # our own words
            [sys.executable, "-c", f"{value_before}print(*docs.codes())"],
            check=True,
            capture_output=True,
        ).stdout
        for value_before in ("from tools import docs; ", entry)
    }

    assert len(pages) == 1
