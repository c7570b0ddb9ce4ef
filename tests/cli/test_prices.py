"""``headrace prices``: output and exit codes."""

from __future__ import annotations

from pathlib import Path

import orjson

from tests.cli.test_init import headrace
from tests.policy.review.test_price_warnings import GOOD


def folder(path: Path, text: str = GOOD) -> str:
    (path / "p.yaml").write_text(text)
    return str(path)


async def test_show_prints_a_table_or_json(tmp_path: Path) -> None:
    options = ("--policies", folder(tmp_path), "--at", "2026-06-01")
    code, table = await headrace("prices", "show", *options)
    json_code, text = await headrace(
        "prices", "show", *options, "--model", "unus*", "--format", "json"
    )

    assert (code, json_code) == (0, 0)
    assert "gpt-4o-mini" in table
    assert [line["model"] for line in orjson.loads(text)["prices"]] == ["unused"]


async def test_invalid_folder_has_a_location(tmp_path: Path) -> None:
    wrong = folder(tmp_path, GOOD.replace("upstream: openai", "upstream: opnai"))
    code, text = await headrace("prices", "show", "--policies", wrong)

    assert code == 1
    assert 'upstream "opnai" does not exist' in text
