"""Reads text files that guards name: lists of words and texts.

They are part of the policies: a change of a text file is a new revision.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from proxy.policy.files.yaml_reader import read_limited
from proxy.words import quoted

MOST_BYTES = 1024 * 1024
NAMES = frozenset({"texts_from", "words_from"})
"""Keys of guards that name such files. Their kinds are not imported to find them."""


def named(data: Any) -> Iterator[str]:
    """Yield the names of text files in data, at any depth."""
    if isinstance(data, dict):
        for key, value in data.items():
            if key in NAMES:
                names = value if isinstance(value, list) else [value]
                yield from (name for name in names if isinstance(name, str))
            else:
                yield from named(value)
    elif isinstance(data, list):
        for item in data:
            yield from named(item)


def read_texts(folder: Path, data: Any) -> dict[str, str | ValueError]:
    """Return the content of each named file, or its problem."""
    return {name: _read(folder, name) for name in sorted(set(named(data)))}


def _read(folder: Path, name: str) -> str | ValueError:
    inside = PurePosixPath(name)
    if inside.is_absolute() or ".." in inside.parts:
        return ValueError(f"{quoted(name)} must be a relative path inside the policy folder")
    try:
        raw = read_limited(folder / inside, MOST_BYTES)
    except OSError as error:
        return ValueError(f"file {quoted(name)} cannot be read: {error.strerror}")
    if len(raw) > MOST_BYTES:
        return ValueError(f"file {quoted(name)} is larger than {MOST_BYTES} bytes")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return ValueError(f"file {quoted(name)} is not UTF-8 text")
