"""Texts as detectors read them: disguises taken off, and each place traced to the original.

One text has several readings. The first is always the text itself, so that what a pattern means
literally is never lost; others are there only where they differ. A finding in any reading maps to
the smallest span of the original that it was made from.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from unicodedata import decimal

from proxy.guardrails.text import base64_text
from proxy.guardrails.text.clusters import clusters, marked, open_cluster, singles
from proxy.guardrails.text.confusables import CONTROLS, FOLDS, TAGS, UNSEEN
from proxy.guardrails.text.escapes import IN_JSON, has_escapes, pending_escape, unescaped
from proxy.guardrails.text.one_reading import has_one_reading
from proxy.guardrails.text.within_words import has_signs, line_ends, open_within, within_words

_UNSEEN = re.compile(f"[{UNSEEN}]+")
_CONTROLS = bytes(i for i in range(128) if re.match(f"[{CONTROLS}]", chr(i)))
_LOOKS = re.compile("[" + re.escape("".join(map(chr, FOLDS))) + "]")
_SHADOWS = re.compile(f"[{TAGS}]+")
_TAGGED = "".join(map(chr, range(ord(TAGS[0]), ord(TAGS[-1]) + 1)))
_SINGLES = 3  # letters that stand apart, before they are read as one word
_NUMBER = re.compile(r"[+-]?[0-9.]{1,10}(?:[eE][+-]?[0-9]{1,2})?")  # too short for a run
_GAP = r"[\s._*·•|/\\,~-]"
_SPACED = re.compile(rf"(?<![^\W\d_])[^\W\d_](?:{_GAP}[^\W\d_]){{2,}}(?![^\W\d_])")
_DIGITS = re.compile(r"[^\D0-9]")
_ENDING = re.compile(rf"(?<![^\W\d_])(?:[^\W\d_]{_GAP})*[^\W\d_]?\Z")
_STRETCH = 16  # characters that are read at a stretch in the time of one that is read by itself
MOST_LAYERS = 4  # of encodings within encodings

# Classes of bytes, to look for a pattern of classes at the speed of a search for a literal.
# Of a character beyond ASCII the first byte alone is kept, as a letter.
_LATER = bytes(range(0x80, 0xC0))
_LETTERS = bytes(0x61 if chr(i).isalpha() or i > 127 else 0x20 for i in range(256))
_APART = re.compile(rb" a a a ")  # three letters that stand alone; faster than ``in``
_LETTERS_OR_SIGNS = bytes(0x62 if i > 127 else _LETTERS[i] for i in range(256))
_APART_BEYOND = re.compile(rb"[ b][ab] [ab] [ab][ b]")  # of these each may be either


class Edit(NamedTuple):
    """``size`` characters of a reading, from ``at`` on, that were ``start`` to ``end`` below it."""

    at: int
    size: int
    start: int
    end: int


class View:
    """One reading of a text.

    ``cased`` keeps capitals and ``folded`` has none; a place means the same in both. ``normal``
    says that look-alikes are folded. ``whole`` is set when every finding stands for one span,
    because the reading was decoded from it. ``written`` is true of what stands in JSON for another
    text: nothing is looked for in it, as a finding could begin within an escape.
    """

    __slots__ = ("_below", "_edits", "_folded", "cased", "normal", "whole", "written")

    def __init__(
        self,
        cased: str,
        edits: tuple[Edit, ...] = (),
        below: View | None = None,
        *,
        normal: bool = False,
        whole: tuple[int, int] | None = None,
        written: bool = False,
    ) -> None:
        self.cased = cased
        self.normal = normal
        self.whole = whole
        self.written = written
        self._edits = edits
        self._below = below
        self._folded: str | None = None

    @classmethod
    def of(cls, text: str, *, escaped: bool = False) -> View:
        """Return the normalised reading; ``escaped`` if the text stands inside of a JSON string."""
        return _composed(_seen(_opened(_unquoted(text, escaped))), bare=False)

    def reading(self, cased: str) -> View:
        """Return this reading with other characters in the same places."""
        return View(cased, self._edits, self._below, normal=self.normal)

    @property
    def folded(self) -> str:
        if self._folded is None:
            self._folded = _lower(self.cased)
            if self.normal:  # a small letter may look like one where its capital does not
                self._folded = self._folded.translate(FOLDS)
        return self._folded

    @property
    def plain(self) -> bool:
        """True if every place is the same in the original."""
        return self.whole is None and not self._edits and self._below is None

    @property
    def edits(self) -> int:
        """How often this reading differs from the original."""
        return len(self._edits) + (self._below.edits if self._below is not None else 0)

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return the span in the original of a span that is not empty."""
        if self.whole is not None:
            return self.whole
        if self._edits:
            start, end = self._source(start)[0], self._source(end - 1)[1]
        return (start, end) if self._below is None else self._below.span(start, end)

    def begins(self, place: int) -> int:
        """Return where a character starts in the original; for the end of the reading, its end."""
        if place < len(self.cased):
            return self.span(place, place + 1)[0]
        return self.span(place - 1, place)[1] if place else 0

    def index(self, original: int) -> int:
        """Return the first place whose character starts at ``original`` or after it."""
        if self.plain:
            return min(original, len(self.cased))
        return bisect_left(range(len(self.cased)), original, key=self.begins)

    def _source(self, place: int) -> tuple[int, int]:
        found = bisect_right(self._edits, place, key=_at) - 1
        if found < 0:
            return place, place + 1
        edit = self._edits[found]
        beyond = place - edit.at - edit.size
        return (edit.start, edit.end) if beyond < 0 else (edit.end + beyond, edit.end + beyond + 1)


