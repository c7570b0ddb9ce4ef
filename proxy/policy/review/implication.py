"""Whether one condition holds wherever another does: how a rule that nothing reaches is found.

The answer is on the safe side: yes is proven from how the conditions are written, no may be a yes
that is not seen.
"""

from __future__ import annotations

from proxy.policy.decide.conditions import (
    All,
    Always,
    AtLeastOne,
    Both,
    Condition,
    Like,
    Not,
    Of,
    OfHeader,
    OfModel,
    OfTag,
    OneOf,
    Values,
)


def covers(wide: Condition, narrow: Condition) -> bool:
    """True if ``wide`` is proven to hold for every call that ``narrow`` holds for."""
    if isinstance(wide, Always) or wide == narrow:
        return True
    if isinstance(wide, All):
        return all(covers(part, narrow) for part in wide.parts)
    if isinstance(narrow, AtLeastOne):
        return all(covers(wide, part) for part in narrow.parts)
    if isinstance(narrow, All) and any(covers(wide, part) for part in narrow.parts):
        return True
    if isinstance(wide, AtLeastOne):
        return any(covers(part, narrow) for part in wide.parts)
    if isinstance(wide, Not) and isinstance(narrow, Not):
        return covers(narrow.part, wide.part)
    return _same_fact(wide, narrow)


def _same_fact(wide: Condition, narrow: Condition) -> bool:
    if isinstance(wide, Of) and isinstance(narrow, Of):
        return wide.index == narrow.index and _allows(wide.values, narrow.values)
    if isinstance(wide, OfModel) and isinstance(narrow, OfModel):
        return _allows(wide.values, narrow.values)
    for kind in (OfTag, OfHeader):
        if isinstance(wide, kind) and isinstance(narrow, kind):
            return wide.name == narrow.name and _allows(wide.values, narrow.values)
    return False


def _allows(wide: Values, narrow: Values) -> bool:
    """True if every value that ``narrow`` allows is one that ``wide`` allows."""
    if wide == narrow:
        return True
    if isinstance(wide, Both):
        return all(_allows(part, narrow) for part in wide.parts)
    if isinstance(narrow, Both):
        return any(_allows(wide, part) for part in narrow.parts)
    if isinstance(narrow, OneOf):
        allow = wide.allow()
        return all(allow(value) for value in narrow.values)
    return isinstance(wide, Like) and set(wide.pattern.text) == {"*"}
