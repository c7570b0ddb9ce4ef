"""Tables whose values are imported on first use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TypeVar

T = TypeVar("T")


class LazyImportTable(Mapping[str, T]):
    """Maps names to values at ``module:name``, imported on access.

    Access may raise ``ImportError``.

    ``companion`` is a module that is imported together with any value.
    """

    __slots__ = ("_beside", "_places")

    def __init__(self, places: Mapping[str, str], companion: str | None = None) -> None:
        self._places = places
        self._beside = companion

    def __getitem__(self, word: str) -> T:
        module, _, name = self._places[word].partition(":")
        if self._beside is not None:
            import_module(self._beside)
        value: T = getattr(import_module(module), name)
        return value

    def __contains__(self, word: object) -> bool:
        """Return True if the name is known, without an import."""
        return word in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
