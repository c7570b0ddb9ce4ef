"""Masks for what was found in a call's texts, and the way back in its answer.

Values live in one ``Masks``, which lives as long as its call: they are never shown, logged or
shared. A stream may be cut anywhere, also within a placeholder.
"""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Callable, Iterable, Mapping

from proxy.guardrails.overlaps import apart
from proxy.types.guard import Finding

NONCE = re.compile("[0-9a-z]{3,32}")
NOT_IN_LABEL = re.compile("[^A-Z0-9]+")


class Masks:
    """Placeholders like ``[[EMAIL_1_x7f]]``, of one call: the same value has the same one.

    ``nonce`` is drawn anew for each call, so that no text can name a placeholder beforehand; one
    that does so by chance is masked as a whole, and comes back as it was. Raises ValueError for a
    nonce that is not of at least three letters and digits.
    """

    __slots__ = ("_counts", "_forged", "_nonce", "_placeholders", "_values")

    def __init__(self, nonce: str) -> None:
        if not NONCE.fullmatch(nonce):
            raise ValueError("a nonce is of 3 to 32 lower-case letters and digits")
        self._nonce = nonce
        self._forged = re.compile(rf"\[\[[A-Z0-9_]+_{nonce}\]\]")
        self._counts: dict[str, int] = {}
        self._placeholders: dict[tuple[str, str], str] = {}
        self._values: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Masks({len(self)})"

    def mask(self, text: str, findings: Iterable[Finding]) -> str:
        """Put placeholders for the findings, which may be unsorted and overlap."""
        forged = [Finding(*each.span(), "text") for each in self._forged.finditer(text)]
        return _replaced(text, [*findings, *forged], self._placeholder)

    def unmask(self, text: str) -> str:
        """Put back the values into a whole text."""
        return self._restored(text, self._values)

    def unmasker(self) -> Unmasker:
        """Put back the values known so far into a stream of plain text."""
        return Unmasker(self._values, self._restored)

    def json_unmasker(self) -> Unmasker:
        """Put them back within the strings of a stream of JSON, as a tool's arguments are."""
        # In ASCII: so even half a surrogate pair stays valid JSON, and valid UTF-8.
        values = {name: json.dumps(value)[1:-1] for name, value in self._values.items()}
        return Unmasker(values, self._restored)

    def _placeholder(self, kind: str, value: str) -> str:
        label = _label(kind)
        known = self._placeholders.get((label, value))
        if known is not None:
            return known
        self._counts[label] = self._counts.get(label, 0) + 1
        placeholder = f"[[{label}_{self._counts[label]}_{self._nonce}]]"
        self._placeholders[label, value] = placeholder
        self._values[placeholder] = value
        return placeholder

    def _restored(self, text: str, values: Mapping[str, str]) -> str:
        return self._forged.sub(lambda match: values.get(match[0], match[0]), text)


class Unmasker:
    """Puts values back into a stream that may be cut anywhere.

    Holds back only what may still become a placeholder that it knows: less than its length.
    """

    __slots__ = ("_held", "_known", "_restored", "_sorted")

    def __init__(
        self, values: Mapping[str, str], restored: Callable[[str, Mapping[str, str]], str]
    ) -> None:
        self._known = dict(values)
        self._sorted = sorted(values)
        self._restored = restored
        self._held = ""

    def __repr__(self) -> str:
        return f"Unmasker({len(self._known)})"

    def feed(self, piece: str) -> str:
        """Give what is certain, ``piece`` included; it may be nothing yet."""
        text = self._held + piece
        certain = self._certain(text)
        self._held = text[certain:]
        return self._restored(text[:certain], self._known)

    def flush(self) -> str:
        """Give what was held back, as it is: no more text comes."""
        held, self._held = self._held, ""
        return held

    def _certain(self, text: str) -> int:
        """Tell where the tail begins that is the beginning of a placeholder, if there is one."""
        last = text.rfind("[")
        # Placeholders have brackets at their very beginning only: two, or one if the text ends.
        begin = last - 1 if last > 0 and text[last - 1] == "[" else last
        if begin < 0:
            return len(text)
        tail = text[begin:]
        at = bisect.bisect_left(self._sorted, tail)
        pending = at < len(self._sorted) and self._sorted[at].startswith(tail)
        return begin if pending and self._sorted[at] != tail else len(text)


def plain(text: str, findings: Iterable[Finding]) -> str:
    """Put ``[EMAIL]`` and the like for the findings: there is no way back."""
    return _replaced(text, findings, lambda kind, value: f"[{_label(kind)}]")


def _replaced(text: str, findings: Iterable[Finding], put: Callable[[str, str], str]) -> str:
    pieces: list[str] = []
    done = 0
    for finding in apart(findings):
        pieces += text[done : finding.start], put(finding.kind, text[finding.start : finding.end])
        done = finding.end
    return "".join([*pieces, text[done:]])


def _label(kind: str) -> str:
    return NOT_IN_LABEL.sub("_", kind.upper()).strip("_") or "VALUE"
