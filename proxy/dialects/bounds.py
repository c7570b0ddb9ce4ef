"""The fields that say how much a model may answer, in every word that servers have for it.

This is the one table of them: what a call claims, what a cap lowers, what a rule sets and which
types are checked at the door all read it. A server obeys the names that it knows, at the top of a
request or in a group of options, so whatever a request says of them counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from proxy.dialects.fields import (
    LONGEST_NAME,
    SPELLED,
    Field,
    Fields,
    anything,
    boolean,
    folded,
    integer,
    mapping,
    number,
    string,
    types_of,
)
from proxy.errors import BadField
from proxy.types import Json

MOST = 2**53
UNBOUNDED = -2  # servers take -1 and -2 for "as many as there is room for"

BOUNDS: Mapping[str, int] = {
    "max_tokens": 0,
    "max_completion_tokens": 0,
    "max_new_tokens": 0,
    "max_output_tokens": 0,
    "max_length": 0,
    "max_tokens_to_sample": 0,
    "n_predict": 0,
    "num_predict": 1,
}
"""The most tokens of an answer, and the smallest value that is a bound: what is less means none."""

FLOORS = frozenset({"min_tokens", "min_new_tokens", "min_length"})
"""The fewest tokens of an answer: a server goes on until it has as many."""

LENGTHS = BOUNDS.keys() | FLOORS

CHOICES: Mapping[str, int] = {"n": 1, "best_of": 0, "n_cmpl": 1, "num_return_sequences": 1}
"""How many answers are made of one prompt, and the smallest value."""

GROUPS = frozenset(
    {"extra_body", "generation_config", "inference_extra_params", "options", "parameters"}
    | {"sampling_params"}
)
"""Objects in a request whose members some servers read as if they stood at its top."""

LEGACY_DEFAULT = 16
"""The tokens of a legacy completion that says no bound, at OpenAI, Portkey and Fireworks."""

NUMBERS: Fields = {
    **dict.fromkeys(BOUNDS, integer(UNBOUNDED, MOST)),
    **dict.fromkeys(FLOORS, integer(0, MOST)),
    **{name: integer(least, MOST) for name, least in CHOICES.items()},
}
"""The types of all these fields, wherever no dialect says more of them."""


TYPES: Fields = {
    **NUMBERS,
    **dict.fromkeys(GROUPS, anything()),
    "inference_timeout": number(0),
    "stream": boolean(),
    "stream_options": mapping(),
    "temperature": number(),
    "top_p": number(),
    "user": string(),
}
"""The types of all fields that the house itself reads, where a dialect has no such field."""


def tokens(least: int) -> Field:
    """A number of tokens, or of answers: no larger than can be reckoned with exactly."""
    return integer(least, MOST)


def typed(fields: Fields) -> Fields:
    """Return a dialect's fields without their ranges."""
    return {name: NUMBERS.get(name, field) for name, field in types_of(fields).items()}


def at_door(fields: Fields) -> Fields:
    """Return all fields that are checked before anybody looks at a request of a dialect."""
    return {**fields, **{name: TYPES[name] for name in TYPES.keys() - fields.keys()}}


def groups(body: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    """Yield the request and each group of options in it, with the path of its members."""
    yield path, body
    if GROUPS.isdisjoint(body):
        return
    for name in GROUPS & body.keys():
        if isinstance(body[name], dict):
            yield from groups(body[name], f"{path}{name}.")


def check_groups(body: Json) -> None:
    """Raise ``BadField`` for a number within a group of options that is none, or out of bounds."""
    if GROUPS.isdisjoint(body):
        return
    for path, group in groups(body):
        if not path:
            continue
        for name, value in group.items():
            known = NUMBERS.get(name)
            if known is None:
                _check_unknown(path, name)
            elif value is not None and (problem := known.check(value)) is not None:
                raise BadField(path + name, problem)


def _check_unknown(path: str, name: str) -> None:
    if len(name) > LONGEST_NAME:
        problem = f"must name its members in at most {LONGEST_NAME} characters"
        raise BadField(path.removesuffix("."), problem)
    small = folded(name)
    if small != name and (small in NUMBERS or small in GROUPS):
        raise BadField(path + small, SPELLED)


def is_bound(name: str, value: int) -> bool:
    """True if the value bounds an answer; a smaller one asks for as many tokens as there are."""
    return value >= BOUNDS[name]


def most_tokens(
    body: Json, obeyed: Collection[str], unbounded: int, *, takes_zero: bool = False
) -> int:
    """Return the most tokens that all answers to one prompt of a request may have together.

    ``obeyed`` are the names that the server is known to obey. Where none of them is a bound, an
    answer may have ``unbounded`` tokens, as the server may not know the others; and also where one
    is 0 and the server is not known to take that for none, as ``takes_zero`` says.
    """
    longest, choices, bounded = 0, 1, False
    for path, group in groups(body):
        for name, value in group.items():
            if value is None:
                continue
            if name in CHOICES:
                choices = max(choices, value)
            elif name in BOUNDS and not (value > 0 or (takes_zero and is_bound(name, value))):
                longest = max(longest, unbounded)
            elif name in LENGTHS:
                longest = max(longest, value)
                bounded = bounded or (not path and name in BOUNDS and name in obeyed)
    return choices * (longest if bounded else max(longest, unbounded))