def _at(edit: Edit) -> int:
    return edit.at


def variants(text: str, *, escaped: bool = False, most: int | None = None) -> tuple[View, ...]:
    """Return the text itself, then every other reading of it; ``most`` bounds the characters of a
    run of base64 that are decoded."""
    return _read(text, escaped, torn=False, most=most)[0]


def decoded(run: str, whole: tuple[int, int]) -> Iterator[View]:
    """Return all readings of what a run of base64, which is all of ``whole``, or hex in it says."""
    for start, end, text in base64_text.decodings(run):
        yield from _layers(text, (whole[0] + start, whole[0] + end), MOST_LAYERS)


class Beginning(NamedTuple):
    """The readings of a text that may go on.

    Before ``upto`` none of them changes, whatever follows; ``run`` is where base64 begins that
    may go on and still be text, or the end of the text. ``effort`` tells how much of it had to be
    read letter by letter: nothing of plain text.
    """

    views: tuple[View, ...]
    upto: int
    run: int
    effort: int = 0


def beginning(
    text: str,
    *,
    escaped: bool = False,
    torn: bool = False,
    most: int | None = None,
    near: int = 0,
    ends: bool = False,
) -> Beginning:
    """Read a text that may go on, unless it ``ends``: what base64 at its end says is read then.

    ``torn`` says that it begins inside of what may be base64, which is then left alone; ``most``
    bounds the characters of one such run that are waited for, and decoded; a run of up to ``near``
    is not looked at, as so much is held anyway. Open at the end are the last character (a mark may
    follow), an escape that is not complete, and letters that may turn out to stand apart.
    """
    views, bare, seen, opened = _read(text, escaped, torn, most, near=None if ends else near)
    whole = _pending(text, escaped)
    letter = open_cluster(seen.cased if whole == len(text) else seen.cased[: seen.index(whole)])
    sure = bare.cased if whole == len(text) else bare.cased[: bare.index(whole)]
    apart, run = _letters_apart(sure), base64_text.open_run(sure, torn=torn, most=most, near=near)
    shadow = len(opened.cased.rstrip(_TAGGED))
    within = bare.begins(open_within(sure))
    upto = min(whole, seen.begins(letter), bare.begins(apart), opened.begins(shadow), within)
    effort = 0 if opened is views[0] else _effort(text, views)
    return Beginning(views=views, upto=upto, run=bare.begins(run), effort=effort)


