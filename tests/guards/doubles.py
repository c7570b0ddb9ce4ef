"""Detectors for tests of guards, and helpers that cut texts into pieces."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.call.record import new_record
from proxy.guards.engine import Engine
from proxy.guards.findings import RuleTally
from proxy.guards.output import StreamInspector
from proxy.guards.stream.placeholders import Digest
from proxy.types import guard


@dataclass(frozen=True, slots=True)
class Words:
    """Finds words; with ``edges`` only whole words."""

    words: tuple[str, ...]
    edges: bool = False
    kind: str = "word"
    unbounded: bool = False

    @property
    def lookback(self) -> int | None:
        return None if self.unbounded else max(map(len, self.words)) + 2 * self.edges

    def find(self, text: str) -> Sequence[guard.Finding]:
        either = "|".join(map(re.escape, sorted(self.words, key=len, reverse=True)))
        pattern = rf"(?<!\w)(?:{either})(?!\w)" if self.edges else either
        return [guard.Finding(m.start(), m.end(), self.kind) for m in re.finditer(pattern, text)]


@dataclass(frozen=True, slots=True)
class Broken:
    """Raises on every text."""

    lookback: int | None = 4

    def find(self, text: str) -> Sequence[guard.Finding]:
        raise ZeroDivisionError


@dataclass(slots=True)
class SlowService:
    """A service that waits, then finds words, and records what it received."""

    words: Words = Words(("secret",))
    asked: list[Sequence[guard.ServiceText]] = field(default_factory=list)
    questions: list[guard.PromptContext] = field(default_factory=list)

    async def find_all(
        self,
        texts: Sequence[guard.ServiceText],
        prompt: guard.PromptContext,
        client: guard.GuardClient,
    ) -> Sequence[Sequence[guard.Finding]]:
        self.asked.append(texts)
        self.questions.append(prompt)
        turn = asyncio.Event()
        asyncio.get_running_loop().call_soon(turn.set)
        await turn.wait()
        return [self.words.find(text.text) for text in texts]


@dataclass(frozen=True, slots=True)
class EchoOfPrompt:
    """Finds the user's text in a response. Not applicable if there is none."""

    lookback: int | None = None

    def for_prompt(self, prompt: guard.PromptContext) -> guard.Detector | None:
        return Words((prompt.user_message,)) if prompt.user_message else None


@dataclass(slots=True)
class Ticks:
    """Clock that advances by ``step`` at each reading."""

    step: float = 0.0
    now: float = field(default=0.0)

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def rule(*words: str, name: str = "words", edges: bool = False, **keys: Any) -> guard.GuardRule:
    kind, unbounded = keys.pop("kind", "word"), keys.pop("unbounded", False)
    return guard.GuardRule(name, Words(words, edges, kind, unbounded), **keys)


def stream_inspector(*rules: guard.GuardRule, engine: Engine | None = None) -> StreamInspector:
    """Return the inspector of a stream under rules."""
    stage_rules = guard.StageRules.from_rules(rules)
    return StreamInspector(engine or Engine(Ticks()), stage_rules, {}, new_record())


def tallies(*rules: guard.GuardRule) -> list[RuleTally]:
    return [RuleTally(item, Ticks()) for item in rules]


def pieces(text: str, cuts: Sequence[int]) -> list[str]:
    edges = sorted({0, *(cut % (len(text) + 1) for cut in cuts), len(text)})
    return [text[a:b] for a, b in itertools.pairwise(edges)]


def short_digests() -> Digest:
    """Return digests of three characters: ``x7f`` for the first value, ``y7f`` for the next."""
    values: dict[tuple[str, frozenset[str]], str] = {}

    def digest(label: str, value: str, hosts: Collection[str]) -> str:
        return values.setdefault((value, frozenset(hosts)), f"{'xyz'[len(values)]}7f")

    return digest
