"""Optional protocols of detectors: for partial matches in streams and for joined messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeGuard

from proxy.types.guard import Finding, PrefilterFunction


class PartialMatcher(Protocol):
    """Recognizes the beginning of a finding at the end of a text that is still incomplete.

    Called when the last character is white space, or a letter of a script without spaces.
    """

    @property
    def ends_in_partial_match(self) -> PrefilterFunction:
        """Return False only if no match is in a UTF-8 text or starts at its end."""

    def may_end_in_partial_match(self, text: str) -> bool:
        """Encode a text as UTF-8 and apply ``ends_in_partial_match``."""

    def may_contain_match(self, text: str) -> bool:
        """Return False only if the text certainly contains no match."""

    def find_partial_match(self, text: str, start: int) -> int:
        """Return the first position from ``start`` whose match may depend on later text.

        Return the length of the text if there is none.
        """


def get_partial_matcher(detector: object) -> PartialMatcher | None:
    """Return the partial matcher of a detector. Without one a stream holds back ``lookback``."""
    return getattr(detector, "partial_matcher", None)


class SplitValueChecker(Protocol):
    """A detector of values that may be adjacent: a match across messages may be two values."""

    def is_split_value(self, text: str, finding: Finding, ends: Sequence[tuple[int, int]]) -> bool:
        """Return True if a finding in joined messages is one value that was split.

        ``ends`` are pairs within the finding: the end of a message, and the start of the next.
        """


def is_split_value_checker(detector: object) -> TypeGuard[SplitValueChecker]:
    return hasattr(detector, "is_split_value")
