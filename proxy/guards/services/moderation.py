"""The `moderation` guard: calls the moderation endpoint of an upstream, in OpenAI's format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field, StringConstraints, TypeAdapter

from proxy.config.scalars import Duration, Model, Name, RefersTo, Section, Share
from proxy.dialects.findings import TOXICITY
from proxy.dialects.requests.upstream_request import make_url_and_headers
from proxy.guards.guard_kind import GuardContext, GuardKind, InvalidGuardSetting
from proxy.guards.services import wire
from proxy.runtime.frozen import frozen
from proxy.types import Upstream
from proxy.types.guard import Finding, GuardClient, PromptContext, ServiceText

MODERATION_PATH = "/moderations"
MAX_TEXTS = 32  # texts of one request
CATEGORIES = (
    "harassment", "harassment/threatening", "hate", "hate/threatening", "illicit",
    "illicit/violent", "self-harm", "self-harm/instructions", "self-harm/intent", "sexual",
    "sexual/minors", "violence", "violence/graphic",
)  # fmt: skip
OTHER_CATEGORY = "other"  # kind of any category that the policy does not list either


class ModerationResult(wire.ServiceAnswer):
    """Result for one text. Categories may be missing."""

    flagged: bool
    categories: dict[str, bool | None]
    category_scores: dict[str, float | None]


class ModerationResponse(wire.ServiceAnswer):
    """Response with one result per text, in the same order."""

    results: list[ModerationResult]


RESPONSE_ADAPTER = TypeAdapter(ModerationResponse)


@frozen
class Moderation:
    """Finds texts by minimum scores in ``categories``. If there are none, the endpoint decides."""

    upstream: Upstream
    model: str | None
    categories: Mapping[str, float]

    async def find_all(
        self, texts: Sequence[ServiceText], prompt: PromptContext, client: GuardClient
    ) -> Sequence[Sequence[Finding]]:
        findings: list[list[Finding]] = [[] for _ in texts]
        numbers = wire.list_nonblank_indexes(texts)
        for start in range(0, len(numbers), MAX_TEXTS):
            part = numbers[start : start + MAX_TEXTS]
            results = await self._request_results([texts[number].text for number in part], client)
            for number, result in zip(part, results, strict=True):
                findings[number] = self._find_worst_category(result, len(texts[number].text))
        return findings

    async def _request_results(
        self, texts: list[str], client: GuardClient
    ) -> list[ModerationResult]:
        body = {"input": texts, **({"model": self.model} if self.model else {})}
        url, headers = make_url_and_headers(self.upstream, MODERATION_PATH)
        response = await wire.post_json(client, url, body, headers)
        answer = wire.parse_answer(RESPONSE_ADAPTER, response)
        if len(answer.results) != len(texts):
            raise wire.BadAnswer
        return answer.results

    def _find_worst_category(self, result: ModerationResult, length: int) -> list[Finding]:
        """Return a finding for the highest-scored category, or nothing.

        Only categories count that reach their minimum scores or, if the guard has none, that the
        service flags.
        """
        scores = {name: score or 0.0 for name, score in result.category_scores.items()}
        if self.categories:
            # The endpoint does not know a listed category.
            if not self.categories.keys() <= scores.keys():
                raise wire.BadAnswer
            matches = {name for name, least in self.categories.items() if scores[name] >= least}
        else:
            matches = {name for name, flagged in result.categories.items() if flagged}
            matches = matches or ({OTHER_CATEGORY} if result.flagged else set())
        if not matches:
            return []
        worst = max(sorted(matches), key=lambda name: scores.get(name, 1.0))
        kind = worst if worst in (*self.categories, *CATEGORIES) else OTHER_CATEGORY
        score = min(1.0, max(0.0, scores.get(worst, 1.0)))
        return [Finding(0, length, kind, score=score)]


Category = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_/-]{0,63}$")]


class ModerationConfig(Section):
    """Hate, violence, sexual content and more, by the moderation endpoint of an upstream."""

    upstream: Annotated[Name, RefersTo("upstream")]
    """Upstream with the dialect openai."""
    model: Model | None = None
    """Moderation model. Default: chosen by the endpoint."""
    categories: dict[Category, Share] = Field(default_factory=dict)
    """Minimum score per category. Default: the categories that the endpoint flags."""
    deadline: Duration = 3.0
    """Maximum time for all texts of a call. Default 3s."""


def _make_moderation(keys: ModerationConfig, context: GuardContext) -> Moderation:
    upstream = context.upstreams[keys.upstream]
    if upstream.dialect != "openai":
        message = f"must be an upstream with dialect openai, not {upstream.dialect}"
        raise InvalidGuardSetting("upstream", message)
    return Moderation(upstream, keys.model, keys.categories)


KIND = GuardKind(
    ModerationConfig,
    _make_moderation,
    fields=wire.MEANINGFUL_KINDS,
    calls_service=True,
    detections=(TOXICITY,),
)
