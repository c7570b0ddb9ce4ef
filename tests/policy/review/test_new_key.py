"""What a new key is drawn with; that its lines pass a check is tested with the command."""

from __future__ import annotations

import hashlib

import pytest

from proxy.policy.review.new_key import draw

KNOWN = ("support-chat", "search-answers")


@pytest.mark.parametrize(
    ("chosen", "named"),
    [
        ((), "[support-chat, search-answers]"),
        (("search-answers",), "[search-answers]"),
        (("search-answers", "search-answers"), "[search-answers]"),
    ],
)
def test_the_lines_hold_the_digest_and_the_deployments(chosen: tuple[str, ...], named: str) -> None:
    text, lines = draw("widget", chosen, KNOWN)

    digest = hashlib.sha256(text.encode()).hexdigest()
    assert lines == f"keys:\n  widget: {{sha256: {digest}, deployments: {named}}}"


def test_no_two_keys_are_the_same() -> None:
    assert draw("widget", (), KNOWN)[0] != draw("widget", (), KNOWN)[0]


@pytest.mark.parametrize(("chosen", "known"), [(("nowhere",), KNOWN), ((), ())])
def test_useless_key_is_not_drawn(chosen: tuple[str, ...], known: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"does not exist|no deployment"):
        draw("widget", chosen, known)
