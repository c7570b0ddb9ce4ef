"""The table of prices that the package brings: it is in force where a folder brings none."""

from __future__ import annotations

import hashlib
import re
from datetime import date
from functools import cache
from pathlib import Path

from proxy.frozen import frozen
from proxy.policy import schema
from proxy.policy.files.source import Document, PolicyError
from proxy.policy.files.yaml_reader import read_file

FOLDER = Path(__file__).parent / "table"
FILE = "prices.yaml"
SECTIONS = ("prices", "price_table")


@frozen
class PackagedTable:
    """The sections of the table, and what tells it from that of another version."""

    sections: schema.PoliciesConfig
    digest: bytes


def completed(policies: schema.PoliciesConfig) -> schema.PoliciesConfig:
    """Return the policies of a folder that brings no prices with those of the package."""
    table = packaged().sections
    return policies.model_copy(update={name: getattr(table, name) for name in SECTIONS})


@cache
def digest() -> bytes:
    """Return what tells the table from that of another version, without reading what it says."""
    return hashlib.sha256(_content()).digest()


def _content() -> bytes:
    return (FOLDER / FILE).read_bytes()


@cache
def as_of() -> date:
    """Return the date of the table, without reading the rest of it."""
    [line] = re.findall(rb"^price_table: \{as_of: (.+)\}$", _content(), re.MULTILINE)
    return date.fromisoformat(line.decode())


@cache
def packaged() -> PackagedTable:
    """Return the table. It is read once, where it is first asked for: it changes with the package
    alone. Raises ``PolicyError`` where it cannot be read."""
    document = Document()
    read_file(FOLDER / FILE, FILE, document)
    if document.problems:
        raise PolicyError(document.problems)
    return PackagedTable(schema.PoliciesConfig.model_validate(document.data), digest())
