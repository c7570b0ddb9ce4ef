"""Optional parts of detectors: for texts that continue, and for texts that meet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeGuard

from proxy.types.guard import Finding, MayFind


class PartialMatcher(Protocol):
    """What of a text that goes on may still be part of a finding. It is asked where the last
    character of what has come is white space, be it a space or the end of a line, or a letter of a
    script that puts no space between words."""

    @property
    def has_words(self) -> bool:
        """False if nothing is to be found, nor begins, in words of letters of ASCII alone."""

    @property
    def is_open(self) -> MayFind:
        """Return what tells of a text, as ``encoded`` returns it, whether there may be anything to
        find, or something that begins before its last character may yet become a finding. That is
        white space, of which this knows alone."""

    def is_open_at(self, text: str) -> bool:
        """Return the same of any text."""

    def is_found(self, data: bytes) -> bool:
        """False only if there is nothing to find in such a text as it is."""

    def encoded(self, text: str) -> bytes:
        """Return a text as it is asked about; one of ASCII is its own bytes."""

    def begins(self, text: str, since: int) -> int:
        """Return the first place, from ``since`` on, of what may yet become a finding, or another
        one than it is now, by what follows; the end of the text where there is nothing."""


class HasPartialMatcher(Protocol):
    """A detector that can tell what of a text it has to hold. ``hold`` is None where one as it is
    made can not: then a stream holds back its reach."""

    @property
    def hold(self) -> PartialMatcher | None: ...


def partial_matcher_of(detector: object) -> PartialMatcher | None:
    """Return what tells how much of a stream a detector has to hold, None where nothing does."""
    return detector.hold if _is_holding(detector) else None


def _is_holding(detector: object) -> TypeGuard[HasPartialMatcher]:
    return hasattr(detector, "hold")


class Cuttable(Protocol):
    """A detector of values that may as well stand beside each other: what it finds over the end of
    a message may be two of them. What one message has does not go on in the next."""

    def is_cut(self, text: str, found: Finding, ends: Sequence[tuple[int, int]]) -> bool:
        """True if a finding in messages read as one is a value that was cut; ``ends`` are where,
        within it, one message ends and the next begins."""


def is_cuttable(detector: object) -> TypeGuard[Cuttable]:
    return hasattr(detector, "is_cut")
