"""Atomic refresh of ``prices.yaml`` from the installed package."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path

import pytest

if not os.environ.get("CI"):
    pytest.importorskip("genai_prices")

from proxy.money.usage import find_exact_or_wildcard_name
from proxy.policy.files.load import PRICE_TABLE, load_policies
from proxy.prices import refresh
from tests.cli.test_init import headrace
from tests.for_each import for_each

TODAY = date(2026, 12, 24)
SHIPPED = PRICE_TABLE
MINI = "    gpt-4o-mini: {input: 0.15, cached_input: 0.075, output: 0.6, web_search: 10}\n"


def write_outdated(folder: Path) -> None:
    """Write the shipped table with one other price."""
    text = SHIPPED.read_text()
    openai = text.index("  openai:\n")
    position = text.index(MINI, openai)
    old = MINI.replace("0.15", "0.3")
    (folder / refresh.PRICES_FILE).write_text(text[:position] + old + text[position + len(MINI) :])


def test_new_folder_gets_prices_and_license(tmp_path: Path) -> None:
    renewed = refresh.prepare_refresh(tmp_path, TODAY)
    refresh.write_refresh(tmp_path, renewed)

    loaded = load_policies(tmp_path).policies
    assert loaded.price_table.as_of == TODAY
    assert find_exact_or_wildcard_name(loaded.prices["openai"], "gpt-4o-mini") == "gpt-4o-mini"
    assert "MIT" in (tmp_path / refresh.LICENSE_FILE).read_text()
    assert refresh.prepare_refresh(tmp_path, date(2027, 1, 1)).is_current
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        refresh.LICENSE_FILE,
        refresh.PRICES_FILE,
    ]


def test_changed_price_gets_a_row(tmp_path: Path) -> None:
    write_outdated(tmp_path)

    renewed = refresh.prepare_refresh(tmp_path, TODAY)
    refresh.write_refresh(tmp_path, renewed)

    assert renewed.changes["openai gpt-4o-mini"] == "changed"
    rows = load_policies(tmp_path).policies.prices["openai"]["gpt-4o-mini"]
    assert [(str(row.get("from")), row["input"]) for row in rows] == [
        ("2026-12-24", 0.15),
        ("None", 0.3),
    ]
    assert refresh.prepare_refresh(tmp_path, date(2027, 1, 1)).is_current


async def test_command_refreshes_and_reports(tmp_path: Path) -> None:
    write_outdated(tmp_path)
    output, _ = await headrace("prices", "refresh", "--policies", str(tmp_path), "--check")
    code, text = await headrace("prices", "refresh", "--policies", str(tmp_path))
    second, nothing = await headrace("prices", "refresh", "--policies", str(tmp_path), "--check")

    assert (output, code, second) == (1, 0, 0)
    assert "openai gpt-4o-mini" in text
    assert nothing.strip() == "no changes"


@pytest.mark.parametrize("flags", [(), ("--check",)])
@for_each(
    ("written", "reason"),
    [
        (b"prices: {openai: {smol: {inptu: 1}}}\n", "inptu: unknown key"),
        (b"prices: {openai: 5}\n", "must be a mapping of providers to models"),
        (b"prices: {openai: {}}\ntags: {}\n", "does not belong in this file"),
        (b"prices: {\n", "did not find expected node content"),
        (b"tags: {}\n", "does not belong in this file"),
        (b"\xff", "UTF-8"),
    ],
)
async def test_unknown_file_is_not_overwritten(
    written: bytes, reason: str, flags: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / refresh.PRICES_FILE).write_bytes(written)

    code, output = await headrace("prices", "refresh", "--policies", str(tmp_path), *flags)

    assert code == 2
    assert reason in output
    assert "Traceback" not in output
    assert (tmp_path / refresh.PRICES_FILE).read_bytes() == written


async def test_missing_folder_is_an_error(tmp_path: Path) -> None:
    folder = str(tmp_path / "missing")

    code, _ = await headrace("prices", "refresh", "--policies", folder, "--check")
    _, usage = await headrace("prices", "refresh", "--help")

    assert code == 2
    assert all(f"{code} " in usage.partition("Exits")[2] for code in (1, 2))
