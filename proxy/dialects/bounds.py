"""The fields that say how much a model may answer, in every word that servers have for it.

This is the one table of them: what a call claims, what a cap lowers, what a rule sets and which
types are checked on arrival all read it. A server obeys the names that it knows, at the top of a
request or in a group of options, so whatever a request says of them counts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from proxy.dialects.fields import (
    Field,
    Fields,
    anything,
    at_most,
    boolean,
    check_spelling,
    integer,
    mapping,
    number,
    string,
    types_of,
)
from proxy.errors import BadField
from proxy.types import Json
from proxy.types.spelling import squeezed

MOST = 2**53
ASSUMED_TOKENS = 1024  # of an answer that nothing bounds
UNBOUNDED = -2  # servers take -1 and -2 for "as many as there is room for"

BOUNDS: Mapping[str, int] = {
    "max_tokens": 0,
    "max_completion_tokens": 0,
    "max_new_tokens": 0,
    "max_output_tokens": 0,
    "max_length": 0,
    "max_tokens_to_sample": 0,
    "max_tokens_to_generate": 0,
    "max_token_count": 0,
    "max_gen_len": 0,
    "max_decode_tokens": 0,
    "n_predict": 0,
    "num_predict": 1,
    "request_output_len": 0,
}
"""The most tokens of an answer, and the smallest value that is a bound: what is less means none."""

FLOORS = frozenset({"min_tokens", "min_new_tokens", "min_length"})
"""The fewest tokens of an answer: a server goes on until it has as many."""

BUDGETS = frozenset(
    {"budget_tokens", "max_reasoning_tokens", "max_thinking_tokens", "reasoning_budget"}
    | {"reasoning_budget_tokens", "thinking_budget", "thinking_budget_tokens"}
    | {"thinking_token_budget", "token_budget"}
)
"""The most tokens of what a model thinks before it answers. Some servers count them within the
bound of the answer, others beside it; what is not above 0 leaves it to the server."""

THOUGHTS = frozenset({"reasoning", "reasoning_config", "thinking", "thinking_config"})
"""Groups of options that are about thinking: a bound within them is a budget."""

ANSWERS = BOUNDS.keys() | FLOORS
LENGTHS = ANSWERS | BUDGETS

CHOICES: Mapping[str, int] = {
    "n": 1,
    "best_of": 0,
    "candidate_count": 1,
    "n_cmpl": 1,
    "num_generations": 1,
    "num_results": 1,
    "num_return_sequences": 1,
}
"""How many answers are made of one prompt, and the smallest value."""

COUNTED = LENGTHS.union(CHOICES)
"""The fields that count for how much a model may answer."""

GROUPS = THOUGHTS | {
    *("additional_model_request_fields", "chat_template_kwargs", "custom_params", "extra_body"),
    *("generation_config", "google", "inference_config", "inference_extra_params", "model_kwargs"),
    *("nvext", "options", "parameters", "sampling_params", "text_generation_config", "vllm_xargs"),
}
"""Objects in a request whose members some servers read as if they stood at its top."""

LEGACY_DEFAULT = 16
"""The tokens of a legacy completion that says no bound, at OpenAI, Portkey and Fireworks."""

NUMBERS: Fields = {
    **dict.fromkeys(BOUNDS, integer(UNBOUNDED, MOST)),
    **dict.fromkeys(FLOORS, integer(0, MOST)),
    **dict.fromkeys(BUDGETS, integer(UNBOUNDED, MOST)),
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

SPELLINGS: Mapping[str, str] = {squeezed(name): name for name in TYPES}
"""These fields by what their names have in common with other spellings of them."""


def tokens(least: int) -> Field:
    """A number of tokens, or of answers: no larger than can be reckoned with exactly."""
    return integer(least, MOST)


def typed(fields: Fields) -> Fields:
    """Return a dialect's fields without their ranges."""
    return {name: NUMBERS.get(name, field) for name, field in types_of(fields).items()}


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
