"""Refreshes ``prices.yaml`` in a policy folder from the package genai-prices."""

from __future__ import annotations

import os
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from proxy.policy import schema
from proxy.policy.files.source import Document, KeyPath
from proxy.policy.files.validation import report_errors
from proxy.policy.files.yaml_reader import read_file
from proxy.prices.rows import Rows, Table, TableChanges, format_table_lines, make_row, merge_tables
from proxy.runtime.frozen import frozen

PRICES_FILE, LICENSE_FILE = "prices.yaml", "prices.LICENSE"
MISSING_PACKAGE_HINT = (
    "the package genai-prices is not installed. Run: pip install 'headrace[prices]'"
)
FILE_HEADER = """\
# yaml-language-server: $schema=schema.json
# Prices in USD per million tokens, by provider (an upstream's `provider:`) and model.
# Written by `headrace prices refresh`: do not edit. Set your own prices at the target.
# From genai-prices {version} as of {as_of}, under the MIT licence: see prices.LICENSE.
# `name*` matches all models with this prefix. The latest row whose `from` has passed applies, and
# before that the row without `from`. Prices are for the standard service tier, and for the most
# expensive hour of prices that vary. Models that are also charged by other units (pictures,
# minutes, requests) or are listed as free are omitted: their price is unknown, not 0.
price_table: {{as_of: {as_of}}}
"""


class PackageMissing(Exception):
    """The package genai-prices is not installed. The message names the command to install it."""


@frozen
class PriceRefresh:
    """The new text of the price file, and its changes.

    ``is_current`` is True if the file has that text already.
    """

    text: str
    changes: TableChanges
    licence: str
    is_current: bool


def prepare_refresh(folder: Path, today: date) -> PriceRefresh:
    """Return the new prices of a folder without writing them.

    Raise ``PackageMissing``, or ``PolicyError`` if the present file cannot be read.
    """
    try:
        from proxy.prices import source  # noqa: PLC0415  # an extra
    except ImportError:
        raise PackageMissing(MISSING_PACKAGE_HINT) from None
    file = folder / PRICES_FILE
    old_text = file.read_text("utf-8", "replace") if file.exists() else ""  # read strictly below
    old_table, as_of = _read_table(file) if old_text else ({}, None)
    table, changes = merge_tables(old_table, source.build_table(), today)
    lines, version = "\n".join(format_table_lines(table)), metadata.version(source.PACKAGE_NAME)
    same_text = f"{FILE_HEADER.format(version=version, as_of=as_of)}{lines}\n"
    is_current = as_of is not None and same_text == old_text
    new_text = f"{FILE_HEADER.format(version=version, as_of=today)}{lines}\n"
    text = old_text if is_current else new_text
    return PriceRefresh(text, changes, source.read_licence(), is_current=is_current)


def write_refresh(folder: Path, refresh: PriceRefresh) -> None:
    """Replace the file and its licence, each atomically. Raise ``OSError``."""
    for name, text in ((LICENSE_FILE, refresh.licence), (PRICES_FILE, refresh.text)):
        new_file = folder / f".{name}.new"
        new_file.write_text(text, "utf-8")
        os.replace(new_file, folder / name)


def _read_table(file: Path) -> tuple[Table, date | None]:
    document = Document()
    read_file(file, file.name, document)
    for name in document.data:
        if name not in ("prices", "price_table"):
            message = "does not belong in this file, because `headrace prices refresh` overwrites "
            document.report((name,), f"{message}it. Move it to another file.")
    prices = document.data.get("prices")
    if not isinstance(prices, dict) or not all(isinstance(p, dict) for p in prices.values()):
        document.report(("prices",), "must be a mapping of providers to models and their prices")
        prices = {}
    table = {
        provider: {
            name: _parse_rows(document, ("prices", provider, name), rows)
            for name, rows in names.items()
        }
        for provider, names in prices.items()
    }
    as_of = schema.PriceTableConfig.model_validate(document.data.get("price_table", {})).as_of
    document.raise_problems()
    return table, as_of


def _parse_rows(document: Document, path: KeyPath, value: Any) -> Rows:
    rows = []
    for index, row in enumerate(schema.iter_price_rows(value)):
        if isinstance(row, ValidationError):
            report_errors(document, row, schema.PriceConfig, (*path, index))
        else:
            rows.append(make_row(row))
    return tuple(sorted(rows, key=lambda row: row.since or date.min))
