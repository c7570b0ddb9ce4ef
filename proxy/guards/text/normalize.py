"""Readings of a text without its disguises, with each position traced to the original.

The first reading is the text itself, so that literal patterns match; others exist only if they
differ. A finding in any reading maps to the smallest span of the original that produced it.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from unicodedata import decimal

from proxy.guards.matching.re2set import encode_utf8
from proxy.guards.text import base64_text, disguises

_UNSEEN = re.compile(f"[{disguises.INVISIBLE}]+")
_CONTROLS = bytes(i for i in range(128) if re.match(f"[{disguises.CONTROLS}]", chr(i)))
_LOOK_ALIKE = re.compile("[" + re.escape("".join(map(chr, disguises.LOOK_ALIKES))) + "]")
_TAG_RUN = re.compile(f"[{disguises.TAGS}]+")
_TAG_CHARACTERS = "".join(map(chr, range(ord(disguises.TAGS[0]), ord(disguises.TAGS[-1]) + 1)))
_MIN_SEPARATED_LETTERS = 3  # minimum number of separated letters that are read as one word
_NUMBER = re.compile(r"[+-]?[0-9.]{1,10}(?:[eE][+-]?[0-9]{1,2})?")  # too short for a base64 run
_EXPANDING = "".join(
    each
    for each in map(chr, (*range(0x80, 0x2000), *range(0xFB00, 0xFB18)))
    if len(each.casefold()) > 1
)
_FOLDED_TOGETHER = re.compile(f"[{_EXPANDING}]|[^{_EXPANDING}]+")
_DIGITS = re.compile(r"[^\D0-9]")
_ENDING = re.compile(rf"(?<![^\W\d_])(?:[^\W\d_]{disguises.LETTER_GAP})*[^\W\d_]?\Z")
_BATCH_CHARS = 16  # characters read in a batch in the time of a single one
MAX_LAYERS = 4  # maximum depth of nested encodings


class Edit(NamedTuple):
    """Maps characters of a reading to a span of its source."""

    view_start: int
    view_size: int
    source_start: int
    source_end: int


@dataclass(slots=True, eq=False)
class View:
    """One reading of a text: the reading ``_source``, or the original text, with edits.

    - ``cased`` keeps the case and ``folded`` does not. Positions are the same in both.
    - ``is_normalized`` is True if look-alikes are folded.
    - ``encoded_span`` is the span of the encoded text in the original, for a decoded text. It
      becomes the span of every finding.
    - ``is_escaped_form`` is True for the escaped form of a JSON string. It is not searched, because
      a finding could begin within an escape.
    """

    cased: str
    _edits: tuple[Edit, ...] = ()
    _source: View | None = None
    is_normalized: bool = field(default=False, kw_only=True)
    encoded_span: tuple[int, int] | None = field(default=None, kw_only=True)
    is_escaped_form: bool = field(default=False, kw_only=True)
    _folded: str | None = field(default=None, init=False)

    @classmethod
    def build_normalized(cls, text: str, *, in_json: bool = False) -> View:
        """Return the normalized reading; ``in_json``: of a text in a JSON string."""
        return _apply_nfkc(
            _remove_invisible(_decode_escapes(_decode_json_escapes(text, in_json))),
            strip_marks=False,
        )

    @property
    def folded(self) -> str:
        if self._folded is None:
            self._folded = _fold_case_keeping_length(self.cased)
            if self.is_normalized:
                # A lower-case letter may look like ASCII where its capital does not.
                self._folded = self._folded.translate(disguises.LOOK_ALIKES)
        return self._folded

    @property
    def is_unchanged(self) -> bool:
        """True if every position is the same in the original."""
        return self.encoded_span is None and not self._edits and self._source is None

    @property
    def edit_count(self) -> int:
        """The number of differences from the original."""
        return len(self._edits) + (self._source.edit_count if self._source is not None else 0)

    def original_span(self, start: int, end: int) -> tuple[int, int]:
        """Return the span in the original of a non-empty span."""
        if self.encoded_span is not None:
            return self.encoded_span
        if self._edits:
            start, end = self._map_position(start)[0], self._map_position(end - 1)[1]
        return (start, end) if self._source is None else self._source.original_span(start, end)

    def original_start(self, position: int) -> int:
        """Return the start of a character in the original, or its end after the last one."""
        if position < len(self.cased):
            return self.original_span(position, position + 1)[0]
        return self.original_span(position - 1, position)[1] if position else 0

    def index_of_original(self, original: int) -> int:
        """Return the first position whose character starts at ``original`` or later."""
        if self.is_unchanged:
            return min(original, len(self.cased))
        return bisect_left(range(len(self.cased)), original, key=self.original_start)

    def _map_position(self, position: int) -> tuple[int, int]:
        index = bisect_right(self._edits, position, key=lambda edit: edit.view_start) - 1
        if index < 0:
            return position, position + 1
        edit = self._edits[index]
        distance = position - edit.view_start - edit.view_size
        if distance < 0:
            return edit.source_start, edit.source_end
        return edit.source_end + distance, edit.source_end + distance + 1


def build_views(
    text: str, *, in_json: bool = False, max_run: int | None = None
) -> tuple[View, ...]:
    """Return the text and all other readings.

    Of a base64 run, ``max_run`` characters are decoded.
    """
    return _build_views_and_steps(text, in_json, begins_in_base64=False, max_run=max_run).views


def build_base64_views(run: str, span: tuple[int, int]) -> Iterator[View]:
    """Yield all readings of a run of base64, and of hex in it. ``span`` is the place of the run."""
    for start, end, text in base64_text.decode_base64_or_hex(run):
        yield from _iter_nested_views(text, (span[0] + start, span[0] + end), MAX_LAYERS)


class PartialReadings(NamedTuple):
    """The readings of a text that may continue.

    - Text that follows does not change the readings before ``settled_end``.
    - ``open_run_start`` is the start of base64 that may continue, or the end of the text.
    - ``extra_weight`` is the cost of reading single letters, 0 for plain text.
    """

    views: tuple[View, ...]
    settled_end: int
    open_run_start: int
    extra_weight: int = 0


def build_partial_readings(
    text: str,
    preceding: str = "",
    *,
    in_json: bool = False,
    max_run: int | None = None,
    min_run: int = 0,
    is_final: bool = False,
) -> PartialReadings:
    """Return the readings of a text that may continue, and follows a character ``preceding``.

    More text may change the last character (a mark may follow), an incomplete escape, and single
    letters. Base64 that began before the text is not decoded.

    - If the text ``is_final``, base64 at its end is decoded.
    - At most ``max_run`` characters of one run of base64 are held and decoded.
    - A run of up to ``min_run`` characters is ignored, because that many are held anyway.
    """
    alphabet = base64_text.BASE64_ALPHABET
    torn = bool(preceding) and preceding in alphabet and text[:1] in alphabet
    views, bare, visible, opened = _build_views_and_steps(
        text, in_json, torn, max_run, min_run=None if is_final else min_run
    )
    end = _find_incomplete_escape(text, in_json)
    is_cut = end < len(text)
    letter = disguises.find_last_cluster_start(
        visible.cased[: visible.index_of_original(end)] if is_cut else visible.cased
    )
    sure = bare.cased[: bare.index_of_original(end)] if is_cut else bare.cased
    run = base64_text.find_open_base64_run(
        sure, begins_in_base64=torn, max_run=max_run, min_run=min_run
    )
    marks = min(_find_trailing_separated_letters(sure), disguises.find_trailing_markup(sure))
    tags = opened.original_start(len(opened.cased.rstrip(_TAG_CHARACTERS)))
    settled_end = min(end, visible.original_start(letter), bare.original_start(marks), tags)
    extra_weight = 0
    if opened is not views[0]:  # single characters cost more than batches
        stretch = (0 if text.isascii() else len(text)) + sum(len(view.cased) for view in views[1:])
        escapes = text.count("&") + text.count("%") + text.count("\\")
        extra_weight = stretch // _BATCH_CHARS + escapes + sum(view.edit_count for view in views)
    return PartialReadings(views, settled_end, bare.original_start(run), extra_weight=extra_weight)


class _ViewsAndSteps(NamedTuple):
    views: tuple[View, ...]
    without_marks: View
    without_invisible: View
    without_escapes: View


def _build_views_and_steps(
    text: str,
    in_json: bool,
    begins_in_base64: bool,
    max_run: int | None,
    *,
    min_run: int | None = None,
    layers: int = MAX_LAYERS,
) -> _ViewsAndSteps:
    """``min_run`` does not apply to a run at the end, which may continue."""
    itself, ascii_only = View(text), text.isascii()
    if _NUMBER.fullmatch(text) or (ascii_only and disguises.has_no_disguise(text.encode())):
        return _ViewsAndSteps((itself,), itself, itself, without_escapes=itself)
    unquoted = _decode_json_escapes(text, in_json)
    opened = _decode_escapes(unquoted)
    visible = _remove_invisible(opened)
    normal = _apply_nfkc(visible, strip_marks=False)
    views = [itself] if unquoted.is_unchanged else [View(text, is_escaped_form=True), unquoted]
    if normal.cased != unquoted.cased or (not ascii_only and _LOOK_ALIKE.search(unquoted.folded)):
        views.append(normal)
    bare = (
        _apply_nfkc(visible, strip_marks=True)
        if disguises.has_combining_marks(visible.cased)
        else normal
    )
    hits = disguises.DISGUISES.find_candidates(encode_utf8(bare.cased))
    gaps = disguises.find_letter_gaps(bare.cased) if disguises.SEPARATED in hits else ()
    close = _apply_edits(bare, gaps)
    if close.cased != normal.cased:
        views.append(close)
    if disguises.MARKED in hits:
        views += _iter_views_without_markup(bare)
    if disguises.ENCODED in hits:
        views += _iter_decoded_views(bare, begins_in_base64, max_run, min_run, layers)
    for shadow in () if opened.cased.isascii() else _TAG_RUN.finditer(opened.cased):
        tags = "".join(chr(ord(tag) - 0xE0000) for tag in shadow.group())
        views.append(View(tags, encoded_span=opened.original_span(*shadow.span())))
    return _ViewsAndSteps(tuple(views), bare, visible, without_escapes=opened)


def normalize_word(word: str) -> str:
    """Return a word of a policy as in the normalized reading of a text."""
    return View.build_normalized(word).folded


def _fold_case_keeping_length(text: str) -> str:
    """Fold the case without a change of length: a character that would expand is only lowered."""
    return text.lower() if text.isascii() else _FOLDED_TOGETHER.sub(_fold_match, text)


def _fold_match(match: re.Match[str]) -> str:
    text = match[0]
    forms = (text.casefold(), text.lower())
    return next((form for form in forms if len(form) == len(text)), text)


def _apply_edits(view: View, changes: Iterable[tuple[int, int, str]]) -> View:
    """Replace spans of a reading. Return the same reading if nothing changes."""
    text = view.cased
    parts: list[str] = []
    edits: list[Edit] = []
    position = past = 0
    for start, end, replacement in changes:
        position += start - past
        parts += (text[past:start], replacement)
        edits.append(Edit(position, len(replacement), source_start=start, source_end=end))
        position += len(replacement)
        past = end
    if not edits:
        return view
    parts.append(text[past:])
    source = None if view.is_unchanged else view
    return View("".join(parts), tuple(edits), source, is_normalized=view.is_normalized)


def _decode_json_escapes(text: str, in_json: bool) -> View:
    """Return a view of a text in a JSON string, with its escapes decoded."""
    view = View(text)
    if not (in_json and "\\" in text):
        return view
    return _apply_edits(view, disguises.find_escapes(text, disguises.JSON_ESCAPES))


def _decode_escapes(view: View) -> View:
    """Return a reading with its escapes decoded once."""
    may_have_escapes = disguises.may_have_escapes(view.cased)
    return _apply_edits(view, disguises.find_escapes(view.cased)) if may_have_escapes else view


def _find_incomplete_escape(text: str, in_json: bool) -> int:
    if not (in_json and "\\" in text):
        return disguises.find_incomplete_escape(text)
    end = disguises.find_incomplete_escape(text, in_json=True)
    view = _decode_json_escapes(text, in_json)
    decoded_end = disguises.find_incomplete_escape(view.cased[: view.index_of_original(end)])
    return min(end, view.original_start(decoded_end))


def _remove_invisible(view: View) -> View:
    text = view.cased
    if text.isascii() and len(text.encode().translate(None, _CONTROLS)) == len(text):
        return view
    return _apply_edits(view, ((m.start(), m.end(), "") for m in _UNSEEN.finditer(text)))


def _apply_nfkc(view: View, *, strip_marks: bool) -> View:
    """Apply NFKC and fold look-alikes; ``strip_marks`` removes the marks of Latin letters."""
    text = view.cased
    if text.isascii():
        return view
    text = disguises.apply_one_to_one_nfkc(text)
    edits = disguises.find_nfkc_cluster_edits(text, strip_marks=strip_marks)
    composed = _apply_edits(replace(view, cased=text), edits)
    folded = composed.cased
    if _LOOK_ALIKE.search(folded):
        folded = folded.translate(disguises.LOOK_ALIKES)
    folded = _DIGITS.sub(lambda match: str(decimal(match.group())), folded)
    return replace(composed, cased=folded, is_normalized=True)


def _iter_views_without_markup(view: View) -> Iterator[View]:
    """Drop marks within words, with and without a hyphen at the end of a line."""
    changes = [*disguises.find_markup_in_words(view.cased)]
    if changes:
        yield _apply_edits(view, changes)
        with_hyphens = [(start + (view.cased[start] == "-"), end, "") for start, end, _ in changes]
        if with_hyphens != changes:
            yield _apply_edits(view, with_hyphens)


def _iter_decoded_views(
    view: View, begins_in_base64: bool, max_run: int | None, min_run: int | None, layers: int
) -> Iterator[View]:
    """Yield readings of base64 runs, with ``min_run`` except of a run that may continue."""
    if max_run == 0 or not layers:
        return
    upto = len(view.cased)
    if min_run is not None:
        upto = base64_text.find_open_base64_run(
            view.cased, begins_in_base64=begins_in_base64, max_run=max_run, min_run=min_run
        )
    for match in base64_text.find_base64_runs(view.cased):
        run, offset = match.group(), match.start()
        if offset >= upto:
            return
        for start, end, text in base64_text.decode_base64_or_hex(
            run, max_run, is_remainder=begins_in_base64 and offset == 0
        ):
            if offset + start < upto:
                yield from _iter_nested_views(
                    text, view.original_span(offset + start, offset + end), layers
                )


def _iter_nested_views(text: str, span: tuple[int, int], layers: int) -> Iterator[View]:
    """Yield all readings of a decoded text, which may contain further encodings."""
    for view in _build_views_and_steps(
        text, in_json=False, begins_in_base64=False, max_run=None, layers=layers - 1
    ).views:
        yield replace(view, encoded_span=span)


def _find_trailing_separated_letters(text: str) -> int:
    """Return the start of separated letters at the end, or the end of the text."""
    if text[-2:].isalpha() and len(text) > 1:
        return len(text)  # the usual case: a word
    match = _ENDING.search(text, max(0, len(text) - 12))
    if match is None or not match.group():
        return len(text)
    letters = (len(match.group()) + 1) // 2
    trails = len(match.group()) % 2 == 0
    if letters < _MIN_SEPARATED_LETTERS or (letters == _MIN_SEPARATED_LETTERS and not trails):
        return match.start()
    return len(text) - (1 if trails else 2)
