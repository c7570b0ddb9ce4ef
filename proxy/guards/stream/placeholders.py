"""Placeholders of masked values, and their restoration in responses.

Models may write a placeholder with escapes, without its brackets, or over two lines.
"""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from secrets import token_bytes
from typing import NamedTuple
from urllib.parse import quote

from proxy.guards.findings import RuleTally, replace_by_kind
from proxy.guards.stream.arguments import ArgumentsFilter
from proxy.guards.stream.text_filter import ReleasedText, TextFilter
from proxy.guards.text.hosts import matches_host_entry
from proxy.guards.text.link_addresses import MAILTO, AddressScanner, EscapedAddressScanner
from proxy.guards.text.replace import replace_texts
from proxy.guards.text.walk import Text, Texts
from proxy.types import Json
from proxy.types.guard import GuardRule

_BREAK = r"(?:[ \t]{0,4}(?:\r?\n|(?:\\r)?\\n)[ \t]{0,16})"  # a line break, plain or escaped in JSON
_LINE = r"(?:\\{0,2}_|%5[Ff])"
# A backslash before the bracket is an escape if an inner ``_`` or the closing bracket is escaped
# too. Otherwise it separates the parts of a path.
_ESCAPED_OPEN = r"\\{1,2}\[(?=[^\[\]]*\\[_\]])"
_OPEN = rf"(?:{_ESCAPED_OPEN}|\[|%5[Bb])"
_CLOSE = r"(?:\\{0,2}\]|%5[Dd])"
# A name without brackets begins like a word.
_START = (
    r"(?:(?<![A-Za-z0-9])|(?<=\\[bfnrt])|(?<=%[0-9A-Fa-f]{2})(?<!%5[Ff]))"
    r"(?<![A-Za-z0-9]_)(?<![A-Za-z0-9]\\_)(?<![A-Za-z0-9]\\\\_)[A-Z]"
)
_WRITTEN_NAME = re.compile(
    rf"(?P<open>{_OPEN}){_BREAK}?(?:{_BREAK}?(?:[A-Za-z0-9]|{_LINE}))++{_BREAK}?{_CLOSE}"
    rf"|{_START}[A-Z0-9]*+(?:{_LINE}[A-Za-z0-9]++)++"
)
_NAME_START = re.compile(_START)
_ESCAPES = re.compile(rf"{_BREAK}|(?P<line>{_LINE})|(?P<close>{_CLOSE})")
_PARTIAL_ESCAPE = re.compile(  # start of an escape or a line break, at the end of a text
    r"(?:[ \t]{1,4}\r?|\r|[ \t]{0,4}\\(?:r(?:\\n?)?)?|\\{1,2}|%5?)\Z"
)
_PARTIAL_OPEN = re.compile(r"(?:\\{1,2}|%5?)\Z")
_NAME_CHARS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_\\%"
CONTEXT_CHARS = 8  # characters before a name that show whether a word or an e-mail address begins


class PlaceholderSpan(NamedTuple):
    """Span of a placeholder in a text.

    ``name`` has no brackets. The placeholder may be percent-encoded in an address.
    """

    start: int
    end: int
    name: str
    is_percent_encoded: bool


