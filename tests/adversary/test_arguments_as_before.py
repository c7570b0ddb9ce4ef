"""Guards find the same in arguments of tools, whole, in pieces and in any escapes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from itertools import pairwise

from proxy.errors import GuardBlocked
from proxy.guards.findings import RuleTally
from proxy.guards.stream.arguments import ArgumentsWindow
from proxy.guards.stream.text_filter import ReleasedPiece
from proxy.guards.stream.window import Window
from proxy.types.guard import Action, GuardRule
from tests.adversary.places import FORMS, PLANTS, says
from tests.for_each import for_each
from tests.guards.doubles import Ticks
from tools.measure import detector

FINDERS = {
    "keywords": detector(
        "keywords", words=["forbidden"], patterns=[r"\d{3}-\d{2}"], whole_words=True
    ),
    "secrets": detector("secrets", reach=1200),
    "pii": detector("pii", entities=["card", "email", "iban", "ip"], regions=[], threshold=0.5),
    "code": detector("code"),
    "toxicity": detector("toxicity", threshold=0.5),
    "length": detector("length", tokens=3),
}
MARKS = ("\uff46\uff4f\uff52bidden", 'a "b" \\', "x\n", "e\u0301", "%41", "&#102;orbidden", "f o r")
VALUES: dict[str, Callable[[random.Random], object]] = {
    "numbers": lambda draw: draw.randrange(10 ** draw.randrange(1, 20)),
    "numbers with points": lambda draw: draw.random() * 10 ** draw.randrange(8),
    "words that say nothing": lambda draw: draw.choice([True, False, None, ""]),
    "words": lambda draw: draw.choice(["all", "is", "well", "a@b.example", "10.0.0.1", "123-45"]),
    "marks": lambda draw: draw.choice(MARKS),
    "plants": lambda draw: draw.choice(
        [form(PLANTS[name]) for each, form in FORMS.items() for name in PLANTS if says(each, name)]
    ),
    "long words": lambda draw: "word " * draw.randrange(2000),
    "members": lambda draw: {str(draw.randrange(99)): ["forbidden", draw.randrange(9)]},
}


class PieceByPiece(Window):
    __slots__ = ()

    def take(self, text: str) -> list[ReleasedPiece]:
        return [*self.feed(text), *self.close()]


def read(window: ArgumentsWindow, parts: Sequence[str]) -> tuple[str, str]:
    output = ""
    try:
        for part in parts:
            output += "".join(piece.text for piece in window.feed(part))
        return output + "".join(piece.text for piece in window.close()), ""
    except GuardBlocked as blocked:
        return "", f"{blocked.guard} {blocked.kind}"


def window(kind: type[Window], tallies: Sequence[RuleTally]) -> ArgumentsWindow:
    return ArgumentsWindow(kind(tallies, escaped=True), kind(tallies), tallies)


def at_work(names: Sequence[str], action: Action) -> list[RuleTally]:
    rules = [GuardRule(name, FINDERS[name], action, cased=name != "keywords") for name in names]
    return [RuleTally(name, Ticks()) for name in rules]


@for_each("action", ["mask", "flag", "block"])
@for_each("shape", VALUES)
def test_the_same_is_found_in_values_of_arguments(shape: str, action: Action) -> None:
    draw = random.Random(shape)  # noqa: S311  # the same values each time
    for names in (*([finder] for finder in FINDERS), ["keywords", "secrets", "pii"], [*FINDERS]):
        for ascii_only in (True, False):
            values = [VALUES[shape](draw) for _ in range(12)]
            text = json.dumps(values, ensure_ascii=ascii_only)
            cut = draw.randrange(len(text))
            tallies, other_tallies = at_work(names, action), at_work(names, action)

            results = read(window(Window, tallies), [text[:cut], text[cut:]])
            assert results == read(window(PieceByPiece, other_tallies), [text[:cut], text[cut:]])
            if not results[1]:
                assert [finder.result() for finder in tallies] == [
                    finder.result() for finder in other_tallies
                ]


JOINTS = ("", " ", "\n", "\t", "\r\n", '"', "\\", "/", "\b", "é\n", "\\n", "n")
PLANTED = ("jane@example.com", "4111 1111 1111 1111", "forbidden", "123-45", "10.0.0.1", "words")


@for_each("names", [["pii"], ["keywords"], ["secrets"], ["pii", "keywords"]])
def test_what_is_masked_in_arguments_is_what_is_masked_in_their_texts(names: list[str]) -> None:
    draw = random.Random(names[0])  # noqa: S311  # the same values each time
    for _ in range(60):
        parts = (draw.choice((*JOINTS, *PLANTED)) for _ in range(draw.randrange(1, 9)))
        text = "".join(parts)
        arguments = json.dumps([text], ensure_ascii=draw.random() < 0.5)
        cuts = sorted(draw.sample(range(len(arguments)), min(3, len(arguments))))
        pieces = [arguments[a:b] for a, b in pairwise([0, *cuts, len(arguments)])]

        output, _ = read(window(Window, at_work(names, "mask")), pieces)

        plain = Window(at_work(names, "mask"))
        masked = "".join(piece.text for piece in [*plain.feed(text), *plain.close()])
        assert json.loads(output) == [masked]
