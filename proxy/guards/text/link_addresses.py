"""Detects if a position in a text is within the address of a link, an image or an HTML tag.

A value restored into an address could be sent to a foreign host. The text is read in pieces. Four
kinds of addresses are detected independently, because renderers disagree where one kind ends inside
of another. A position is within an address if an address of any kind is open.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import chain

LOOKBACK = 48  # characters before the text in which an address may have begun
MAX_HOST_CHARS = 300  # characters of an address that are searched for its host
UNKNOWN_HOST = "\0"  # an address with an unknown host

# A scheme in angle brackets needs no slash. A single letter before a colon is a drive.
_SCHEME = r"<[A-Za-z][A-Za-z0-9+.-]{1,31}:|https?:|[A-Za-z][A-Za-z0-9+.-]{1,30}:[/\\]|www\."
_URL = re.compile(rf"{_SCHEME}|[/\\]{{2}}", re.IGNORECASE)
_URL_IN_JSON = re.compile(rf"{_SCHEME}|//", re.IGNORECASE)  # in JSON, "\\\\" is one backslash
# Path of a drive, or of a host without a dot: a host in the local network.
_LOCAL_PATH = re.compile(r"\\\\(?:\?\\[A-Za-z]:|[A-Za-z][A-Za-z0-9_-]{0,62})\\")
MAX_LOCAL_PATH_CHARS = 80  # characters that are searched for the beginning of such a path
_SPACE = re.compile(r"[\x00-\x20]")
_QUOTES = {quote: re.compile(quote) for quote in ("'", '"')}
_IN_TARGETS = re.compile(r"[\](:<>\\]|[\x00-\x20]+|[^\](:<>\\\x00-\x20]+")
_IN_TAGS = re.compile(r"[<>\"'=/]|[\x00-\x20]+|[^<>\"'=/\x00-\x20]+")
_SCHEMES = frozenset({"http:", "https:"})
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_WHOLE = re.compile(r"(?:[^\\]+|\\(?:[^u]|u(?![0-9A-Fa-f]{0,3}\Z)))*+", re.DOTALL)
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_IN_WORDS = re.compile(r"[\s<>]+|[\"'`]|[^\s<>\"'`]+")
# Beginnings of an address within a word: a scheme, or a host name with a delimiter.
_WORD_BEGIN = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]{1,30}:"
    r"|[^\W_]\.(?:[^\W\d_]{2,24}|xn--[A-Za-z0-9-]{1,32}|[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3})"
    r"\.?(?::[0-9]{1,5})?[/?#]"
)
_ENDS_BEGIN = re.compile(r"[:/?#]")
_DELIMITER = re.compile(r"[/?#@&]")
_MAILTO = re.compile(r"(?:\A|[\s(\[]|(?<!\\)<|\s[a-z]{1,9}=([\"'])|[\"'])mailto:\Z", re.IGNORECASE)
MAILTO = "mailto:"
MAILTO_LOOKBACK = 20  # characters that are searched for its beginning
_HOST = re.compile(r"https?://([A-Za-z0-9.-]{1,253})(?::[0-9]{1,5})?[/?#]", re.IGNORECASE)


class AddressScanner:
    """Scans a text that arrives in pieces for addresses.

    ``is_inside`` is True if the next character is within an address, and ``host`` is the host of
    that address.
    """

    def __init__(self, pattern: re.Pattern[str] = _URL) -> None:
        self._urls, self._targets = _UrlScanner(pattern), _LinkTargetScanner()
        self._tags, self._words = _TagScanner(), _BareAddressScanner()
        self._scanners = (self._urls, self._targets, self._tags, self._words)
        self._recent = ""

    @property
    def is_inside(self) -> bool:
        return any(scanner.is_inside for scanner in self._scanners)

    @property
    def ends_with_mailto(self) -> bool:
        """True if a ``mailto:`` ends here that is in no other address."""
        match = _MAILTO.search(self._recent)
        if match is None or self.is_past_scheme:
            return False
        if self._targets.is_in_angle_brackets and not match[0].startswith("<"):
            return False
        return not self._tags.is_inside or self._tags.is_in_attribute_value(match[1])

    @property
    def is_past_scheme(self) -> bool:
        """True if the position is within an address, but not directly behind a scheme."""
        is_target = self._targets.is_inside and not self._targets.is_in_angle_brackets
        return (
            self._words.is_inside
            or (self._urls.is_inside and self._urls.address.lower() != MAILTO)
            or (is_target and self._targets.address.lower() != MAILTO)
        )

    @property
    def host(self) -> str | None:
        """The host of the address, or None if it is uncertain."""
        if self._targets.is_address_unknown or (self._tags.is_inside and not self._tags.is_link):
            return None
        addresses = (self._urls, self._targets, self._words)
        matches = [_HOST.match(address.address) for address in addresses if address.is_inside]
        hosts = {match and match[1].lower().rstrip(".") for match in matches}
        return hosts.pop() if len(hosts) == 1 else None

    def treat_word_as_address(self) -> None:
        """Treat the word at this position as an address until it ends."""
        self._words.is_inside, self._words.address = True, UNKNOWN_HOST

    def feed(self, text: str) -> None:
        for scanner in self._scanners:
            scanner.feed(text)
        self._recent = (self._recent + text)[-MAILTO_LOOKBACK:]


class EscapedAddressScanner:
    """Scans a text within a JSON string for addresses, both escaped and unescaped."""

    def __init__(self) -> None:
        self._written, self._read, self._cut = AddressScanner(_URL_IN_JSON), AddressScanner(), ""

    @property
    def is_inside(self) -> bool:
        return self._written.is_inside or self._read.is_inside

    @property
    def ends_with_mailto(self) -> bool:
        return self._read.ends_with_mailto and not self._written.is_past_scheme

    def treat_word_as_address(self) -> None:
        self._written.treat_word_as_address()
        self._read.treat_word_as_address()

    @property
    def host(self) -> str | None:
        """The host of the address, or None if the escaped and unescaped forms differ."""
        return self._read.host if self._read.host == self._written.host else None

    def feed(self, text: str) -> None:
        self._written.feed(text)
        text = self._cut + text
        match = _WHOLE.match(text)
        end = match.end() if match else 0  # an escape may be cut
        self._cut = text[end:]
        self._read.feed(_ESCAPE.sub(_decode_json_escape, text[:end]))


@dataclass(slots=True, repr=False)
class _UrlScanner:
    """Scans for addresses with a scheme or two slashes.

    An address ends with a space, or with the quote before it.
    """

    pattern: re.Pattern[str]
    is_inside: bool = False
    address: str = ""
    _before: str = ""
    _quote: str = ""
    _spaced: bool = False

    def feed(self, text: str) -> None:
        position = 0
        while position < len(text):
            read = self._read_address if self.is_inside else self._find_address_begin
            position = read(text, position)

    def _read_address(self, text: str, position: int) -> int:
        """Read the rest of an address. Return the position at which to continue."""
        local = _LOCAL_PATH.match(self.address + text[position : position + MAX_LOCAL_PATH_CHARS])
        if local is not None:
            self.is_inside, shift = False, position - len(self.address)
            return shift + local.end()
        end = (_QUOTES[self._quote] if self._quote else _SPACE).search(text, position)
        upto = end.start() if end else len(text)
        part = text[position:upto]
        self._spaced = self._spaced or (self._quote != "" and _SPACE.search(part) is not None)
        self.address += part[: MAX_HOST_CHARS - len(self.address)]
        if end is None:
            return upto
        if self._quote and self._spaced:  # the last word may be an address that continues
            self._begin_address(UNKNOWN_HOST, "")
        else:
            self.is_inside, self._before = False, ""
        return end.end()

    def _find_address_begin(self, text: str, position: int) -> int:
        """Look for the beginning of an address. Return the position at which to continue."""
        part = self._before + text[position:]
        shift = position - len(self._before)
        begin = self.pattern.search(part)
        if begin is None:
            self._before = part[-LOOKBACK:]
            return len(text)
        preceding = part[begin.start() - 1 : begin.start()]
        self._begin_address(begin[0].removeprefix("<"), preceding if preceding in _QUOTES else "")
        return max(position, shift + begin.end())

    def _begin_address(self, address: str, quote: str) -> None:
        self.is_inside, self.address, self._quote = True, address, quote
        self._before, self._spaced = "", False


@dataclass(slots=True, repr=False)
class _BareAddressScanner:
    """Scans for words that look like an address, such as ``a.example/b`` and ``mailto:a?b``.

    A word with a colon is an address only if the rest of it contains one of ``/?#@&``.
    """

    is_inside: bool = False
    address: str = ""
    _before: str = ""
    _quote: str = ""

    def feed(self, text: str) -> None:
        for match in _IN_WORDS.finditer(text):
            part = match[0]
            if part[0] in "\"'`":
                if not self.address or part == self._quote:
                    self._begin_word(part)
            elif part[0] in "<>" or part[0].isspace():
                self._begin_word("")
            else:
                self._read_part(part)

    def _read_part(self, part: str) -> None:
        if self.address:
            self.is_inside = self.is_inside or _DELIMITER.search(part) is not None
            self.address += part[: MAX_HOST_CHARS - len(self.address)]
            return
        word = self._before + part
        begin = _WORD_BEGIN.search(word) if _ENDS_BEGIN.search(part) else None
        if begin is None:
            self._before = word[-LOOKBACK:]
            return
        self.address = word[begin.start() :][:MAX_HOST_CHARS]
        self.is_inside = _DELIMITER.search(word, begin.end() - 1) is not None

    def _begin_word(self, preceding_quote: str) -> None:
        self.is_inside, self.address, self._before, self._quote = False, "", "", preceding_quote


@dataclass(slots=True, repr=False)
class _LinkTargetScanner:
    """Scans for targets of links and images in Markdown, and of their definitions."""

    address: str = ""
    _begun: bool = False  # the next character tells whether it is in angle brackets
    _angle: bool = False
    _bare: bool = False
    _last: str = ""

    @property
    def is_inside(self) -> bool:
        return self.is_address_unknown or self._bare

    @property
    def is_address_unknown(self) -> bool:
        return self._begun or self._angle

    @property
    def is_in_angle_brackets(self) -> bool:
        return self._angle and not self._bare

    def feed(self, text: str) -> None:
        for match in _IN_TARGETS.finditer(text):
            self._read_part(match[0])
            self._last = match[0][-1]

    def _read_part(self, part: str) -> None:
        character = part[0]
        if self._angle and ("\n" in part or (character == ">" and self._last != "\\")):
            self._angle = False
        if character <= " ":
            self._bare = False
        elif self._begun:
            self._begun = False
            self._angle = self._angle or character == "<"
            self.address = UNKNOWN_HOST if self._bare else ""
            self._bare = self._bare or character != "<"
        if character in "(:" and self._last == "]":
            self._begun = True
        if self._bare:
            self.address += part[: MAX_HOST_CHARS - len(self.address)]


@dataclass(slots=True, repr=False)
class _TagScanner:
    """Scans for tags of HTML, from their name on.

    A quote opens a value only behind ``=``. A tag may also begin within a value, because the
    surrounding element, comment or code is unknown.
    """

    is_link: bool = False  # a tag-like text in brackets may be no tag
    _states: frozenset[str] = frozenset()
    _name: str | None = None
    _last: str = ""

    @property
    def is_inside(self) -> bool:
        return bool(self._states)

    def is_in_attribute_value(self, quote: str | None) -> bool:
        """Return True if the position can only be in a value that is delimited by ``quote``."""
        return quote in self._states and self._states <= {"inside", quote}

    def feed(self, text: str) -> None:
        for match in _IN_TAGS.finditer(text):
            part = match[0]
            next_states = (_find_next_tag_states(state, part) for state in self._states)
            self._states = frozenset(chain.from_iterable(next_states))
            self.is_link = self.is_link and part[0] > " " and bool(self._states)
            self._read_tag_name(part)
            self._last = part[-1]

    def _read_tag_name(self, part: str) -> None:
        character = part[0]
        if self._last == "<" and re.match("[/A-Za-z]", character):
            self._name = part[:LOOKBACK]
        elif self._name is not None and (character <= " " or character == "/"):
            self.is_link = not self._states and self._name.lower() in _SCHEMES
            self._states |= {"inside"}
            self._name = None
        elif character == ">":
            self._name = None
        elif self._name is not None:
            self._name = (self._name + part)[:LOOKBACK]


def _find_next_tag_states(state: str, part: str) -> tuple[str, ...]:
    """Return the possible states of a tag after another part of it."""
    character = part[0]
    if state in _QUOTES:
        return ("inside",) if character == state else (state,)
    if character == ">":
        return ()
    if state == "value":
        return (character,) if character in _QUOTES else ("value",) if character <= " " else ()
    return ("inside", "value") if character == "=" else ("inside",)


def _decode_json_escape(escape: re.Match[str]) -> str:
    code, letter = escape.groups()
    return chr(int(code, 16)) if code else _ESCAPED.get(letter, letter)
