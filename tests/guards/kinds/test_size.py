from __future__ import annotations

from proxy.guards.kinds.resources import Length, count_lines, count_tokens
from proxy.types.guard import Finding
from tests.for_each import for_each


def test_a_text_within_its_bounds_passes() -> None:
    assert list(Length(characters=5, lines=1, tokens=2).find("order")) == []
    assert list(Length().find("order" * 1000)) == []


@for_each(
    ("bounds", "kind"),
    [
        (Length(characters=10), "characters"),
        (Length(lines=1), "lines"),
        (Length(tokens=2), "tokens"),
        (Length(characters=99, lines=1, tokens=1), "lines"),
    ],
)
def test_the_whole_text_is_found_by_the_first_bound_it_exceeds(bounds: Length, kind: str) -> None:
    assert list(bounds.find("order\nsearch")) == [Finding(0, 12, kind)]
    assert bounds.lookback is None


def test_lines_are_counted_as_people_do() -> None:
    assert [count_lines(text) for text in ("", "a", "a\n", "a\nb", "\n\n")] == [0, 1, 1, 2, 2]


def test_tokens_are_those_of_the_one_estimate() -> None:
    assert [count_tokens(text) for text in ("", "a", "order", "日本", "😀")] == [0, 1, 2, 2, 2]
