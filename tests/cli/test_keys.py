"""What a new key is drawn with; that its lines pass a check is tested with the command."""

from __future__ import annotations

import hashlib

import pytest

from proxy.cli.new_folder import new_key

KNOWN_VALUES = ("support-chat", "search-answers")


@pytest.mark.parametrize(
    ("chosen", "name"),
    [
        ((), "[support-chat, search-answers]"),
        (("search-answers",), "[search-answers]"),
        (("search-answers", "search-answers"), "[search-answers]"),
    ],
)
def test_the_lines_hold_the_digest_and_the_deployments(chosen: tuple[str, ...], name: str) -> None:
    text, lines = new_key("widget", chosen, KNOWN_VALUES)

    digest = hashlib.sha256(text.encode()).hexdigest()
    assert lines == f"keys:\n  widget: {{sha256: {digest}, deployments: {name}}}"


def test_no_two_keys_are_the_same() -> None:
    assert new_key("widget", (), KNOWN_VALUES)[0] != new_key("widget", (), KNOWN_VALUES)[0]


@pytest.mark.parametrize(("chosen", "known_value"), [(("nowhere",), KNOWN_VALUES), ((), ())])
def test_useless_key_is_not_drawn(chosen: tuple[str, ...], known_value: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"does not exist|no deployment"):
        new_key("widget", chosen, known_value)
