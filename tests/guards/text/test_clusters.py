"""Letters and the marks on them: composed as Unicode does, and in linear time."""

from __future__ import annotations

from unicodedata import normalize

from proxy.guards.text.clusters import MOST, clusters, open_cluster, singles
from proxy.guards.text.normalize import variants
from tests.for_each import for_each
from tests.guards.growth import LINEAR, SHAPES, SIZE, TIMES, grown


def composed(text: str, *, bare: bool = False) -> str:
    text, past = singles(text), 0
    parts: list[str] = []
    for start, end, made in clusters(text, bare=bare):
        parts += (text[past:start], made)
        past = end
    return "".join((*parts, text[past:]))


@for_each("shape", SHAPES)
def test_a_text_is_read_in_linear_time(shape: str) -> None:
    made = SHAPES[shape]

    assert grown(variants, made(SIZE), made(SIZE * TIMES)) < LINEAR


def test_every_character_is_composed_as_unicode_does() -> None:
    for each in map(chr, (*range(0xD800), *range(0xE000, 0x30000), *range(0xE0000, 0xE1000))):
        assert composed(each) == normalize("NFKC", each)


@for_each("marks", [0, 1, MOST, MOST + 1, 3 * MOST])
def test_so_many_marks_are_composed_and_the_rest_stays(marks: int) -> None:
    text = "e" + "\u0315\u0316" * marks

    assert composed(text) == normalize("NFKC", text[: MOST + 1]) + text[MOST + 1 :]
    assert composed(text, bare=True) == "e"


def test_a_letter_is_open_until_it_has_all_its_marks() -> None:
    assert open_cluster("") == 0
    assert open_cluster("ab") == 1
    assert open_cluster("ab" + "\u0315" * MOST) == 1
    assert open_cluster("ab" + "\u0315" * (MOST + 1)) == MOST + 3
