"""The names of placeholders in a text: where they stand, and where one may be about to."""

from __future__ import annotations

from proxy.guards.stream.rewritten import PlaceholderNames
from tests.for_each import for_each
from tests.guards.growth import LINEAR, TIMES, grown

NAMES = PlaceholderNames(["CARD_1_x7f", "EMAIL_1_x7f", "EMAIL_12_x7f"])
BEGINNINGS = (
    "[A", "[A\n", "A_", "_A", "%5FA", "%5BA", "\\", "\\[A_1", "EMAIL_1_", "[EMAIL_1_x7f", "\\_A",
    "a ",
)  # fmt: skip


@for_each(
    ("text", "found"),
    [
        ("to [EMAIL_12_x7f], EMAIL_1_x7f", [(3, 17, False), (19, 30, False)]),
        ("%5BCARD_1_x7f%5D", [(0, 16, True)]),
        ("[CARD_1_\nx7f] CARD_2_x7f", [(0, 13, False)]),
        ("[CARD_1_x8f]", []),
    ],
)
def test_names_are_found_with_what_is_written_around_them(
    text: str, found: list[tuple[int, int, bool]]
) -> None:
    assert [(each.start, each.end, each.quoted) for each in NAMES.written(text, 0)] == found
    assert [each for each in PlaceholderNames([]).written(text, 0)] == []


@for_each(
    ("text", "tail"),
    [
        ("to ", ""), ("to E", "E"), ("to e", ""), ("to EMAIL_1", "EMAIL_1"), ("EMAIL_3", ""),
        ("the E and EM", "EM"), ("to EMAIL_1_x7f", "EMAIL_1_x7f"), ("EMAIL_1_x7f.", ""),
        ("to \\", "\\"), ("to %5", "%5"), ("[[", "["), ("\\[CARD\\", "\\[CARD\\"),
        ("[CARD_1_x7f", "[CARD_1_x7f"), ("[CARD_1_x7f]", ""), ("[CARD_1_ ", "[CARD_1_ "),
        ("[CARS", ""),
    ],
)  # fmt: skip
def test_only_what_may_become_a_name_is_pending(text: str, tail: str) -> None:
    assert text[NAMES.pending(text, 0) :] == tail


@for_each("bit", BEGINNINGS)
def test_a_text_of_beginnings_is_read_in_linear_time(bit: str) -> None:
    def read(text: str) -> None:
        assert [*NAMES.written(text, 0)] == []
        for upto in range(0, len(text), 50):
            NAMES.pending(text[max(0, upto - 200) : upto], 0)

    bit = bit.replace("EMAIL_1_x7f", "EMAIL_2_x7f")
    assert grown(read, bit * 600, bit * 600 * TIMES) < LINEAR
