"""A mapping of somebody else's configuration, read member by member: what nobody took is known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from proxy.words import few, word

MOST_LISTED = 10_000  # items of one list


class ConfigPart:
    """One mapping, and its ``place`` in the file, as ``model_list[0].litellm_params``."""

    def __init__(self, place: str, values: Any) -> None:
        self.place = place
        self._values: dict[str, Any] = (
            {str(name): value for name, value in values.items()} if isinstance(values, dict) else {}
        )
        self._taken: set[str] = set()

    def at(self, name: str) -> str:
        """Return the place of a member."""
        return f"{self.place}.{name}" if self.place else name

    def names(self) -> list[str]:
        """Return the names of all members, the first ten thousand."""
        return few(self._values, MOST_LISTED)

    def take(self, name: str) -> Any:
        """Return a member as it is, None where there is none: it is dealt with by the caller."""
        self._taken.add(name)
        return self._values.get(name)

    def text(self, name: str) -> str | None:
        """Take a member that is text or a number, as text; one of another kind is left."""
        value = self._values.get(name)
        if isinstance(value, bool) or not isinstance(value, (str, int, float)) or value == "":
            return None
        self._taken.add(name)
        return str(value)

    def number(self, name: str, *, or_zero: bool = False) -> float | None:
        """Take a member that is a number above 0, or 0 if allowed; another one is left."""
        try:
            value = float(self._values[name])
        except (KeyError, OverflowError, TypeError, ValueError):
            return None
        if isinstance(self._values[name], bool) or not 0 <= value < 1e12:
            return None
        if value == 0 and not or_zero:
            return None
        self._taken.add(name)
        return value

    def part(self, name: str) -> ConfigPart:
        """Take a mapping; one without members where there is none."""
        value = self._values.get(name)
        if isinstance(value, dict):
            self._taken.add(name)
        return ConfigPart(self.at(name), value)

    def parts(self, name: str) -> list[ConfigPart]:
        """Take a list of mappings, the first ten thousand; empty where there is none."""
        value = self._values.get(name)
        if not isinstance(value, list):
            return []
        self._taken.add(name)
        listed = enumerate(few(value, MOST_LISTED))
        return [ConfigPart(f"{self.at(name)}[{place}]", each) for place, each in listed]

    def left(self) -> Iterator[str]:
        """Yield the places of members that were not taken, but for those that say nothing."""
        for name, value in self._values.items():
            if name not in self._taken and value not in (None, "", [], {}):
                yield word(self.at(name), 200)
