"""The `presidio` guard: finds personal data with a user's Presidio analyzer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, TypeAdapter

from proxy.config.scalars import Duration, Reference, Section, Share, Url, text
from proxy.dialects.findings import PII
from proxy.guards.guard_kind import GuardContext, GuardKind
from proxy.guards.matching.merge_overlaps import resolve_overlaps
from proxy.guards.services.wire import BadAnswer, ServiceAnswer, nonblank_indexes, post, read
from proxy.runtime.frozen import frozen
from proxy.types.guard import Finding, GuardClient, Piece, PromptContext

MAX_REQUESTS = 4  # concurrent requests for the texts of one call
OTHER_ENTITY = "other"  # kind of an entity that was not requested


class Recognized(ServiceAnswer):
    """Entity that the analyzer found."""

    entity_type: str
    start: Annotated[int, Field(ge=0)]
    end: int
    score: Annotated[float, Field(ge=0, le=1)]


ANALYSIS = TypeAdapter(list[Recognized])


@frozen
class Presidio:
    """Sends each text to an analyzer; ``entities`` are entity types of Presidio."""

    url: str
    entities: tuple[str, ...]
    language: str
    threshold: float

    async def ask(
        self, texts: Sequence[Piece], question: PromptContext, outside: GuardClient
    ) -> Sequence[Sequence[Finding]]:
        findings: list[list[Finding]] = [[] for _ in texts]
        slots = asyncio.Semaphore(MAX_REQUESTS)

        async def analyzed(number: int) -> None:
            async with slots:
                findings[number] = await self._analyzed(texts[number].text, outside)

        try:
            async with asyncio.TaskGroup() as group:
                for number in nonblank_indexes(texts):
                    group.create_task(analyzed(number))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return findings

    async def _analyzed(self, text: str, outside: GuardClient) -> list[Finding]:
        body = {
            "text": text,
            "language": self.language,
            "entities": self.entities,
            "score_threshold": self.threshold,
        }
        analysis = read(ANALYSIS, await post(outside, f"{self.url}/analyze", body, {}))
        return resolve_overlaps(self._finding(result, len(text)) for result in analysis)

    def _finding(self, result: Recognized, length: int) -> Finding:
        if not result.start < result.end <= length:
            raise BadAnswer
        kind = result.entity_type.lower() if result.entity_type in self.entities else OTHER_ENTITY
        return Finding(start=result.start, end=result.end, kind=kind, score=result.score)


Entity = Annotated[
    str,
    *text("[A-Z][A-Z0-9_]{0,63}", "must be an entity type of Presidio, such as PERSON", "PERSON"),
]
LanguageCode = Annotated[str, *text("[a-z]{2,3}", "must be a language code, such as en", "en")]


class PresidioConfig(Section):
    """Personal data, including names and places, by your own Presidio analyzer."""

    url: Annotated[Url, Reference("service")]
    """URL of the analyzer, without `/analyze`."""
    entities: Annotated[list[Entity], Field(min_length=1)] = Field(
        default_factory=lambda: ["PERSON", "LOCATION"]
    )
    """Presidio entity types to detect."""
    language: LanguageCode = "en"
    """Language of the texts."""
    threshold: Share = 0.5
    """Minimum confidence of a finding."""
    deadline: Duration = 2.0
    """Maximum time for all texts of a call. Default 2s."""


def _make(keys: PresidioConfig, context: GuardContext) -> Presidio:
    return Presidio(
        url=keys.url.rstrip("/"),
        entities=tuple(keys.entities),
        language=keys.language,
        threshold=keys.threshold,
    )


KIND = GuardKind(PresidioConfig, _make, asks=True, detections=(PII,))
