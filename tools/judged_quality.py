"""Measures `grounded` by models: `python -m tools.judged_quality nli FOLDER`, or `judge URL MODEL`.

Both are asked about the same triples as the words are (`tools/quality/triples.tsv`), sentence by
sentence, by the very guards. What they print is kept in the page between marks of its own, as no
model that could be measured may be shipped: the page says which it was.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from proxy.guards.kinds.nli import EntailmentModel
from proxy.guards.services.judge import GROUNDED, Judge
from proxy.guards.services.stage import NoGuardClients, Reading
from proxy.guards.services.wire import BadAnswer, Unsure
from proxy.types.guard import GuardClient, PromptContext
from tools import confidence

TRIPLES = Path(__file__).parent / "quality" / "triples.tsv"
KINDS = ("a changed number", "a negation", "an invented fact", "a paraphrase, all right")
THRESHOLDS = (0.5, 0.9, 0.99)
WAIT_S = 300.0

Ask = Callable[[str, str], Awaitable[float | None]]
"""Returns how surely a sentence lacks support in a context; None for no verdict."""


@dataclass(slots=True)
class Counts:
    """The scores of sentences that are wrong in one way, or right."""

    scores: list[float] = field(default_factory=list)
    silent: int = 0

    def found(self, threshold: float) -> str:
        hits = sum(score >= threshold for score in self.scores)
        return confidence.wilson(hits, len(self.scores) + self.silent)


def triples() -> Iterator[tuple[str, str, str]]:
    """Yield context, sentence and what is wrong with it; of paraphrases the first of each."""
    for line in TRIPLES.read_text("utf-8").splitlines():
        if not line.startswith("#"):
            context, *sentences = line.split("\t")
            yield from ((context, each, kind) for each, kind in zip(sentences, KINDS, strict=False))


async def counted(ask: Ask) -> dict[str, Counts]:
    counts = {kind: Counts() for kind in KINDS}
    for context, sentence, kind in triples():
        score = await ask(context, sentence)
        if score is None:
            counts[kind].silent += 1
        else:
            counts[kind].scores.append(score)
    return counts


def by_nli(folder: str) -> Ask:
    guard = EntailmentModel(folder, 0.0)

    async def ask(context: str, sentence: str) -> float | None:
        return await _highest(
            guard.about(PromptContext(context=context)), context, sentence, NoGuardClients()
        )

    return ask


@dataclass(frozen=True, slots=True)
class Served:
    """Asks an OpenAI-compatible server, in the place of a deployment."""

    url: str
    model: str

    async def complete(self, guard: str, deployment: str, body: dict[str, Any]) -> str:
        timeout = aiohttp.ClientTimeout(WAIT_S)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(self.url, json={**body, "model": self.model}) as answer,
        ):
            content: str = (await answer.json())["choices"][0]["message"]["content"]
        return content


def by_judge(url: str, model: str) -> Ask:
    judge = Judge(
        name="judge",
        stage="output",
        deployment="judge",
        rule=GROUNDED,
        kind="unsupported",
        threshold=0.5,
        longest=32_000,
        check="grounded",
        mark=lambda: "7f3a9c21d05be864",  # the same, so that a server reads its orders once
    )
    egress: Any = Served(url, model)

    async def ask(context: str, sentence: str) -> float | None:
        try:
            return await _highest(judge, context, sentence, egress)
        except (BadAnswer, Unsure):
            return None

    return ask


async def _highest(guard: Any, context: str, sentence: str, egress: GuardClient) -> float:
    reading = Reading(sentence, "content", "assistant")
    [found] = await guard.ask([reading], PromptContext(context=context), egress)
    return max((each.score for each in found), default=0.0)


def table(counts: dict[str, Counts], thresholds: tuple[float, ...]) -> Iterator[str]:
    yield (
        "| sentences with | " + " | ".join(f"found at {each}" for each in thresholds) + " | none |"
    )
    yield "|---" * (len(thresholds) + 2) + "|"
    for kind, one in counts.items():
        cells = [one.found(each) for each in thresholds]
        yield f"| {kind} | " + " | ".join(cells) + f" | {one.silent} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    kinds = parser.add_subparsers(dest="by", required=True)
    kinds.add_parser("nli").add_argument("folder")
    judge = kinds.add_parser("judge")
    judge.add_argument("url")
    judge.add_argument("model")
    chosen = parser.parse_args()
    ask = by_nli(chosen.folder) if chosen.by == "nli" else by_judge(chosen.url, chosen.model)
    thresholds = THRESHOLDS if chosen.by == "nli" else THRESHOLDS[:1]
    print("\n".join(table(asyncio.run(counted(ask)), thresholds)))


if __name__ == "__main__":
    main()
