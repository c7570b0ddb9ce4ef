"""Filters the arguments of a tool call: JSON in a string, which is still JSON after masking.

Each string is inspected with its escapes. A word outside of strings, such as a number, becomes a
string when it is masked. Arguments that do not begin like an object, an array or a string are
inspected as plain text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from proxy.guards.findings import RuleTally
from proxy.guards.stream.text_filter import ReleasedText, TextFilter
from proxy.guards.stream.window import Window
from proxy.guards.text import json_strings
from proxy.guards.text.documents import TEXT_WEIGHT, estimate_weight
from proxy.guards.text.json_strings import ArgumentSplitter, Kind


def estimate_splitting_weight(arguments: str) -> int:
    """Return the weight that splitting arguments into texts adds to that of their characters.

    Each string and each word outside of strings is a text. Their number is approximate.
    """
    return TEXT_WEIGHT * (arguments.count('"') + arguments.count(","))


class ArgumentsFilter:
    """Inspects the arguments of one tool call.

    One filter reads the strings of the JSON, another the rest.
    """

    def __init__(
        self, string: TextFilter, plain: TextFilter, tallies: Sequence[RuleTally] = ()
    ) -> None:
        self._string, self._plain, self._tallies = string, plain, tallies
        self._splitter, self._bare_word = ArgumentSplitter(), ""

    @classmethod
    def for_rules(cls, tallies: Sequence[RuleTally]) -> Self:
        """Return a filter that applies ``tallies`` to all values."""
        return cls(Window(tallies, in_json=True), Window(tallies), tallies)

    @property
    def lookback(self) -> int:
        return self._plain.lookback

    def estimate_feed_work(self, text: str) -> int:
        return estimate_splitting_weight(text) + max(
            self._string.estimate_feed_work(text), self._plain.estimate_feed_work(text)
        )

    def estimate_close_work(self) -> int:
        ends = self._string.estimate_close_work() + self._plain.estimate_close_work()
        return ends + estimate_weight(self._bare_word)

    def feed(self, text: str) -> list[ReleasedText]:
        released: list[ReleasedText] = []
        for kind, part in self._splitter.feed(text):
            if kind == "frame":
                released.append(ReleasedText(part, len(part), is_changed=False))
            else:
                released += self._feed_part(kind, part)
        return released

    def _feed_part(self, kind: Kind, part: str) -> list[ReleasedText]:
        if kind == "string":
            return self._string.feed(part)
        if kind == "plain":
            return self._plain.feed(part)
        self._bare_word += part
        if kind == "end" or len(self._bare_word) > json_strings.MAX_BARE_CHARS:
            pieces = self._close_value()
            for tally in self._tallies:
                if tally.fields > tally.max_texts and tally.error is None:
                    tally.record_failure("too_many_texts")
            return pieces
        return []

    def flush(self) -> list[ReleasedText]:
        return self.close()

    def close(self) -> list[ReleasedText]:
        self._splitter = ArgumentSplitter()
        return [*self._close_value(), *self._plain.close()]

    def _close_value(self) -> list[ReleasedText]:
        if not self._bare_word:
            return self._string.close()
        bare, self._bare_word = self._bare_word, ""
        if bare in json_strings.JSON_LITERALS:
            return [ReleasedText(bare, len(bare), is_changed=False)]
        pieces = [*self._plain.feed(bare), *self._plain.close()]
        if not any(piece.is_changed for piece in pieces):
            return pieces
        text = "".join(piece.text for piece in pieces)
        return [ReleasedText(json_strings.quote_if_bare("bare", text), len(bare), is_changed=True)]
