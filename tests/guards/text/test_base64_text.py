"""Base64 is found wherever it stands, decoded once, and waited for while it may be text."""

from __future__ import annotations

import base64

import pytest

from proxy.guards.text import base64_text
from proxy.guards.text.normalize import beginning
from tests.for_each import for_each
from tests.guards.text.test_normalize import spots


@pytest.mark.parametrize(
    "text", ["the secret is out", "secret? oh secret!", "ein Gehe\u00efmnis, secret"]
)
def test_base64_is_decoded_once_and_found_as_a_whole(text: str) -> None:
    run = base64.b64encode(text.encode()).decode()

    assert spots(f"look: {run} here", "secret") == [run]
    assert spots(f"look: {run.rstrip('=')} here", "secret") == [run.rstrip("=")]
    assert base64_text.plain(base64.b64encode(run.encode()).decode()) == run


@for_each("around", ["{}", "é {} é", "%20{}", "say:{}."])
def test_runs_are_found_in_any_text(around: str) -> None:
    run = base64.b64encode(b"a secret, it is").decode()

    assert run in [
        match.group() for match in base64_text.runs(around.format(run).replace("%20", " "))
    ]


@for_each("codec", ["utf-16", "utf-16le", "utf-16be"])
@for_each("text", ["a secret, it is", "Geheïmnis: secret"])
def test_text_of_two_bytes_a_letter_is_text(codec: str, text: str) -> None:
    run = base64.b64encode(text.encode(codec)).decode()

    assert spots(f"look: {run} here", "secret") == [run]
    for size in range(16, len(run)):
        assert base64_text.plain(run[:size], cut=True) is not None
        assert base64_text.plain(run[:size]) is not None


@for_each("head", ["data:text/plain;base64,", "DATA:;BASE64,", "b&#97;se64,"])
@for_each("word", ["secret", "a secret", "secrets are secret"])
def test_what_is_called_base64_is_decoded_however_short_it_is(head: str, word: str) -> None:
    run = base64.b64encode(word.encode()).decode()

    assert spots(f"look: {head}{run} here", "secret") == [run]
    assert spots(f"look: {head}{run.rstrip('=')}", "secret") == [run.rstrip("=")]
    assert spots(f"é {head}{run} {run}", "secret")[0] == run


def test_what_is_not_all_text_is_none() -> None:
    assert base64_text.plain(base64.b64encode(b"secret\x00\x01").decode()) is None
    assert base64_text.plain("internationalization") is None
    assert base64_text.plain("x") == ""


def test_a_word_that_cannot_be_text_is_not_waited_for() -> None:
    assert base64_text.open_run("internat", torn=False, most=None) == len("internat")
    assert base64_text.open_run("say: c2VjcmV", torn=False, most=None) == len("say: ")


def test_a_long_run_is_settled_at_its_bound() -> None:
    run = base64.b64encode(b"all of it is text " * 20).decode().rstrip("=")

    assert beginning(run).run == 0
    assert beginning(run, most=64).run == len(run)