def _effort(text: str, views: Sequence[View]) -> int:
    """Return the cost of reading: a letter read by itself counts more than one in a stretch."""
    stretches = (0 if text.isascii() else len(text)) + sum(len(view.cased) for view in views[1:])
    escapes = text.count("&") + text.count("%") + text.count("\\")
    return stretches // _STRETCH + escapes + sum(view.edits for view in views)


def _read(
    text: str,
    escaped: bool,
    torn: bool,
    most: int | None,
    *,
    near: int | None = None,
    layers: int = MOST_LAYERS,
) -> tuple[tuple[View, ...], View, View, View]:
    """Return all readings, but with ``near`` of a run at the end that may go on, then three of the
    steps to them: the one with marks taken off, the one without unseen characters, and the one
    without escapes."""
    itself = View(text)
    if _NUMBER.fullmatch(text):
        return (itself,), itself, itself, itself
    raw = text.encode("utf-8", "surrogatepass")
    ascii_only = len(raw) == len(text)
    if ascii_only and has_one_reading(raw):
        return (itself,), itself, itself, itself
    runs = base64_text.possible(raw)
    unquoted = _unquoted(text, escaped)
    opened = _opened(unquoted)
    seen = _seen(opened)
    normal = _composed(seen, bare=False)
    found = [itself] if unquoted.plain else [View(text, written=True), unquoted]
    if normal.cased != unquoted.cased or (not ascii_only and _LOOKS.search(unquoted.folded)):
        found.append(normal)
    bare = _composed(seen, bare=True) if marked(seen.cased) else normal
    close = _close(bare)
    if close.cased != normal.cased:
        found.append(close)
    if has_signs(bare.cased):
        found += _joined(bare)
    if runs or bare.cased != text:
        found += _decoded(bare, torn, most, near, layers)
    if not opened.cased.isascii():
        found += [_unmasked(opened, shadow) for shadow in _SHADOWS.finditer(opened.cased)]
    return tuple(found), bare, seen, opened


def _apart(raw: bytes) -> bool:
    if raw.isascii():
        return _APART.search(b" " + raw.translate(_LETTERS) + b" ") is not None
    seen = b" " + raw.translate(_LETTERS_OR_SIGNS, _LATER) + b" "
    return _APART_BEYOND.search(seen) is not None


def folded(word: str) -> str:
    """Return a word of a policy as the normalised reading of a text shows it."""
    return View.of(word).folded


def _lower(text: str) -> str:
    """Fold case one for one: a character that would become several is only made small."""
    if text.isascii():
        return text.lower()
    small = text.casefold()
    return small if len(small) == len(text) else "".join(map(_small, text))


def _small(character: str) -> str:
    for made in (character.casefold(), character.lower()):
        if len(made) == 1:
            return made
    return character


def _edited(view: View, changes: Iterable[tuple[int, int, str]]) -> View:
    """Put other characters for spans of a reading; the same reading where nothing changes."""
    text = view.cased
    parts: list[str] = []
    edits: list[Edit] = []
    at = past = 0
    for start, end, made in changes:
        at += start - past
        parts += (text[past:start], made)
        edits.append(Edit(at=at, size=len(made), start=start, end=end))
        at += len(made)
        past = end
    if not edits:
        return view
    parts.append(text[past:])
    below = None if view.plain else view
    return View("".join(parts), tuple(edits), below, normal=view.normal)


def _unquoted(text: str, escaped: bool) -> View:
    """Return what a text says: one that stands inside of a JSON string without the escapes of
    that, which are none of its own."""
    view = View(text)
    return _edited(view, unescaped(text, IN_JSON)) if escaped and "\\" in text else view


