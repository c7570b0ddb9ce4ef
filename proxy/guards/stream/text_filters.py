"""Filters of the texts of a stream. Those of rules are windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from proxy.guards.findings.mask import Replace, named
from proxy.guards.findings.tally import RuleTally
from proxy.guards.stream.arguments import ArgumentsWindow
from proxy.guards.stream.first_values import acting, says_more
from proxy.guards.stream.text_filter import TextFilter
from proxy.guards.stream.window import Window
from proxy.guards.text.walk import Text
from proxy.runtime.frozen import frozen


class TextFilters(Protocol):
    """Makes the filter of each text of a stream."""

    def concerns(self, text: Text) -> bool:
        """Return True if a text has a filter."""

    def acts(self, text: Text) -> bool:
        """Return True if findings in a text may be held back."""

    def says_more(self, text: Text) -> bool:
        """Return True if a repeated text has a finding that the text alone has not."""

    def ends(self, text: Text) -> bool:
        """Return True if a text ends with its choice, although more may follow."""

    def miss(self, text: Text) -> None:
        """Record that a text went on after its end, so that it was inspected in two."""

    def leave_unread(self, text: Text) -> None:
        """Record that the texts of several documents at one place were not inspected as one."""

    def text_filter(self, text: Text, *, arguments: bool, crowded: bool) -> TextFilter:
        """Return a new filter. `crowded`: there are as many filters as are allowed."""


@frozen
class RuleFilters:
    """Windows of rules."""

    tallies: Sequence[RuleTally]
    replace: Replace = named
    to_last: bool = False  # a text goes on after its choice has finished

    def concerns(self, text: Text) -> bool:
        for each in self.tallies:  # noqa: SIM110  # for each chunk, and a generator costs more
            if each.rule.applies(text.role, text.kind):
                return True
        return False

    def acts(self, text: Text) -> bool:
        return bool(acting(self.tallies, text))

    def says_more(self, text: Text) -> bool:
        return says_more(text.text, acting(self.tallies, text) or self._applying(text))

    def ends(self, text: Text) -> bool:
        return not self.to_last or self.acts(text)

    def miss(self, text: Text) -> None:
        for tally in self._applying(text):
            tally.fail("text_after_finish")

    def leave_unread(self, text: Text) -> None:
        for tally in self._applying(text):
            tally.opaque = True

    def _applying(self, text: Text) -> list[RuleTally]:
        return [each for each in self.tallies if each.rule.applies(text.role, text.kind)]

    def text_filter(self, text: Text, *, arguments: bool, crowded: bool) -> TextFilter:
        tallies = self._applying(text)
        if crowded:
            for tally in tallies:
                tally.fail("too_many_texts")
        if arguments:
            return ArgumentsWindow.under(tallies, self.replace)
        return Window(tallies, replace=self.replace)
