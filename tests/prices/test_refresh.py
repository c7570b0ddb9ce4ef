"""Renewing ``prices.yaml``: from the installed package, whole or not at all, history kept."""

from __future__ import annotations

import os
import re
from datetime import date
from pathlib import Path

import pytest

if not os.environ.get("CI"):
    pytest.importorskip("genai_prices")

from proxy.money.usage import find_listed
from proxy.policy.files.load import PRICE_TABLE, load
from proxy.policy.files.source import PolicyError
from proxy.prices import refresh
from tests.cli.test_init import headrace
from tests.for_each import for_each

TODAY = date(2026, 12, 24)
SHIPPED = PRICE_TABLE
MINI = "    gpt-4o-mini: {input: 0.15, cached_input: 0.075, output: 0.6, web_search: 10}\n"


def outdated(folder: Path) -> None:
    """The shipped table, as if one price had been another before."""
    text = SHIPPED.read_text()
    openai = text.index("  openai:\n")
    position = text.index(MINI, openai)
    old = MINI.replace("0.15", "0.3")
    (folder / refresh.FILE).write_text(text[:position] + old + text[position + len(MINI) :])


def test_a_folder_without_prices_gets_all_of_them_and_their_licence(tmp_path: Path) -> None:
    renewed = refresh.prepare_refresh(tmp_path, TODAY)
    refresh.write(tmp_path, renewed)

    loaded = load(tmp_path).policies
    assert loaded.price_table.as_of == TODAY
    assert find_listed(loaded.prices["openai"], "gpt-4o-mini") == "gpt-4o-mini"
    assert "MIT" in (tmp_path / refresh.LICENCE).read_text()
    assert refresh.prepare_refresh(tmp_path, date(2027, 1, 1)).is_current
    assert sorted(file.name for file in tmp_path.iterdir()) == [refresh.LICENCE, refresh.FILE]


def test_a_price_that_changes_gets_a_row_from_today_on(tmp_path: Path) -> None:
    outdated(tmp_path)

    renewed = refresh.prepare_refresh(tmp_path, TODAY)
    refresh.write(tmp_path, renewed)

    assert renewed.changes.changed == ("openai gpt-4o-mini",)
    rows = load(tmp_path).policies.prices["openai"]["gpt-4o-mini"]
    assert [(str(row.get("from")), row["input"]) for row in rows] == [
        ("2026-12-24", 0.15),
        ("None", 0.3),
    ]
    assert refresh.prepare_refresh(tmp_path, date(2027, 1, 1)).is_current


@for_each(
    ("text", "why"),
    [
        ("prices: {openai: {smol: {inptu: 1}}}\n", "inptu: unknown key"),
        ("prices: {openai: 5}\n", "must be a mapping of providers to models"),
        ("prices: {openai: {}}\ntags: {}\n", "does not belong in this file"),
        ("prices: {\n", "did not find expected node content"),
    ],
)
def test_a_file_that_it_cannot_keep_is_left_alone(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / refresh.FILE).write_text(text)

    with pytest.raises(PolicyError, match=re.escape(why)):
        refresh.prepare_refresh(tmp_path, TODAY)


async def test_the_command_renews_and_says_what_changes(tmp_path: Path) -> None:
    outdated(tmp_path)
    output, _ = await headrace("prices", "refresh", "--policies", str(tmp_path), "--check")
    code, text = await headrace("prices", "refresh", "--policies", str(tmp_path))
    second, nothing = await headrace("prices", "refresh", "--policies", str(tmp_path), "--check")

    assert (output, code, second) == (1, 0, 0)
    assert "openai gpt-4o-mini" in text
    assert nothing.strip() == "no changes"


@pytest.mark.parametrize("flags", [(), ("--check",)])
@pytest.mark.parametrize("text", ["prices: {openai: 5}\n", "prices: {\n", "tags: {}\n", b"\xff"])
async def test_a_file_that_cannot_be_read_is_no_file_that_would_change(
    text: str | bytes, flags: tuple[str, ...], tmp_path: Path
) -> None:
    written = text if isinstance(text, bytes) else text.encode()
    (tmp_path / refresh.FILE).write_bytes(written)

    code, output = await headrace("prices", "refresh", "--policies", str(tmp_path), *flags)

    assert code == 2
    assert "Traceback" not in output
    assert (tmp_path / refresh.FILE).read_bytes() == written


async def test_a_folder_that_is_not_there_is_no_folder_that_would_change(tmp_path: Path) -> None:
    nowhere = str(tmp_path / "nowhere")

    code, _ = await headrace("prices", "refresh", "--policies", nowhere, "--check")

    assert code == 2


async def test_the_help_says_how_it_exits() -> None:
    _, output = await headrace("prices", "refresh", "--help")

    assert all(f"{code} " in output.partition("Exits")[2] for code in (1, 2))
