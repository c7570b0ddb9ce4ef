"""How much work a pattern can be, counted in steps, so that every machine says the same of it.

A step is a character that is read in a state known before, or one place of a state that is new: a
pattern is slow where it meets new states of many places all the time, or reads on for long behind
each of its matches. It is counted over texts that are made, out of the pattern, to be of this kind.
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Iterator

from proxy.frozen import frozen
from proxy.guardrails.matching.automaton import Automaton, State

MAX_STEPS = 100
"""Steps for each character, on the average of the worst text."""

HOSTILE_CHARACTERS = 512
REPEATS = 256  # of a match: reading on to the end behind each takes half as many steps a character
MAX_REPEATED = 8192
MAX_STATES, MAX_MATCHES = 1000, 16  # that are looked through for such matches, and are tried


@frozen
class Work:
    """The ``steps`` for a character of the worst text, and the most ``places`` in one state."""

    steps: float
    places: int


def work_of(pattern: str) -> Work:
    """Return the work of a pattern that RE2 takes: of the first text of more than ``MAX_STEPS``, if
    there is one. Raise ValueError for a pattern of too many places."""
    automaton = Automaton(pattern)
    text, places = _growing(automaton)
    steps = 0.0
    for each in itertools.chain([text], _repeated(automaton)):
        steps = max(steps, _steps(automaton, each))
        if steps > MAX_STEPS:
            break
    return Work(steps, places)


def _steps(automaton: Automaton, text: str) -> float:
    """Return the steps for a character of finding all matches; more than the bound is not counted
    to its end."""
    met: set[int] = set()
    steps = start = 0
    while start < len(text):
        state, end = automaton.begin, start
        for at in range(start, len(text) + 1):
            step = automaton.step(state, text[at - 1 : at] if at else "", text[at : at + 1])
            steps += 1 if id(step) in met else step.places
            met.add(id(step))
            end = at if step.matched else end
            state = step.after
            if not state or steps > MAX_STEPS * len(text):
                break
        if end == start or steps > MAX_STEPS * len(text):
            break
        start = end
    return steps / len(text)


def _growing(automaton: Automaton) -> tuple[str, int]:
    """Return a text that meets new and large states as long as it can, and the largest's places."""
    draw = random.Random(0)  # noqa: S311 -- the same text each time
    state, before, places, steps = automaton.begin, "", 0, 0
    seen: set[State] = set()
    text: list[str] = []
    while len(text) < HOSTILE_CHARACTERS and steps <= 2 * MAX_STEPS * HOSTILE_CHARACTERS:
        choices = []
        for letter in automaton.letters:
            after = automaton.step(state, before, letter).after
            ends = automaton.step(after, letter, "")
            choices.append(
                (not ends.matched, after not in seen, ends.places, draw.random(), letter, after)
            )
        *_, held, _, before, state = max(choices)
        places = max(places, held)
        steps += held if state not in seen else 1
        seen.add(state)
        text.append(before)
    return "".join(text), places


def _repeated(automaton: Automaton) -> Iterator[str]:
    """Texts of a match again and again, where RE2 reads on behind it for a better one."""
    for piece in dict.fromkeys(_read_on(automaton)):
        yield (piece * REPEATS)[:MAX_REPEATED]


def _read_on(automaton: Automaton) -> Iterator[str]:
    """The shortest matches behind which the search is not over, with and without what follows."""
    waiting = deque([(automaton.begin, "")])
    seen = {automaton.begin}
    found: set[State] = set()
    while waiting and len(seen) < MAX_STATES and len(found) < MAX_MATCHES:
        state, text = waiting.popleft()
        for letter in automaton.letters:
            step = automaton.step(state, text[-1:], letter)
            if text and step.matched and step.after and step.after not in found:
                found.add(step.after)
                yield from (text, text + letter)
            if step.after not in seen:
                seen.add(step.after)
                waiting.append((step.after, text + letter))