def _opened(view: View) -> View:
    """Decode escapes once."""
    return _edited(view, unescaped(view.cased)) if has_escapes(view.cased) else view


def _pending(text: str, escaped: bool) -> int:
    """Return where an incomplete escape at the end starts; else the end of the text."""
    if not (escaped and "\\" in text):
        return pending_escape(text)
    whole = pending_escape(text, in_json=True)
    text_view = _unquoted(text, escaped)
    return min(whole, text_view.begins(pending_escape(text_view.cased[: text_view.index(whole)])))


def _seen(view: View) -> View:
    """Drop what shows nothing."""
    text = view.cased
    if text.isascii() and len(text.encode().translate(None, _CONTROLS)) == len(text):
        return view
    return _edited(view, ((m.start(), m.end(), "") for m in _UNSEEN.finditer(text)))


def _composed(view: View, *, bare: bool) -> View:
    """Apply NFKC and fold look-alikes; ``bare`` takes marks written apart off Latin letters."""
    text = view.cased
    if text.isascii():
        return view
    text = singles(text)
    made = _edited(view.reading(text), clusters(text, bare=bare))
    folded = made.cased
    if _LOOKS.search(folded):
        folded = folded.translate(FOLDS)
    folded = _DIGITS.sub(_digit, folded)
    return View(folded, made._edits, made._below, normal=True)


def _digit(match: re.Match[str]) -> str:
    value = decimal(match.group(), None)
    return match.group() if value is None else str(value)


def _close(view: View) -> View:
    """Join letters that stand apart: ``s e c r e t``."""
    if not _apart(view.cased.encode("utf-8", "surrogatepass")):
        return view
    changes: list[tuple[int, int, str]] = []
    for match in _SPACED.finditer(view.cased):
        changes += ((gap, gap + 1, "") for gap in range(match.start() + 1, match.end(), 2))
    return _edited(view, changes)


def _joined(view: View) -> Iterator[View]:
    """Drop what stands within words; a hyphen at the end of a line both with it and without."""
    changes = [*within_words(view.cased)]
    if changes:
        yield _edited(view, changes)
        if any(view.cased[start] == "-" for start, *_ in changes):
            yield _edited(view, line_ends(view.cased))


def _decoded(
    view: View, torn: bool, most: int | None, near: int | None, layers: int
) -> Iterator[View]:
    """Read what runs say, but with ``near`` of one that may go on."""
    if most == 0 or not layers:
        return
    upto = len(view.cased)
    if near is not None:
        upto = base64_text.open_run(view.cased, torn=torn, most=most, near=near)
    for match in base64_text.runs(view.cased):
        run, at = match.group(), match.start()
        if at >= upto:
            return
        for start, end, text in base64_text.decodings(run, most, torn=torn and at == 0):
            if at + start < upto:
                yield from _layers(text, view.span(at + start, at + end), layers)


def _layers(text: str, whole: tuple[int, int], layers: int) -> Iterator[View]:
    """Return all readings of a text that was encoded, within which there may be more."""
    for view in _read(text, escaped=False, torn=False, most=None, layers=layers - 1)[0]:
        yield View(view.cased, view._edits, view._below, normal=view.normal, whole=whole)


def _letters_apart(text: str) -> int:
    """Return where letters at the end start that may stand apart; else the end of the text."""
    if text[-2:].isalpha() and len(text) > 1:
        return len(text)  # a word, as nearly always
    match = _ENDING.search(text, max(0, len(text) - 12))
    if match is None or not match.group():
        return len(text)
    letters = (len(match.group()) + 1) // 2
    trails = len(match.group()) % 2 == 0
    if letters < _SINGLES or (letters == _SINGLES and not trails):
        return match.start()
    return len(text) - (1 if trails else 2)


def _unmasked(view: View, shadow: re.Match[str]) -> View:
    text = "".join(chr(ord(each) - 0xE0000) for each in shadow.group())
    return View(text, whole=view.span(*shadow.span()))
