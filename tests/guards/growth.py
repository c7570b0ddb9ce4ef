"""Measures how work grows with the length of a text.

Python code is measured in executed lines, which are equal on all machines. RE2 and the standard
library are measured by ratio of CPU time of one thread. A busy machine can only increase a ratio,
so excessive ratios are measured again, and the least of each side counts.
"""

from __future__ import annotations

# ruff: noqa: RUF001  # disguised letters are the subject
import base64
import gc
import sys
from collections.abc import Callable
from time import thread_time
from typing import Any, TypeVar

T = TypeVar("T")
TIMES = 8  # ratio of the two text lengths
LINEAR = TIMES * 4  # quadratic time would be 64; the margin is for noise
LEAST_ROUNDS, MOST_ROUNDS = 2, 40
UNSEEN_S = 2e-5  # shorter times are rounded up to this


def ratio(call: Callable[[str], object], text: str) -> float:
    """Return how many times longer a text takes that is ``TIMES`` as long."""
    return grown(call, text, text * TIMES)


def growth(
    call: Callable[[str], object], text: Callable[[int], str], size: int = 4_000, *, maximum: float
) -> float:
    """Return how many times longer a text of ``TIMES`` this size takes."""
    return grown(call, text(size), text(size * TIMES), maximum=maximum)


def grown(call: Callable[[T], object], short: T, long: T, *, maximum: float = LINEAR) -> float:
    """Return how many times longer a call takes for ``long`` than for ``short``. It is measured
    again while that is not less than ``most``."""
    of_short = of_long = result = float("inf")
    gc.disable()  # garbage of other tests must not be collected meanwhile
    try:
        for count in range(MOST_ROUNDS):
            of_short, of_long = min(of_short, _cost(call, short)), min(of_long, _cost(call, long))
            result = of_long / max(of_short, UNSEEN_S)
            if count >= LEAST_ROUNDS and result < maximum:
                break
        return result
    finally:
        gc.enable()


def _cost(call: Callable[[T], object], text: T) -> float:
    started_at = thread_time()
    call(text)
    return thread_time() - started_at


def lines(call: Callable[[], object]) -> int:
    """Return the number of Python lines that a call runs, which is equal on all machines."""
    count = 0

    def trace(frame: Any, event: str, arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    function_before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(function_before)
    return count


# Texts that are slow to read, by length in characters.
SHAPES: dict[str, Callable[[int], str]] = {
    "marks out of order": lambda n: "a" + "\u0315" * n + "\u0316" * n,
    "marks in order": lambda n: "a" + "\u0316" * n + "\u0315" * n,
    "marks in turns": lambda n: "a" + "\u0315\u0316" * n,
    "marks that compose": lambda n: "e" + "\u0301" * 2 * n,
    "marks of other scripts": lambda n: "a" + "\u0f73\u0f71" * n,
    "vowels of Korean": lambda n: "\u1100" + "\u1161" * 2 * n,
    "full width": lambda n: "ａｂｃ ｄｅｆ " * (n // 4),
    "ligatures": lambda n: "ﬁ… ㍿ " * (n // 3),
    "accents written apart": lambda n: "e\u0301a\u0300 " * (n // 3),
    "escapes": lambda n: "%41&#66;\\u0043 " * (n // 8),
    "escapes of marks": lambda n: "a" + "%CC%95" * (n // 6) + "%CC%96" * (n // 6),
    "escapes of nothing": lambda n: "%FF%FE&none; \\uD800 " * (n // 8),
    "letters apart": lambda n: "s e c r e t, " * (n // 7),
    "what shows nothing": lambda n: "a\u200bb\u00adc\ufe0f" * (n // 3),
    "base64": lambda n: base64.b64encode(b"it is known to all, and more, ").decode() * (n // 20),
    "base64 of base64": lambda n: _layers("it is known to all, and more, " * (n // 50)),
    "base64 of escapes": lambda n: base64.b64encode(b"%41&#66; " * (n // 12)).decode(),
    "hex": lambda n: "6974206973206b6e6f776e20" * (n // 24),
    "hex in base64": lambda n: base64.b64encode(b"6974206973206b6e " * (n // 24)).decode(),
    "marks within words": lambda n: "a**b`c`~~d~~" * (n // 12),
    "marks and nothing else": lambda n: "a" + "*" * n,
    "tags within words": lambda n: "a<b>b</b><i x=y>" * (n // 16),
    "beginnings of tags": lambda n: "a<b a<b" * (n // 7),
    "beginnings of comments": lambda n: "a<!-- -" * (n // 7),
    "tags and nothing else": lambda n: "a" + "<b>" * (n // 3),
    "hyphens": lambda n: "a-\nb" * (n // 4),
    "ends of lines": lambda n: "a-" + " \n" * (n // 2),
    "entities without an end": lambda n: "&#65&#x42&shy&#6" * (n // 16),
    "escapes of programs": lambda n: "\\x41\\u{42}\\U00000043" * (n // 20),
    "shadows": lambda n: "x\U000e0061\U000e0062" * (n // 2),
}
SIZE = 2000


def _layers(text: str) -> str:
    for _ in range(3):
        text = base64.b64encode(text.encode()).decode()
    return text
