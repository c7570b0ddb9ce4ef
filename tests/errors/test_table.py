"""The table of errors has each error that a client can receive, once."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from collections.abc import Iterator

import proxy
from proxy.errors import ProxyError, RequestError, UpstreamError
from proxy.errors.table import CODES, ERROR_TABLE
from proxy.guards.findings import GuardRetryRequested
from proxy.upstream.client import PoolExhausted

INTERNAL = [RequestError, UpstreamError, GuardRetryRequested, PoolExhausted]
"""Base classes and errors that the proxy catches."""


def kinds(kind: type[ProxyError]) -> Iterator[type[ProxyError]]:
    if kind.__module__.startswith("proxy."):
        yield kind
    for item in kind.__subclasses__():
        yield from kinds(item)


def test_each_error_is_in_the_table_once() -> None:
    for module in pkgutil.walk_packages(proxy.__path__, "proxy."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)

    listed = [kind for row in ERROR_TABLE for kind in (row.error, *row.alike)]

    assert sorted(kind.__name__ for kind in [*listed, *INTERNAL]) == sorted(
        kind.__name__ for kind in kinds(ProxyError)
    )
    assert len(CODES) == len(set(CODES))
    assert [kind for row in ERROR_TABLE for kind in row.alike if kind.code != row.error.code] == []


def test_error_page_is_independent_of_imports() -> None:
    entry = "from proxy import guards, pipeline, server; from tools import docs; "
    pages = {
        subprocess.run(
            [sys.executable, "-c", f"{imports}print(*docs.codes())"],
            check=True,
            capture_output=True,
        ).stdout
        for imports in ("from tools import docs; ", entry)
    }

    assert len(pages) == 1
