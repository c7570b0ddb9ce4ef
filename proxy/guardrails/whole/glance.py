"""One look at all texts of a call together, before any rule looks at each of them.

Nearly all texts are clean. A rule whose detector has nothing to find in their lines has nothing to
find in any of them: it has passed, and only the others look.
"""

from __future__ import annotations

from collections.abc import Sequence

from proxy.guardrails.findings.tally import Clock
from proxy.guardrails.text.normalize import has_one_reading
from proxy.guardrails.text.walk import Text, Texts
from proxy.guardrails.text.weight import EACH
from proxy.guardrails.whole.joined_parts import joined_parts
from proxy.types.guard import GuardResult, GuardRule, passed


def glance(
    rules: Sequence[GuardRule], read: Texts, most: int, clock: Clock
) -> list[GuardResult | None]:
    """Return the results of the rules that find nothing; None for each that has to look, as all
    have at texts of more weight than ``most``, or that read in more than one way."""
    if EACH * len(read.texts) > most or read.opaque or read.unread:
        return [None] * len(rules)
    texts = [text.text for text in read.texts]
    size = sum(map(len, texts))
    lines = _lines(texts, read) if size + EACH * len(texts) <= most else None
    if lines is None:
        return [None] * len(rules)
    try:
        return _results(rules, lines, read.texts, (size, len(texts)), clock)
    except Exception:  # noqa: BLE001  # a guard that breaks must not let texts pass: all look
        return [None] * len(rules)


def _results(
    rules: Sequence[GuardRule],
    lines: bytes,
    texts: Sequence[Text],
    read: tuple[int, int],
    clock: Clock,
) -> list[GuardResult | None]:
    """Return what each rule's own set of patterns says of all lines; ``read`` are the bytes and
    the texts. Raise whatever a detector raises."""
    small = lines.lower()
    results: list[GuardResult | None] = []
    began = clock()
    for rule in rules:
        result = None
        if rule.may_find is not None:
            found = rule.may_find(lines if rule.cased else small)
            now = clock()
            if not found and now - began <= rule.deadline_s:
                seen = _seen(rule, texts) if rule.roles_left_out else read
                result = passed(rule, *seen, now - began)
            began = now
        results.append(result)
    return results


def _seen(rule: GuardRule, texts: Sequence[Text]) -> tuple[int, int]:
    """Return the bytes and the texts that a rule looks at which leaves out some roles."""
    seen = [len(text.text) for text in texts if text.role not in rule.roles_left_out]
    return sum(seen), len(seen)


def _lines(texts: list[str], read: Texts) -> bytes | None:
    """Return the texts, and those that are read as one, each on lines of its own; None unless each
    of them is ASCII without a disguise."""
    every = texts
    if not read.apart:
        every = [*texts, *(joined.text.text for joined in joined_parts(read.texts))]
    lines = "\n".join(every)
    if not lines.isascii():
        return None
    raw = lines.encode()
    return raw if has_one_reading(raw) else None
