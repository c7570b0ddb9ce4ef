"""Generation of keys and their policy lines."""

from __future__ import annotations

import hashlib

import pytest

from proxy.cli.new_folder import new_key

DEPLOYMENTS = ("support-chat", "search-answers")


@pytest.mark.parametrize(
    ("chosen", "name"),
    [
        ((), "[support-chat, search-answers]"),
        (("search-answers",), "[search-answers]"),
        (("search-answers", "search-answers"), "[search-answers]"),
    ],
)
def test_key_lines_have_digest_and_deployments(chosen: tuple[str, ...], name: str) -> None:
    text, lines = new_key("widget", chosen, DEPLOYMENTS)

    digest = hashlib.sha256(text.encode()).hexdigest()
    assert text != new_key("widget", chosen, DEPLOYMENTS)[0]
    assert lines == f"keys:\n  widget: {{sha256: {digest}, deployments: {name}}}"


@pytest.mark.parametrize(("chosen", "deployments"), [(("nowhere",), DEPLOYMENTS), ((), ())])
def test_useless_key_is_not_generated(
    chosen: tuple[str, ...], deployments: tuple[str, ...]
) -> None:
    with pytest.raises(ValueError, match=r"does not exist|no deployment"):
        new_key("widget", chosen, deployments)
