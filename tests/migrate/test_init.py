"""The table of gateways: each has a reader, and the page about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.migrate import FORMATS


@pytest.mark.parametrize("word", FORMATS)
def test_a_gateway_has_a_reader_and_stands_on_the_page(word: str) -> None:
    page = Path(__file__).parents[2] / "docs/migrating.md"

    assert FORMATS[word]({}, "name", {}).deployments == {}
    assert f"headrace migrate {word} " in page.read_text()
