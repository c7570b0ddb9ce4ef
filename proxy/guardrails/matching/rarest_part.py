"""The part of a pattern that plain texts hardly have: where that is not, the pattern is nowhere.

To look for such parts is cheap, however many patterns have them, as none of them goes on over
words that may be any: it is those that make an automaton large.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from proxy.frozen import frozen
from proxy.guardrails.matching.match_length import TOKENS
from proxy.guardrails.matching.within_match import Edge, Either, Node, One, Repeat, Several, parsed

MOST = 8  # up to which a repeat of what may be left out is no gap
FEW = 4  # up to which one of what has to be there is none
LETTER, WORD, SIGN, OTHER, ANY = 0.2, 0.3, 0.4, 0.6, 1.0  # how often one is what is asked for
BEYOND_ASCII = LETTER * LETTER
_COMMON = (
    "a about above add after again ai all also an and answer any are as ask asked at back be "
    "been before but by call can change class close code come could customer data day dear "
    "display do don down each email end every file find first follow for forward from get "
    "give go good had has have he hello her here hey hi him his how http https i if in into "
    "is it its just key keys know let like line list ll long look made mail make many may me "
    "message model more most must my name need never new no not note now of old on one "
    "only open or order orders other our out output over own page part people place please "
    "post put question re read reading reply request run said same say see send set share "
    "she should show so some start starting step stop system take task tell text than that "
    "the their them then there these they thing this through time to told tool two up use "
    "user using very want was way we well were what when where which who will with without "
    "word work would write you your"
)
COMMON = frozenset(_COMMON.split())
"""Words that stand in many texts."""


@frozen
class Part:
    """A part of a pattern that is in each of its matches, and about how often plain texts have it:
    the share of places, from 0 to 1 or more."""

    node: Node
    often: float


def rarest_part(pattern: str, around: frozenset[str] = frozenset()) -> str:
    """Return a pattern that matches within each match of another one, which RE2 compiles; it
    matches everywhere where there is no such part. Flags that hold ``around`` the one are to hold
    around the other."""
    part = _rarest(parsed(pattern, around))
    return "" if part is None else str(part.node)


def _rarest(node: Node) -> Part | None:
    match node:
        case Several():
            return min(_parts(node), key=_how_often, default=None)
        case Either(branches):
            several = [_rarest(branch) for branch in branches]
            known = [part for part in several if part is not None]
            if len(known) < len(several):
                return None
            nodes = tuple(dict.fromkeys(part.node for part in known))
            return Part(Either(nodes), sum(part.often for part in known))
        case Repeat(part, least, _) if _is_gap(node):
            return _rarest(part) if least else None
        case _:
            return Part(node, _often((node,)))


def _parts(several: Several) -> Iterator[Part]:
    """Return the stretches of what follows each other that have no gap in them, and the rarest part
    of each that has."""
    for has_gap, nodes in groupby(_flat(several), _has_gap):
        if has_gap:
            yield from filter(None, map(_rarest, nodes))
        else:
            stretch = tuple(nodes)
            yield Part(Several(stretch), _often(stretch))


def _flat(several: Several) -> Iterator[Node]:
    for part in several.parts:
        if isinstance(part, Several):
            yield from _flat(part)
        else:
            yield part


def _is_gap(node: Repeat) -> bool:
    """True if a part may come again and again, with anything in it, or not at all."""
    if isinstance(node.part, One):
        return node.least == 0 and node.most > MOST
    return node.most > (FEW if node.least else 1)


def _has_gap(node: Node) -> bool:
    match node:
        case Repeat(part):
            return _is_gap(node) or _has_gap(part)
        case Several(parts) | Either(parts):
            return any(map(_has_gap, parts))
        case _:
            return False


def _often(nodes: Sequence[Node]) -> float:
    """Return how often plain texts have what follows each other, without a gap."""
    often, word = 1.0, ""
    for node in nodes:
        letter = _letter(node)
        if letter.isalpha():
            word += letter
            continue
        often *= _of_word(word) * _of(node, letter)
        word = ""
    return often * _of_word(word)


def _of_word(word: str) -> float:
    if word.lower() in COMMON:
        return WORD
    often = 1.0
    for letter in word:
        often *= LETTER if letter.isascii() else BEYOND_ASCII
    return often


def _of(node: Node, letter: str) -> float:
    match node:
        case Edge():
            return OTHER
        case One():
            return SIGN if letter else OTHER
        case Several(parts):
            return _often([*_flat(node)]) if parts else ANY
        case Either(branches):
            return min(ANY, sum(_often((branch,)) for branch in branches))
        case Repeat(part, least, _):
            return _often((part,)) if least else ANY


def _letter(node: Node) -> str:
    """Return the character that a part stands for; none where it stands for several."""
    if not isinstance(node, One):
        return ""
    token = TOKENS.fullmatch(node.text)
    text = token["one"] if token is not None else None
    if text is None or text == ".":
        return ""
    if len(text) == 1:
        return text
    return text[1] if len(text) == 2 and text[0] == "\\" and not text[1].isalnum() else ""


def _how_often(part: Part) -> float:
    return part.often
