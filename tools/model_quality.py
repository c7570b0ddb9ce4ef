"""Measures `grounded` with models.

    python -m tools.model_quality nli FOLDER
    python -m tools.model_quality judge URL MODEL

The guards judge each sentence of `tools/quality/triples.tsv`. `tools/quality/models.txt` contains
the results, because the measured models are not dependencies.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from proxy.guards.kinds.evidence import LocalEntailmentDetector
from proxy.guards.services.judge import GROUNDED_RULE, Judge
from proxy.guards.services.stage import NoGuardClients
from proxy.guards.services.wire import BadAnswer, Unsure
from proxy.guards.text.walk import Text
from proxy.types.guard import GuardClient, PromptContext
from tools.measure import table, wilson

TRIPLES = Path(__file__).parent / "quality" / "triples.tsv"
KINDS = ("a changed number", "a negation", "an invented fact", "a paraphrase, all right")
THRESHOLDS = (0.5, 0.9, 0.99)
TIMEOUT_S = 300.0

Score = Callable[[str, str], Awaitable[float | None]]
"""Scores a context and a sentence that may lack its support. None is no verdict."""


@dataclass(slots=True)
class KindScores:
    """Scores of the sentences of a kind."""

    scores: list[float] = field(default_factory=list)
    no_verdict: int = 0

    def count(self, threshold: float) -> str:
        hits = sum(score >= threshold for score in self.scores)
        return wilson(hits, len(self.scores) + self.no_verdict)


async def measure(score_sentence: Score) -> dict[str, KindScores]:
    """Score three wrong sentences and one paraphrase of each context."""
    kinds = {kind: KindScores() for kind in KINDS}
    for line in TRIPLES.read_text("utf-8").splitlines():
        if line.startswith("#"):
            continue
        context, *sentences = line.split("\t")
        for sentence, kind in zip(sentences, kinds.values(), strict=False):
            score = await score_sentence(context, sentence)
            if score is None:
                kind.no_verdict += 1
            else:
                kind.scores.append(score)
    return kinds


def nli_score(folder: str) -> Score:
    guard = LocalEntailmentDetector(folder, 0.0)

    async def score(context: str, sentence: str) -> float | None:
        return await _highest_score(guard, context, sentence, NoGuardClients())

    return score


@dataclass(frozen=True, slots=True)
class JudgeServer:
    """Calls an OpenAI-compatible server instead of a deployment."""

    url: str
    model: str

    async def complete(self, guard: str, deployment: str, body: dict[str, Any]) -> str:
        timeout = aiohttp.ClientTimeout(TIMEOUT_S)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(self.url, json={**body, "model": self.model}) as response,
        ):
            content: str = (await response.json())["choices"][0]["message"]["content"]
        return content


def judge_score(url: str, model: str) -> Score:
    judge = Judge(
        name="judge",
        stage="output",
        model_deployment="judge",
        rule=GROUNDED_RULE,
        kind="unsupported",
        threshold=0.5,
        max_chars=32_000,
        check="grounded",
        make_mark=lambda: "7f3a9c21d05be864",  # constant, so that the server can cache the prompt
    )
    egress: Any = JudgeServer(url, model)

    async def score(context: str, sentence: str) -> float | None:
        try:
            return await _highest_score(judge, context, sentence, egress)
        except (BadAnswer, Unsure):
            return None

    return score


async def _highest_score(guard: Any, context: str, sentence: str, egress: GuardClient) -> float:
    reading = Text((), sentence, "content", "assistant")
    [findings] = await guard.find_all([reading], PromptContext(context=context), egress)
    return max((finding.score for finding in findings), default=0.0)


def score_table(kinds: dict[str, KindScores], thresholds: tuple[float, ...]) -> Iterator[str]:
    head = ["sentences with", *(f"found at {threshold}" for threshold in thresholds), "no verdict"]
    rows = [
        (kind, *(scores.count(threshold) for threshold in thresholds), scores.no_verdict)
        for kind, scores in kinds.items()
    ]
    yield from table(head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="guard", required=True)
    commands.add_parser("nli").add_argument("folder")
    judge = commands.add_parser("judge")
    judge.add_argument("url")
    judge.add_argument("model")
    options = parser.parse_args()
    is_nli = options.guard == "nli"
    score = nli_score(options.folder) if is_nli else judge_score(options.url, options.model)
    thresholds = THRESHOLDS if is_nli else THRESHOLDS[:1]
    print("\n".join(score_table(asyncio.run(measure(score)), thresholds)))


if __name__ == "__main__":
    main()
