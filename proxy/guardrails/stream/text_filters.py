"""What the texts of a stream go through: of rules, a window for each text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from proxy.frozen import frozen
from proxy.guardrails.findings.mask import Replace, named
from proxy.guardrails.findings.tally import RuleTally
from proxy.guardrails.stream.arguments import ArgumentsWindow
from proxy.guardrails.stream.first_values import acting, says_more
from proxy.guardrails.stream.text_filter import TextFilter
from proxy.guardrails.stream.window import Window
from proxy.guardrails.text.walk import Text


class TextFilters(Protocol):
    """What the texts of a stream go through, each through one of its own."""

    def concerns(self, text: Text) -> bool:
        """True if a text goes through a filter at all."""

    def acts(self, text: Text) -> bool:
        """True if what is found in a text may be kept back."""

    def says_more(self, text: Text) -> bool:
        """True if a text again and again says what is kept back, and once does not."""

    def ends(self, text: Text) -> bool:
        """True if a text ends where its choice does, though more may come."""

    def miss(self, text: Text) -> None:
        """Note that a text that has ended goes on, and is read in two."""

    def leave_unread(self, text: Text) -> None:
        """Note that what several chunks say in the place of a text is not read together."""

    def text_filter(self, text: Text, *, arguments: bool, crowded: bool) -> TextFilter:
        """Return a new filter; ``crowded`` if as many texts are held as may be."""


@frozen
class RuleFilters:
    """Windows of rules."""

    tallies: Sequence[RuleTally]
    replace: Replace = named
    to_last: bool = False  # all that is shown of a text is read as one, whether it has ended or not

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
