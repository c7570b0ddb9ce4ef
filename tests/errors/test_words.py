"""Errors: causes of failed connections, the table of errors, and bounded texts."""

from __future__ import annotations

import errno
import importlib
import pkgutil
import re
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import proxy
from proxy.errors import ProxyError
from proxy.errors.causes import ErrorCause, get_cause
from proxy.errors.table import ERROR_CODES, ERRORS
from proxy.errors.words import (
    MAX_LISTED,
    MAX_WORD,
    first_items,
    format_count,
    join_names,
    read_text,
    shorten,
    shorten_to_ascii,
)
from proxy.guards.findings import GuardRetryRequested
from tests.for_each import for_each


@for_each(
    ("error", "cause"),
    [
        (None, "closed"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "dns"),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), "dns"),
        (UnicodeError("label too long"), "dns"),
        (OSError(errno.ECONNREFUSED, "x"), "refused"),
        (OSError(errno.ENETUNREACH, "x"), "unreachable"),
        (OSError(errno.EHOSTUNREACH, "x"), "unreachable"),
        (ssl.SSLCertVerificationError("certificate has expired"), "tls_certificate"),
        (ssl.SSLEOFError("EOF occurred"), "tls"),
        (ssl.SSLError("WRONG_VERSION_NUMBER"), "tls"),
        (ConnectionResetError(), "reset"),
        (OSError(errno.ECONNRESET, "x"), "reset"),
        (BrokenPipeError(errno.EPIPE, "x"), "reset"),
        (OSError(errno.ETIMEDOUT, "x"), "timeout"),
        (OSError(errno.EMFILE, "Too many open files"), "local"),
        (OSError(errno.EADDRNOTAVAIL, "x"), "local"),
        (OSError("no number"), "local"),
    ],
    ids=repr,
)
def test_error_is_classified(error: Exception | None, cause: ErrorCause) -> None:
    assert get_cause(error) == cause


def kinds(kind: type[ProxyError]) -> Iterator[type[ProxyError]]:
    if kind.__module__.startswith("proxy."):
        yield kind
    for item in kind.__subclasses__():
        yield from kinds(item)


def test_each_code_is_in_the_table_once() -> None:
    for module in pkgutil.walk_packages(proxy.__path__, "proxy."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)

    assert len(ERROR_CODES) == len(set(ERROR_CODES))
    defined = {kind for kind in kinds(ProxyError) if "code" in vars(kind)}
    assert defined <= {*ERRORS, GuardRetryRequested}  # the proxy catches the last one
    internal = {kind for kind in kinds(ProxyError) if kind.code == "internal_error"}
    names = {kind.__name__ for kind in internal if not hasattr(kind, "codes")}
    assert names == {"ProxyError", "RequestError", "UpstreamError"}


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


@for_each(
    ("text", "expected"),
    [
        ("smol", "smol"),
        ("x" * 5_000_000, "x" * MAX_WORD),
        ("a\nb\x00c", "a?b?c"),
        ("Z\u00fcr", "Z\u00fcr"),
        ("\udcff", "?"),
        ("", ""),
    ],
)
def test_word_is_bounded_to_one_line(text: str, expected: str) -> None:
    assert shorten(text) == expected


def test_header_word_is_ascii() -> None:
    assert shorten_to_ascii("Z\u00fcr\r\n") == "Z?r??"


def test_word_of_other_values_is_none() -> None:
    values: list[object] = [None, 7, "", [], {"a": 1}, True]

    assert {read_text(value) for value in values} == {None}
    assert read_text("x" * 500, 200) == "x" * 200


def test_lists_are_truncated_with_a_count() -> None:
    names = [f"m{number}" for number in range(100)]

    assert first_items(names, 3) == ["m0", "m1", "m2"]
    assert join_names(names[:2]) == "m0, m1"
    assert join_names(names).endswith(f"m{MAX_LISTED - 1} and {100 - MAX_LISTED} more")
    assert len(join_names(["x" * 1000] * 1000)) < 1000
    assert join_names(["", "a"]) == "'', a"


PRODUCT = Path(__file__).parents[2] / "proxy"
UNCOUNTED = (
    r"[^/]\{[a-z][^{}\"]*\} (?:attempts|calls|days|decisions|lines|requests|runs|times|tokens)\b"
)


@for_each(("count", "words"), [(0, "0 calls"), (1, "1 call"), (2, "2 calls"), (1000, "1000 calls")])
def test_counts_have_singular_and_plural(count: int, words: str) -> None:
    assert format_count(count, "call") == words
    assert format_count(2, "line is none", "lines are none") == "2 lines are none"


def test_messages_use_counted() -> None:
    """A number that may be 1 is followed by ``counted`` instead of a plural."""
    texts = {file: file.read_text() for file in PRODUCT.rglob("*.py")}

    assert {
        file: matches for file, text in texts.items() if (matches := re.findall(UNCOUNTED, text))
    } == {}
