"""One look at all texts of a call together, before any rule looks at each of them.

Nearly all texts are clean. A rule whose detector has nothing to find in their lines has nothing to
find in any of them: it has passed, and only the others look.
"""

from __future__ import annotations

from collections.abc import Sequence

from proxy.guardrails.findings.tally import Clock
from proxy.guardrails.text.normalize import View
from proxy.guardrails.text.one_reading import DISGUISES
from proxy.guardrails.text.walk import Text, Texts
from proxy.guardrails.text.weight import BEYOND_ASCII, EACH
from proxy.guardrails.whole.seams import joined_texts
from proxy.guardrails.whole.sheets import part_of
from proxy.types.guard import GuardResult, GuardRule, Verdict

Lines = tuple[bytes, bytes, bool]
"""Texts on lines of their own, and the same with their capitals made small; True for ASCII alone,
which is what the sieves of a rule take."""

_made = tuple.__new__  # of a ``GuardResult``: six times a call, and half as long as by its names

VERDICTS: tuple[Verdict, Verdict] = ("not_applicable", "passed")  # of no bytes, and of some


def glance(
    rules: Sequence[GuardRule], read: Texts, most: int, clock: Clock
) -> list[GuardResult | None]:
    """Return the results of the rules that find nothing; None for each that has to look, as all
    have at texts of more weight than ``most``."""
    count = len(read.texts)
    left = most - EACH * count
    if left < 0 or read.opaque or read.unread:
        return [None] * len(rules)
    texts = [text.text for text in read.texts]
    size = sum(map(len, texts))
    if size > left:
        return [None] * len(rules)
    try:
        joined = () if read.apart else [each.text.text for each in joined_texts(read.texts)]
        lines = "\n".join([*texts, *joined] if joined else texts)
        weight = len(lines) if joined else size
        if weight > left:
            return [None] * len(rules)
        raw, is_plain = lines.encode(), lines.isascii()
        if is_plain and DISGUISES.match(raw) == DISGUISES.nothing:
            return _results(rules, (raw, raw.lower(), True), read.texts, size, clock)
        if BEYOND_ASCII * weight > left or not _can_tell(rules):
            return [None] * len(rules)  # rules may have to read them once more
        if not is_plain:
            size = len("".join(texts).encode())
        return _results(rules, _readings(read), read.texts, size, clock)
    except Exception:  # noqa: BLE001  # a guard that breaks must not let texts pass: all look
        return [None] * len(rules)


def _can_tell(rules: Sequence[GuardRule]) -> bool:
    return any(rule.may_find is not None for rule in rules)


def _results(
    rules: Sequence[GuardRule],
    lines: Lines,
    texts: Sequence[Text],
    total: int,
    clock: Clock,
) -> list[GuardResult | None]:
    """Return what each rule's own sets of patterns say of all lines; ``total`` are the bytes of the
    texts. Raise whatever a detector raises."""
    cased, small, is_plain = lines
    results: list[GuardResult | None] = []
    began = clock()
    for rule in rules:
        result = None
        if rule.may_find is not None:
            shown, found = cased if rule.cased else small, False
            if is_plain and rule.sieves:
                for match, nothing in rule.sieves:
                    if match(shown) != nothing:
                        found = rule.may_find(shown)
                        break
            else:
                found = rule.may_find(shown)
            now = clock()
            spent, began = now - began, now
            if not found and spent <= rule.deadline_s:
                size, fields = total, len(texts)
                if rule.roles_left_out:
                    size, fields = _seen(rule, texts, total)
                result = _made(
                    GuardResult,
                    (
                        rule.name,
                        VERDICTS[size > 0],
                        rule.shadow,
                        {},
                        0.0,
                        size,
                        fields,
                        spent,
                        None,
                        rule.kind,
                        rule.action,
                        rule.detections,
                    ),
                )
        results += (result,)
    return results


def _seen(rule: GuardRule, texts: Sequence[Text], total: int) -> tuple[int, int]:
    """Return how many bytes of ``total``, and how many texts, a rule looks at that leaves out some
    roles: mostly one text or none."""
    left_out = [text.text for text in texts if text.role in rule.roles_left_out]
    if not left_out:
        return total, len(texts)
    return total - len("".join(left_out).encode()), len(texts) - len(left_out)


def _readings(read: Texts) -> Lines:
    """Return all readings of the texts, and of those that are read as one, each on lines of its
    own. Raise ``ValueError`` where rules see more of a text than those: of a long one, of one with
    half of a pair."""
    views: list[View] = []
    for place, text in enumerate(read.texts):
        part = part_of(place, text)
        if part.long:
            raise ValueError("a long text is read piece by piece")
        views += part.views
    if not read.apart:
        for joined in joined_texts(read.texts):
            views += joined.views()
    cased = "\n".join([view.cased for view in views])
    folded = "\n".join([view.folded for view in views])
    return cased.encode(), folded.encode(), False
