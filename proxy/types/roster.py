"""The names that a revision of the policies closes: only these may become labels of metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date

from proxy.types import Target
from proxy.types.limit import Limit


@dataclass(frozen=True, slots=True)
class Listed:
    """A deployment: every target that it or one of its rules may use, and what its calls meet.

    ``tags`` are the pairs that its calls carry unless the caller says more; ``guards`` are pairs of
    a stage and a name; ``scopes`` are the counters of its limits whose owner no caller chooses.
    """

    targets: tuple[Target, ...] = ()
    rules: tuple[str, ...] = ()
    guards: tuple[tuple[str, str], ...] = ()
    tags: frozenset[tuple[str, str]] = frozenset()
    limits: tuple[Limit, ...] = ()
    scopes: tuple[tuple[Limit, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Roster:
    """``tags`` gives the values of each tag, none for one whose values only a pattern bounds.

    ``prices_as_of`` is the day on which the table of prices was taken.
    """

    revision: str = ""
    keys: tuple[str, ...] = ()
    deployments: Mapping[str, Listed] = field(default_factory=dict)
    tags: Mapping[str, frozenset[str]] = field(default_factory=dict)
    prices_as_of: date | None = None
