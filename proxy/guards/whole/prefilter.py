"""Prefilters all texts of a call together, before any rule inspects each of them.

Nearly all texts are clean. A rule whose detector finds nothing in the lines of all texts passes;
only the other rules inspect the texts.
"""

from __future__ import annotations

from collections.abc import Sequence

from proxy.guards.findings import Clock
from proxy.guards.text.disguises import has_no_disguise
from proxy.guards.text.documents import NON_ASCII_WEIGHT, TEXT_WEIGHT
from proxy.guards.text.normalize import View
from proxy.guards.text.walk import Text, Texts
from proxy.guards.whole.joined_parts import iter_joined_texts
from proxy.guards.whole.text_batches import build_text_views
from proxy.types.guard import GuardResult, GuardRule, Verdict

Lines = tuple[bytes, bytes]
"""Texts on separate lines, and the same in lower case."""

_tuple = tuple.__new__  # builds a ``GuardResult`` in half the time, six times a call

SKIPPED_VERDICTS: tuple[Verdict, Verdict] = (
    "not_applicable",
    "passed",
)  # for texts without and with bytes


def prefilter_rules(
    rules: Sequence[GuardRule], walked_texts: Texts, max_weight: int, clock: Clock
) -> Sequence[GuardResult | None]:
    """Return the results of rules without findings, None for rules that must inspect the texts.

    If the texts weigh more than ``max_weight``, all rules must inspect them.
    """
    all_rules: list[GuardResult | None] = [None] * len(rules)
    remaining = max_weight - TEXT_WEIGHT * len(walked_texts.texts)
    if remaining < 0 or walked_texts.opaque or walked_texts.incomplete_reason:
        return all_rules
    texts = [text.text for text in walked_texts.texts]
    size = sum(map(len, texts))
    if size > remaining:
        return all_rules
    try:
        joined_texts = (
            () if walked_texts.has_no_joined_texts else iter_joined_texts(walked_texts.texts)
        )
        joined = [joined_text.text.text for joined_text in joined_texts]
        lines = "\n".join([*texts, *joined] if joined else texts)
        weight = len(lines) if joined else size
        if weight > remaining:
            return all_rules
        raw, is_plain = lines.encode(), lines.isascii()
        if is_plain and has_no_disguise(raw):
            return _prefilter_lines(rules, (raw, raw.lower()), walked_texts.texts, size, clock)
        if NON_ASCII_WEIGHT * weight > remaining or all(rule.prefilter is None for rule in rules):
            return all_rules  # the rules may need more readings of the texts
        if not is_plain:
            size = len("".join(texts).encode())
        return _prefilter_lines(
            rules, _encode_readings(walked_texts), walked_texts.texts, size, clock
        )
    except Exception:  # noqa: BLE001  # a broken guard must not pass texts
        return all_rules


def _prefilter_lines(
    rules: Sequence[GuardRule],
    lines: Lines,
    texts: Sequence[Text],
    total_bytes: int,
    clock: Clock,
) -> list[GuardResult | None]:
    """Return the results of rules whose prefilter matches no line, None for other rules.

    The texts have ``total_bytes`` bytes. Raise any error of a detector.
    """
    cased, lower = lines
    results: list[GuardResult | None] = []
    started_at = clock()
    for rule in rules:
        result = None
        if rule.prefilter is not None:
            has_match = rule.prefilter(cased if rule.cased else lower)
            now = clock()
            cpu_s, started_at = now - started_at, now
            if not has_match and cpu_s <= rule.deadline_s:
                size, fields = total_bytes, len(texts)
                if rule.excluded_roles:
                    skipped = [text.text for text in texts if text.role in rule.excluded_roles]
                    size -= len("".join(skipped).encode())
                    fields -= len(skipped)
                verdict = SKIPPED_VERDICTS[size > 0]
                result = _tuple(
                    GuardResult,
                    (
                        rule.name, verdict, rule.shadow, {}, 0.0, size, fields, cpu_s, None,
                        rule.kind, rule.action, rule.detections,
                    ),
                )  # fmt: skip
        results += (result,)
    return results


def _encode_readings(walked_texts: Texts) -> Lines:
    """Return all readings of the texts and of the joined texts, each on separate lines.

    Raise ``ValueError`` for a long text, which rules read in pieces, and for a lone surrogate,
    which has no UTF-8.
    """
    views: list[View] = []
    for place, text in enumerate(walked_texts.texts):
        part = build_text_views(place, text)
        if part.is_long:
            raise ValueError
        views += part.views
    if not walked_texts.has_no_joined_texts:
        for joined in iter_joined_texts(walked_texts.texts):
            views += joined.build_views()
    cased = "\n".join([view.cased for view in views])
    folded = "\n".join([view.folded for view in views])
    return cased.encode(), folded.encode()
