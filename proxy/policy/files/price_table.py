"""The price table of the package, which is used for folders without one."""

from __future__ import annotations

import hashlib
import re
from datetime import date
from functools import cache
from pathlib import Path

from proxy.policy import schema
from proxy.policy.files.source import Document, PolicyError
from proxy.policy.files.yaml_reader import read_file

FOLDER = Path(__file__).parent / "table"
FILE = "prices.yaml"
SECTIONS = ("prices", "price_table")


def completed(policies: schema.PoliciesConfig) -> schema.PoliciesConfig:
    """Return policies without prices, with those of the package."""
    table = packaged()
    return policies.model_copy(update={name: getattr(table, name) for name in SECTIONS})


@cache
def digest() -> bytes:
    """Return the digest of the table without parsing it."""
    return hashlib.sha256(_content()).digest()


def _content() -> bytes:
    return (FOLDER / FILE).read_bytes()


@cache
def as_of() -> date:
    """Return the date of the table without parsing the rest."""
    [line] = re.findall(rb"^price_table: \{as_of: (.+)\}$", _content(), re.MULTILINE)
    return date.fromisoformat(line.decode())


@cache
def packaged() -> schema.PoliciesConfig:
    """Return the table. Raise ``PolicyError`` if it cannot be read."""
    document = Document()
    read_file(FOLDER / FILE, FILE, document)
    if document.problems:
        raise PolicyError(document.problems)
    return schema.PoliciesConfig.model_validate(document.data)
