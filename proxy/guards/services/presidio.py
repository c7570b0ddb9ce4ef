"""The `presidio` guard: finds personal data with a user's Presidio analyzer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, TypeAdapter

from proxy.config.scalars import Duration, RefersTo, Section, Share, Url, make_pattern_annotations
from proxy.dialects.findings import PII
from proxy.guards.guard_kind import GuardKind
from proxy.guards.matching.patterns import trim_overlaps
from proxy.guards.services import wire
from proxy.runtime.frozen import frozen
from proxy.types.guard import Finding, GuardClient, PromptContext, ServiceText

MAX_REQUESTS = 4  # concurrent requests for the texts of one call
OTHER_ENTITY = "other"  # kind of an entity that was not requested


class RecognizedEntity(wire.ServiceAnswer):
    """Entity that the analyzer found."""

    entity_type: str
    start: Annotated[int, Field(ge=0)]
    end: int
    score: Annotated[float, Field(ge=0, le=1)]


RESPONSE_ADAPTER = TypeAdapter(list[RecognizedEntity])


@frozen
class Presidio:
    """Sends each text to an analyzer; ``entities`` are entity types of Presidio."""

    url: str
    entities: tuple[str, ...]
    language: str
    threshold: float

    async def find_all(
        self, texts: Sequence[ServiceText], prompt: PromptContext, client: GuardClient
    ) -> Sequence[Sequence[Finding]]:
        findings: list[list[Finding]] = [[] for _ in texts]
        slots = asyncio.Semaphore(MAX_REQUESTS)

        async def analyzed(number: int) -> None:
            async with slots:
                findings[number] = await self._request_findings(texts[number].text, client)

        try:
            async with asyncio.TaskGroup() as group:
                for number in wire.list_nonblank_indexes(texts):
                    group.create_task(analyzed(number))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return findings

    async def _request_findings(self, text: str, client: GuardClient) -> list[Finding]:
        options = {"language": self.language, "entities": self.entities}
        body = {"text": text, **options, "score_threshold": self.threshold}
        response = await wire.post_json(client, f"{self.url}/analyze", body, {})
        analysis = wire.parse_answer(RESPONSE_ADAPTER, response)
        if not all(entity.start < entity.end <= len(text) for entity in analysis):
            raise wire.BadAnswer
        kinds = {name: name.lower() for name in self.entities}
        return trim_overlaps(
            Finding(e.start, e.end, kinds.get(e.entity_type, OTHER_ENTITY), score=e.score)
            for e in analysis
        )


Entity = Annotated[
    str,
    *make_pattern_annotations(
        "[A-Z][A-Z0-9_]{0,63}", "must be an entity type of Presidio, such as PERSON", "PERSON"
    ),
]
LanguageCode = Annotated[
    str, *make_pattern_annotations("[a-z]{2,3}", "must be a language code, such as en", "en")
]


class PresidioConfig(Section):
    """Personal data, including names and places, by your own Presidio analyzer."""

    url: Annotated[Url, RefersTo("service")]
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


KIND = GuardKind(
    PresidioConfig,
    lambda keys, context: Presidio(
        keys.url.rstrip("/"), tuple(keys.entities), keys.language, threshold=keys.threshold
    ),
    calls_service=True,
    detections=(PII,),
)
