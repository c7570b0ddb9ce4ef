"""Refreshes ``prices.yaml`` in a policy folder from the package genai-prices."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from proxy.policy import schema
from proxy.policy.files.load import note
from proxy.policy.files.source import Document, KeyPath, PolicyError
from proxy.policy.files.yaml_reader import read_file
from proxy.prices.rows import Rows, Table, TableChanges, merged, row_of, written
from proxy.runtime.frozen import frozen

FILE, LICENCE = "prices.yaml", "prices.LICENSE"
HINT = "the package genai-prices is not installed. Run: pip install 'headrace[prices]'"
HEADER = """\
# yaml-language-server: $schema=schema.json
# Prices in USD per million tokens, by provider (an upstream's `provider:`) and model.
# Written by `headrace prices refresh`: do not edit, say a price of your own at the target instead.
# From genai-prices {version} as of {as_of}, under the MIT licence: see prices.LICENSE.
# `name*` stands for all models that begin so. Of dated rows the latest that has begun counts; a row
# without `from` counts before them. These are the prices of the standard service tier; where they
# change with the hour, those of the dearest hour. What is also charged by other measures (pictures,
# minutes, requests) or said to be free is not here: its price is unknown, not 0.
price_table: {{as_of: {as_of}}}
"""


class Unavailable(Exception):
    """The package genai-prices is not installed. The message names the command to install it."""


@frozen
class Renewal:
    """New text of the file, its changes, and True as ``fresh`` if the file has that text."""

    text: str
    changes: TableChanges
    licence: str
    fresh: bool


def renewal(folder: Path, today: date) -> Renewal:
    """Return the new prices of a folder without writing them.

    Raises ``Unavailable``, and ``PolicyError`` if the present file cannot be read.
    """
    try:
        from proxy.prices import source  # noqa: PLC0415  # an extra
    except ImportError:
        raise Unavailable(HINT) from None
    file = folder / FILE
    before = file.read_text("utf-8", "replace") if file.exists() else ""  # read strictly below
    old, as_of = _read(file) if before else ({}, None)
    table, changes = merged(old, source.table(), today)
    same = _text(table, source.version(), as_of) if as_of else ""
    if before and same == before:
        return Renewal(same, changes, source.licence(), fresh=True)
    return Renewal(_text(table, source.version(), today), changes, source.licence(), fresh=False)


def write(folder: Path, renewed: Renewal) -> None:
    """Replace the file and its licence, each atomically. Raises ``OSError``."""
    for name, text in ((LICENCE, renewed.licence), (FILE, renewed.text)):
        fresh = folder / f".{name}.new"
        fresh.write_text(text, "utf-8")
        os.replace(fresh, folder / name)


def _text(table: Table, version: str, as_of: date) -> str:
    lines = "\n".join(written(table))
    return f"{HEADER.format(version=version, as_of=as_of)}{lines}\n"


def _read(file: Path) -> tuple[Table, date | None]:
    document = Document()
    read_file(file, file.name, document)
    for name in document.data:
        if name not in ("prices", "price_table"):
            document.complain(
                (name,),
                "does not belong in this file, because `headrace prices refresh` overwrites it. "
                "Move it to another file.",
            )
    table = {
        provider: {
            name: _rows(document, ("prices", provider, name), rows) for name, rows in names.items()
        }
        for provider, names in _mappings(document).items()
    }
    as_of = schema.PriceTable.model_validate(document.data.get("price_table", {})).as_of
    if document.problems:
        raise PolicyError(document.problems)
    return table, as_of


def _mappings(document: Document) -> Mapping[str, Mapping[str, Any]]:
    prices = document.data.get("prices")
    if not isinstance(prices, dict) or not all(isinstance(each, dict) for each in prices.values()):
        document.complain(("prices",), "must be a mapping of providers to models and their prices")
        return {}
    return prices


def _rows(document: Document, path: KeyPath, written: Any) -> Rows:
    rows = []
    for index, each in enumerate(written if isinstance(written, list) else [written]):
        try:
            rows.append(row_of(schema.PriceConfig.model_validate(each)))
        except ValidationError as error:
            note(document, error, schema.PriceConfig, (*path, index))
    return tuple(sorted(rows, key=lambda row: row.since or date.min))