class PlaceholderNames:
    """The placeholder names of one call, and the search for them in its responses."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names)
        self._sorted = sorted(self._names)
        # An encoding may take three characters per letter, and there may be line breaks.
        self.longest = 3 * max(map(len, self._sorted), default=0) + 64 if self._sorted else 0

    def find_placeholders(self, text: str, start_at: int) -> Iterator[PlaceholderSpan]:
        """Yield the placeholders in a text from ``start_at`` on.

        The character before ``start_at`` decides only whether a word starts there.
        """
        if "_" not in text and "%5" not in text:
            return
        position = start_at
        while (match := _WRITTEN_NAME.search(text, position)) is not None:
            start, end = match.span()
            opened = match["open"]
            name = _normalize_name(text[start + len(opened or "") : end]).removesuffix("]")
            if end - start <= self.longest and name in self._names:
                is_encoded = opened is not None and opened[0] == "%"
                yield PlaceholderSpan(start, end, name, is_percent_encoded=is_encoded)
                position = end
            else:
                position = start + 1

    def find_partial_placeholder(self, text: str, start_at: int) -> int:
        """Return the start of a suffix that may become a placeholder, or the length of the text."""
        size = len(text)
        low = max(start_at, size - self.longest)
        begin = max(text.rfind("[", low), text.rfind("%5B", low), text.rfind("%5b", low))
        if begin >= 0 and self._may_become_name(text, begin):
            backslashes = text[max(start_at, begin - 2) : begin] if text[begin] == "[" else ""
            return begin - len(backslashes) + len(backslashes.rstrip("\\"))
        tail = text[low:]
        word = size - len(tail) + len(tail.rstrip(_NAME_CHARS))
        if word == size:
            return size
        for start in _NAME_START.finditer(text, max(word, start_at)):
            if self._is_name_or_prefix(text[start.start() :]):
                return start.start()
        part = _PARTIAL_OPEN.search(text, max(start_at, size - 2))
        return part.start() if part is not None else size

    def _may_become_name(self, text: str, begin: int) -> bool:
        """Return True if the text from the bracket at ``begin`` on may become a placeholder."""
        inside = text[begin + (1 if text[begin] == "[" else 3) :]
        name = _normalize_name(_PARTIAL_ESCAPE.sub("", inside))
        return self._is_name_prefix(name.removesuffix("]")) and not name.endswith("]")

    def _is_name_or_prefix(self, word: str) -> bool:
        """Return True if a word is a placeholder without its brackets, or may become one."""
        name = _normalize_name(_PARTIAL_OPEN.sub("", word))
        return self._is_name_prefix(name) or name.removesuffix("_") in self._names

    def _is_name_prefix(self, name: str) -> bool:
        index = bisect.bisect_left(self._sorted, name)
        return index < len(self._sorted) and self._sorted[index].startswith(name)


def _normalize_name(written_name: str) -> str:
    """Return a placeholder name without escapes. Any closing bracket becomes ``]``."""
    if written_name.isalnum():
        return written_name
    return _ESCAPES.sub(
        lambda part: "_" if part["line"] else "]" if part["close"] else "", written_name
    )


DIGEST_LETTERS = "bcdfghjkmnpqrstvwxz"
"""Letters of digests. They spell no words, look unlike each other, and match no pattern of
numbers."""
DIGEST_LENGTH = 12  # letters, 50.9 bits
CHARS_PER_WEIGHT = 4  # characters processed in the time in which guards inspect one
_MAIL_ADDRESS_END = r"[\s\"'<>|]|\\[nrt\"]"
_ENDS_IN_MAIL_ADDRESS = re.compile(_MAIL_ADDRESS_END)
_ENDS_MAIL_ADDRESS = re.compile(rf"[].,;:!?*_)]{{0,4}}(?:{_MAIL_ADDRESS_END}|\Z)|\)")
NON_LABEL_CHARS = re.compile("[^A-Z0-9]+")

Digest = Callable[[str, str, Collection[str]], str]
"""Returns the digest of a label, a value and the hosts that the value may be sent to."""

Values = dict[str, tuple[str, frozenset[str]]]
"""Values and their hosts, by the placeholder without its brackets."""


def derive_placeholder_key(secret: str | None = None) -> bytes:
    """Return the key of placeholders: derived from the deployment's secret, or random."""
    if secret is None:
        return token_bytes(32)
    text = secret.encode("utf-8", "surrogateescape")
    return blake2b(text, digest_size=32, person=b"headrace masks").digest()


def digest_value(
    key: bytes, virtual_key: str | None, label: str, value: str, hosts: Collection[str]
) -> str:
    """Return the digest of a value. Different virtual keys get different digests of it."""
    parts = json.dumps([virtual_key, label, value, sorted(hosts)]).encode()
    digest = blake2b(parts, digest_size=DIGEST_LENGTH, key=key).digest()
    return "".join(DIGEST_LETTERS[byte % len(DIGEST_LETTERS)] for byte in digest)


class Masks:
    """Placeholders like ``[EMAIL_kzvqmxtrwbnd]`` for the masked values of one call.

    Rules with different ``restore_hosts`` use different placeholders for a value. A placeholder has
    one pair of brackets, because small models repeat only one of two pairs. If two values have the
    same digest, only the first one is restored.
    """

    tallies: Sequence[RuleTally] = ()  # never counts findings: it restores values
    texts_continue_after_finish = False

    def __init__(self, digest: Digest) -> None:
        self._digest = digest
        self._values: Values = {}
        self._names: PlaceholderNames | None = None

    @classmethod
    def for_virtual_key(cls, placeholder_key: bytes, virtual_key: str | None) -> Masks:
        """Return the placeholders of a call of a virtual key."""
        return cls(partial(digest_value, placeholder_key, virtual_key))

    def __len__(self) -> int:
        return len(self._values)

    def make_replacement(self, rule: GuardRule, kind: str, text: str) -> str:
        """Return the replacement of a masked text.

        It is a placeholder if the rule restores values, else the name of the kind.
        """
        if not rule.restore:
            return replace_by_kind(rule, kind, text)
        return self.make_placeholder(kind, text, rule.restore_hosts)

    def make_placeholder(self, kind: str, value: str, hosts: Collection[str] = ()) -> str:
        """Return the placeholder of a value, which may be restored in addresses of ``hosts``."""
        label = NON_LABEL_CHARS.sub("_", kind.upper()).strip("_") or "VALUE"
        name = f"{label}_{self._digest(label, value, hosts)}"
        restored = value, frozenset(hosts)
        if name not in self._values:
            self._values[name] = restored
            self._names = None
        return f"[{name}]" if self._values[name] == restored else f"[{label}]"

    def unmask(self, text: str, *, in_json: bool = False) -> str:
        """Restore the values in a whole text. A text ``in_json`` is inside of a JSON string."""
        unmasker = self.build_unmasker(in_json=in_json)
        if next(unmasker.names.find_placeholders(text, 0), None) is None:
            return text
        return "".join(piece.text for piece in (*unmasker.feed(text), *unmasker.close()))

    def unmask_document(self, document: Json, texts: Texts) -> Json:
        """Return a whole response with the original values in place of placeholders."""
        changes = {
            text.path: restored
            for text in texts.texts
            if self.must_filter(text)
            and (restored := self.unmask(text.text, in_json=text.in_json)) != text.text
        }
        return replace_texts(document, changes)

    def build_unmasker(self, *, in_json: bool = False) -> Unmasker:
        """Return a filter that restores the values known so far in a stream of text."""
        if self._names is None:
            self._names = PlaceholderNames(self._values)
        return Unmasker(self._values, self._names, in_json=in_json)

    def must_filter(self, text: Text) -> bool:
        """Return False for thoughts: providers sign them and verify them when they return."""
        return text.kind != "reasoning"

    def make_filter(self, text: Text, *, is_arguments: bool, is_over_limit: bool) -> TextFilter:
        """Return the filter that restores the values in one text of a stream."""
        plain = self.build_unmasker()
        return ArgumentsFilter(self.build_unmasker(in_json=True), plain) if is_arguments else plain


