"""How much a model may answer, in every name that servers have for it: see the column ``counts`` of
the table of fields.

A server obeys the names that it knows, at the top of a request or in a group of options, so each
of them counts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from proxy.errors import BadField
from proxy.fields.checks import Fields, anything, at_most, check_spelling, open_types
from proxy.fields.field_table import FIELDS, Count, fields_of
from proxy.fields.spelling import squeezed
from proxy.types import Json

ASSUMED_TOKENS = 1024  # of an answer that nothing bounds
LEGACY_DEFAULT = 16
"""The tokens of a legacy completion that says no bound, at OpenAI, Portkey and Fireworks."""


def _counted(*kinds: Count) -> Mapping[str, int]:
    """Return the smallest values of the fields that count in one of some ways."""
    return {name: row.least for name, row in FIELDS.items() if row.counts in kinds}


BOUNDS = _counted("bound")
"""The most tokens of an answer, and the smallest value that is a bound: what is less means none."""
FLOORS = frozenset(_counted("floor"))
"""The fewest tokens of an answer: a server goes on until it has as many."""
BUDGETS = frozenset(_counted("budget"))
"""The most tokens of what a model thinks before it answers. Some servers count them within the
bound of the answer, others beside it; what is not above 0 leaves it to the server."""
THOUGHTS = frozenset(_counted("thoughts"))
"""Groups of options that are about thinking: a bound within them is a budget."""
CHOICES = _counted("choices")
"""How many answers are made of one prompt, and the smallest value."""
GROUPS = frozenset(_counted("group", "thoughts"))
"""Objects in a request whose members some servers read as if they were at its top."""
LENGTHS = frozenset(_counted("bound", "floor", "budget"))
COUNTED = LENGTHS.union(CHOICES)
"""The fields that count for how much a model may answer."""
TYPES: Fields = fields_of("any")
"""The types of all fields that the proxy itself reads, where a dialect has no such field."""
NUMBERS: Fields = {name: TYPES[name] for name in COUNTED}
SPELLINGS: Mapping[str, str] = {squeezed(name): name for name in TYPES}
"""These fields by what their names have in common with other spellings of them."""


def typed(fields: Fields) -> Fields:
    """Return a dialect's fields without their ranges."""
    return {name: NUMBERS.get(name, known) for name, known in open_types(fields).items()}


def within(fields: Fields, most: Sequence[tuple[str, float]]) -> Fields:
    """Return fields with other upper bounds, by their names: of a number, or of how many entries an
    array has. Of their ranges these alone are left."""
    if not most:
        return fields
    types = typed({name: fields.get(name, TYPES.get(name, anything())) for name, _ in most})
    return {**fields, **{name: at_most(types[name], bound) for name, bound in most}}


def checked_fields(fields: Fields) -> Fields:
    """Return all fields that are checked before anybody looks at a request of a dialect."""
    return {**fields, **{name: TYPES[name] for name in TYPES.keys() - fields.keys()}}


def groups(body: Json, path: str = "") -> list[tuple[str, Json]]:
    """Return the request and each group of options in it, with the path of its members."""
    found = [(path, body)]
    if not GROUPS.isdisjoint(body):
        for name in GROUPS & body.keys():
            if isinstance(body[name], dict):
                found += groups(body[name], f"{path}{name}.")
    return found


def check_groups(body: Json) -> None:
    """Raise ``BadField`` for a number within a group of options that is none, or out of bounds."""
    if GROUPS.isdisjoint(body):
        return
    for path, group in groups(body):
        if not path:
            continue
        for name, value in group.items():
            known = NUMBERS.get(name)
            problem = None if known is None or value is None else known.check(value)
            if problem is not None:
                raise BadField(path + name, problem)
            if known is None and name not in TYPES:
                check_spelling(TYPES, SPELLINGS, name, path)


def counts_as(path: str, name: str) -> str:
    """Return the name that a field counts as: a bound on thoughts is a budget."""
    if not path:
        return "budget_tokens" if name in BUDGETS else name
    within = path.rpartition(".")[0].rpartition(".")[2]
    return "budget_tokens" if name in BUDGETS or (within in THOUGHTS and name in BOUNDS) else name


def is_bound(name: str, value: int) -> bool:
    """True if the value bounds an answer; a smaller one asks for as many tokens as there are."""
    return value >= BOUNDS[name]


def most_tokens(
    body: Json, obeyed: Collection[str], unbounded: int, *, takes_zero: bool = False
) -> int:
    """Return the most tokens that all answers to one prompt of a request may have together.

    ``obeyed`` are the names that the server is known to obey. Where none of them is a bound, an
    answer may have ``unbounded`` tokens, as the server may not know the others; and also where one
    is 0 and the server is not known to take that for none, as ``takes_zero`` says. A budget of
    thoughts in a group that the server obeys is part of the bound, as in Anthropic's ``thinking``;
    any other may be beside it.
    """
    longest, choices, bounded = 0, 1, False
    thoughts = {False: 0, True: 0}  # by whether the bound of the answer includes them
    for path, group in groups(body):
        for field in COUNTED.intersection(group):
            value = group[field]
            if value is None:
                continue
            name = counts_as(path, field)
            if name in CHOICES:
                choices = max(choices, value)
            elif name in BUDGETS:
                is_part = path[:-1] in obeyed
                thoughts[is_part] = max(thoughts[is_part], value if type(value) is int else 0)
            elif name in BOUNDS and not (value > 0 or (takes_zero and is_bound(name, value))):
                longest = max(longest, unbounded)
            else:
                longest = max(longest, value)
                bounded = bounded or (not path and name in BOUNDS and name in obeyed)
    included = thoughts[True]
    answer = max(longest, included) if bounded else max(longest, unbounded) + included
    return choices * (answer + thoughts[False])


def most_answered(body: Json, obeyed: Collection[str], *, takes_zero: bool) -> int:
    """Return the most tokens that all answers to a request may have: see ``most_tokens``."""
    return most_tokens(body, obeyed, ASSUMED_TOKENS, takes_zero=takes_zero) * prompts_of(body)


def answers_of(body: Json) -> int:
    """Return how many answers a request makes a model write, those included that it drops."""
    choices = 1
    for _, group in groups(body):
        for name in CHOICES.keys() & group.keys():
            choices = max(choices, group[name] or 1)
    return choices * prompts_of(body)


def prompts_of(body: Json) -> int:
    """Count the prompts of a call, which is one but in a legacy call; a list of numbers is one
    prompt in tokens."""
    if "prompt" not in body:
        return 1
    prompt = body["prompt"]
    if not isinstance(prompt, list) or not prompt or not isinstance(prompt[0], (str, list)):
        return 1
    return len(prompt)


def most_thought(body: Json) -> int:
    """Return the largest number of tokens that a request gives a model to think; 0 for none."""
    budgets = [
        value
        for path, group in groups(body)
        for name, value in group.items()
        if name in LENGTHS and counts_as(path, name) in BUDGETS and type(value) is int
    ]
    return max(0, *budgets) if budgets else 0
