"""National numbers with valid check digits, drawn from examples, and sentences with them."""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Iterator

import re2

from proxy.guards.matching.identifiers import NATIONAL_ID_FORMATS, SSN_FORMS, load_validator
from tests.guards.identifiers import NAMED_VALUES, VALUES

CLASSES = (string.digits, string.ascii_uppercase, string.ascii_lowercase)
KEYS = ("national_id", "nationalId", "tax_id", "taxId", "id_number", "personal id", "tin")
SENTENCES = {
    "alone": "{}",
    "in a sentence": "Please write this down: {}.",
    "under a key": '{{"name": "Ada", "KEY": "{}"}}',
    "in a form": "KEY: {}\nname: Ada",
}


def _examples() -> dict[str, list[str]]:
    """Return spellings of national numbers by their kind."""
    known_values: dict[str, list[str]] = {}
    alone = [(kind, value) for kind, values in VALUES.items() for value in values]
    for kind, value in alone + [(kind, value) for kind, _, value in NAMED_VALUES]:
        if value.isascii() and (kind == "ssn" or kind.startswith("id_")):
            known_values.setdefault(kind, []).append(value)
    return known_values


EXAMPLES = _examples()


def texts(kind: str, example: str, place: str) -> Iterator[tuple[str, str]]:
    """Yield numbers like an example, each in a sentence."""
    chance = random.Random(place)
    needs_name = not any(example in values for values in VALUES.values())
    if needs_name and "KEY" not in SENTENCES[place]:
        return
    for number in numbers(kind, example, 10):
        yield number, SENTENCES[place].replace("KEY", chance.choice(KEYS)).format(number)


def numbers(kind: str, example: str, count: int) -> list[str]:
    """Draw numbers of the example's form, all with valid check digits."""
    chance = random.Random(f"{kind} {example}")
    is_valid = _validator(kind, example)
    drawn: list[str] = []
    value = example
    while len(drawn) < count:
        position = chance.sample(range(len(value)), k=min(4, len(value)))
        changed = "".join(
            _other(chance, letter) if place in position else letter
            for place, letter in enumerate(value)
        )
        if changed != value and is_valid(changed):
            drawn.append(changed)
            value = changed
    return drawn


def _other(chance: random.Random, letter: str) -> str:
    return next((chance.choice(item) for item in CLASSES if letter in item), letter)


def _validator(kind: str, example: str) -> Callable[[str], bool]:
    forms = (SSN_FORMS,) if kind == "ssn" else NATIONAL_ID_FORMATS[kind.removeprefix("id_")]
    form = next(form for form in forms if re2.fullmatch(form.pattern, example))
    checks = load_validator(form)
    return lambda value: bool(re2.fullmatch(form.pattern, value)) and checks(value)