class Unmasker:
    """Restores values in a streamed text.

    Values are not restored in addresses of hosts that the rule does not allow. Only the
    beginning of a known placeholder is held.
    """

    def __init__(self, values: Values, names: PlaceholderNames, *, in_json: bool = False) -> None:
        self._addresses_of = EscapedAddressScanner if in_json else AddressScanner
        self._addresses = self._addresses_of()
        self._values, self.names, self._in_json = values, names, in_json
        self._held = self._before = ""

    @property
    def lookback(self) -> int:
        return self.names.longest

    def estimate_feed_work(self, text: str) -> int:
        return (len(self._held) + len(text)) // CHARS_PER_WEIGHT

    def estimate_close_work(self) -> int:
        return 0

    def feed(self, text: str) -> list[ReleasedText]:
        context_chars = len(self._before)
        text = self._before + self._held + text
        certain = self.names.find_partial_placeholder(text, context_chars)
        certain = self._find_open_mail_address(text, context_chars, certain)
        self._held = text[certain:]
        return self._restore_values(text[:certain], context_chars)

    def flush(self) -> list[ReleasedText]:
        return self.close()

    def close(self) -> list[ReleasedText]:
        text = self._before + self._held
        pieces = self._restore_values(text, len(self._before)) if self._held else []
        self._held = self._before = ""
        self._addresses = self._addresses_of()
        return pieces

    def _find_open_mail_address(self, text: str, start_at: int, certain_end: int) -> int:
        """Return the start of a mail address that may continue, or ``certain_end``."""
        low = max(certain_end - self.names.longest - len(MAILTO), 0)
        offset = text[low:certain_end].lower().rfind(MAILTO)
        start = low + offset + len(MAILTO)
        if offset < 0 or start < start_at or _ENDS_IN_MAIL_ADDRESS.search(text, start, certain_end):
            return certain_end
        return start

    def _restore_values(self, text: str, start_at: int) -> list[ReleasedText]:
        """Return the pieces of a text from ``start_at`` on, with values restored."""
        pieces, addresses = list[ReleasedText](), self._addresses
        for occurrence in self.names.find_placeholders(text, start_at):
            start, end = occurrence.start, occurrence.end
            gap, placeholder = text[start_at:start], text[start:end]
            addresses.feed(gap)
            start_at = end
            pieces.append(ReleasedText(gap, len(gap), is_changed=False))
            value, hosts = self._values[occurrence.name]
            is_kept = addresses.is_inside and not matches_host_entry(addresses.host or "", hosts)
            if text[max(start - len(MAILTO), 0) : start].lower() == MAILTO:
                is_whole = _ENDS_MAIL_ADDRESS.match(text, end) is not None
                is_kept = not (is_whole and addresses.ends_with_mailto)
                if is_kept:
                    addresses.treat_word_as_address()
            restored = placeholder if is_kept else self._encode_value(value, occurrence)
            if addresses.is_inside:
                addresses.feed(placeholder)
            pieces.append(ReleasedText(restored, len(placeholder), is_changed=not is_kept))
        addresses.feed(text[start_at:])
        pieces.append(ReleasedText(text[start_at:], len(text) - start_at, is_changed=False))
        self._before = text[-CONTEXT_CHARS:]
        return [piece for piece in pieces if piece.size]

    def _encode_value(self, value: str, placeholder: PlaceholderSpan) -> str:
        """Return a value as it must be written in place of its placeholder.

        It is percent-encoded if the placeholder is, otherwise escaped if the text is in JSON.
        """
        if placeholder.is_percent_encoded:
            return quote(value, safe="", errors="surrogatepass")
        if not self._in_json:
            return value
        # As ASCII, so that a lone surrogate stays valid JSON and UTF-8. A single quote is escaped,
        # because the model may have put the string into single quotes.
        return json.dumps(value)[1:-1].replace("'", "\\u0027")
