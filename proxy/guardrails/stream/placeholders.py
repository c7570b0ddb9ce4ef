"""Placeholders for what was found in a call's texts, and the way back in its answer.

Values live in one ``Masks``, which lives as long as its call: they are never shown, logged or
shared. A stream may be cut anywhere, also within a placeholder, and a model may write one in
another way than it was given (``rewritten``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from urllib.parse import quote

from proxy.guardrails.findings.mask import named
from proxy.guardrails.stream.arguments import ArgumentsWindow
from proxy.guardrails.stream.rewritten import BEFORE, PlaceholderNames, RewrittenName
from proxy.guardrails.stream.text_filter import ReleasedPiece, TextFilter
from proxy.guardrails.text.hosts import is_listed
from proxy.guardrails.text.link_addresses import Addresses, EscapedAddresses
from proxy.guardrails.text.replace import replaced
from proxy.guardrails.text.walk import Text, answer_texts
from proxy.types import Json
from proxy.types.guard import GuardRule

NONCE = re.compile("[0-9a-z]{3,32}")
EASY = 4  # characters that are read in the time of one that guards look at
NOT_IN_LABEL = re.compile("[^A-Z0-9]+")


class Masks:
    """Placeholders like ``[EMAIL_1_x7f]``, of one call: the same value has the same one.

    Rules that put a value back into addresses of other hosts have placeholders of their own for it.
    They have one pair of brackets: of two, small models write back one. ``nonce`` is drawn anew for
    each call, so that no text can name a placeholder beforehand. Raises ValueError for a nonce that
    is not of at least three letters and digits.
    """

    __slots__ = ("_counts", "_hosts", "_nonce", "_placeholders", "_values")

    def __init__(self, nonce: str) -> None:
        if not NONCE.fullmatch(nonce):
            raise ValueError("a nonce is of 3 to 32 lower-case letters and digits")
        self._nonce = nonce
        self._counts: dict[str, int] = {}
        self._placeholders: dict[tuple[str, str, frozenset[str]], str] = {}
        self._values: dict[str, str] = {}
        self._hosts: dict[str, Collection[str]] = {}

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Masks({len(self)})"

    def replacement(self, rule: GuardRule, kind: str, text: str) -> str:
        """Return what replaces a text that a rule masks: a placeholder if the rule restores, else
        the name of the kind."""
        if not rule.restore:
            return named(rule, kind, text)
        return self.placeholder(kind, text, rule.restore_hosts)

    def placeholder(self, kind: str, value: str, hosts: Collection[str] = ()) -> str:
        """Return the placeholder of a value, which may be restored in addresses of ``hosts``."""
        label = _label(kind)
        key = label, value, frozenset(hosts)
        known = self._placeholders.get(key)
        if known is not None:
            return known
        self._counts[label] = self._counts.get(label, 0) + 1
        placeholder = f"[{label}_{self._counts[label]}_{self._nonce}]"
        self._placeholders[key] = placeholder
        self._values[placeholder] = value
        self._hosts[placeholder] = hosts
        return placeholder

    def unmask(self, text: str, *, escaped: bool = False) -> str:
        """Put back the values into a whole text; ``escaped`` as inside of a JSON string."""
        if self._nonce not in text and not self._is_over_lines(text):
            return text
        unmasker = self.unmasker(escaped=escaped)
        return "".join(piece.text for piece in (*unmasker.feed(text), *unmasker.flush()))

    def _is_over_lines(self, text: str) -> bool:
        """True if the end of a line may stand within the nonce."""
        if "\n" not in text and "\\n" not in text:
            return False
        return self._nonce in "".join(text.replace("\\r", "").replace("\\n", "").split())

    def unmasked(self, data: Json) -> Json:
        """Put them back into a whole answer; the very same one where there are none."""
        changes = {
            text.path: restored
            for text in answer_texts(data).texts
            if (restored := self.unmask(text.text, escaped=text.escaped)) != text.text
        }
        return replaced(data, changes)

    def unmasker(self, *, escaped: bool = False) -> Unmasker:
        """Put back the values known so far into a stream of text."""
        return Unmasker(self._values, self._hosts, escaped=escaped)

    def concerns(self, text: Text) -> bool:
        """True: values may come back in any text."""
        return True

    def acts(self, text: Text) -> bool:
        """False: nothing is kept back for good."""
        return False

    def says_more(self, text: Text) -> bool:
        """False, as nothing is kept back."""
        return False

    def ends(self, text: Text) -> bool:
        """True: a placeholder ends with the text of its choice."""
        return True

    def miss(self, text: Text) -> None:
        """Nothing is missed: each text gets its values back."""

    def leave_unread(self, text: Text) -> None:
        """Nothing is left: a placeholder stands in one chunk, or stays."""

    def text_filter(self, text: Text, *, arguments: bool, crowded: bool) -> TextFilter:
        """Return the filter that puts values back into one text of a stream."""
        plain = self.unmasker()
        return ArgumentsWindow(self.unmasker(escaped=True), plain) if arguments else plain


class Unmasker:
    """Puts values back into a stream that may be cut anywhere, but into no address whose host is
    not among those of the value.

    Holds back only what may still become a placeholder that it knows: hardly more than its length.
    """

    __slots__ = (
        "_addresses", "_addresses_of", "_before", "_escaped", "_held", "_hosts", "_known", "_names",
    )  # fmt: skip

    def __init__(
        self,
        values: Mapping[str, str],
        hosts: Mapping[str, Collection[str]],
        *,
        escaped: bool = False,
    ) -> None:
        self._addresses_of = EscapedAddresses if escaped else Addresses
        self._addresses = self._addresses_of()
        self._escaped = escaped
        self._hosts = hosts
        self._known = dict(values)
        self._names = PlaceholderNames(each[1:-1] for each in values)
        self._held = ""
        self._before = ""

    def __repr__(self) -> str:
        return f"Unmasker({len(self._known)})"

    @property
    def reach(self) -> int:
        return self._names.longest

    @property
    def held(self) -> int:
        return len(self._held)

    def weight(self, text: str) -> int:
        """Return how much there is to read when these characters come: no more than them."""
        return (len(self._held) + len(text)) // EASY

    def weight_of_end(self) -> int:
        """Return that there is nothing to read at the end."""
        return 0

    def feed(self, text: str) -> list[ReleasedPiece]:
        """Take the next characters, return the pieces that are certain; there may be none yet."""
        before = len(self._before)
        text = self._before + self._held + text
        certain = self._names.pending(text, before)
        self._held = text[certain:]
        return self._restored(text[:certain], before)

    def take(self, text: str) -> list[ReleasedPiece]:
        """Take a text that is whole, return all of it with its values back."""
        return [*self.feed(text), *self.flush()]

    def let_go(self) -> list[ReleasedPiece]:
        """End the text: no placeholder goes on behind anything else."""
        return self.flush()

    def flush(self) -> list[ReleasedPiece]:
        """Return what was held back: the text has ended."""
        pieces = self._restored(self._before + self._held, len(self._before)) if self._held else []
        self._held = self._before = ""
        self._addresses = self._addresses_of()
        return pieces

    def _restored(self, text: str, past: int) -> list[ReleasedPiece]:
        """Return the pieces of a text; what is before ``past`` was returned already."""
        pieces: list[ReleasedPiece] = []
        for each in self._names.written(text, past):
            between, found = text[past : each.start], text[each.start : each.end]
            self._addresses.feed(between)
            past = each.end
            pieces.append(ReleasedPiece(between, len(between), changed=False))
            placeholder = f"[{each.name}]"
            is_kept = self._addresses.within and not self._may_leave(placeholder)
            shown = found if is_kept else self._value(placeholder, each)
            if self._addresses.within:
                self._addresses.feed(found)
            pieces.append(ReleasedPiece(shown, len(found), changed=not is_kept))
        self._addresses.feed(text[past:])
        pieces.append(ReleasedPiece(text[past:], len(text) - past, changed=False))
        self._before = text[-BEFORE:]
        return [piece for piece in pieces if piece.size]

    def _value(self, placeholder: str, written: RewrittenName) -> str:
        """Return the value in the form that a placeholder was written in."""
        value = self._known[placeholder]
        if written.quoted:
            return quote(value, safe="", errors="surrogatepass")
        if not self._escaped:
            return value
        # In ASCII: so even half a surrogate pair stays valid JSON, and valid UTF-8. Without a
        # single quote, as a model may have put the string into these.
        return json.dumps(value)[1:-1].replace("'", "\\u0027")

    def _may_leave(self, placeholder: str) -> bool:
        """True if a value may be a part of the address that is being read."""
        host = self._addresses.host
        return host is not None and is_listed(host, self._hosts.get(placeholder, ()))


def _label(kind: str) -> str:
    return NOT_IN_LABEL.sub("_", kind.upper()).strip("_") or "VALUE"
