"""Files of plain text beside the policies, which guards name: words, and texts to look for.

They are part of the policies: a change of one is noticed, and makes another revision.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from proxy.policy.files.yaml_reader import read_limited
from proxy.words import quoted

MOST_BYTES = 1024 * 1024
NAMES = frozenset({"texts_from", "words_from"})
"""The keys that name such files: those of kinds of guards, none of which is imported to tell."""


def named(data: Any) -> Iterator[str]:
    """Yield the names of files that plain data holds, at any depth."""
    if isinstance(data, dict):
        for key, value in data.items():
            if key in NAMES:
                names = value if isinstance(value, list) else [value]
                yield from (each for each in names if isinstance(each, str))
            else:
                yield from named(value)
    elif isinstance(data, list):
        for each in data:
            yield from named(each)


def read_texts(folder: Path, data: Any) -> dict[str, str | ValueError]:
    """Return the content of each file that is named, or what is wrong with it."""
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
