"""The `webhook` guard: sends all texts of a call to a user's service for findings.

The signature covers the timestamp and the body. See `docs/guard-services.md`.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Self

import orjson
from pydantic import Field, TypeAdapter, model_validator

from proxy.config.scalars import Duration, Name, RefersTo, SecretRef, Section, Url
from proxy.guards.guard_kind import GuardContext, GuardKind
from proxy.guards.matching.patterns import trim_overlaps
from proxy.guards.services.wire import BadAnswer, StrictAnswer, parse_answer, post_json
from proxy.runtime.frozen import frozen
from proxy.types import Secret
from proxy.types.guard import Finding, GuardClient, PromptContext, ServiceText

PROTOCOL_VERSION = 1
MAX_FINDINGS = 1000
DEFAULT_KIND = "found"  # kind of a finding without one
OTHER_KIND = "other"  # kind of a finding whose kind the policy does not list

Index = Annotated[int, Field(ge=0)]


class WebhookFinding(StrictAnswer):
    """Finding in the text with the index ``text``: a span of characters, or the whole text."""

    text: Index
    start: Index | None = None
    end: Index | None = None
    kind: Annotated[str, Field(max_length=64)] = DEFAULT_KIND
    score: Annotated[float, Field(ge=0, le=1)] = 1.0

    @model_validator(mode="after")
    def _require_both_ends(self) -> Self:
        if (self.start is None) != (self.end is None):
            raise ValueError("start and end must be set together")
        return self


class WebhookAnswer(StrictAnswer):
    """Response of the webhook service."""

    findings: Annotated[list[WebhookFinding], Field(max_length=MAX_FINDINGS)]


RESPONSE_ADAPTER = TypeAdapter(WebhookAnswer)


@frozen
class Webhook:
    """Sends the texts of a call to a webhook service.

    ``kinds`` are the allowed kinds of findings, and ``now`` returns Unix seconds.
    """

    name: str
    stage: str
    url: str
    secret: Secret
    kinds: frozenset[str] = frozenset()
    now: Callable[[], float] = lambda: datetime.now(UTC).timestamp()

    async def find_all(
        self, texts: Sequence[ServiceText], prompt: PromptContext, client: GuardClient
    ) -> Sequence[Sequence[Finding]]:
        document = {
            "version": PROTOCOL_VERSION,
            "guard": self.name,
            "stage": self.stage,
            "request_id": client.request_id,
            "texts": [{"text": text.text, "role": text.role, "kind": text.kind} for text in texts],
        }
        body = orjson.dumps(document)
        moment, secret = str(int(self.now())), self.secret.reveal().encode()
        digest = hmac.new(secret, moment.encode() + b"." + body, hashlib.sha256).hexdigest()
        headers = {"x-headrace-timestamp": moment, "x-headrace-signature": f"v1={digest}"}
        return self._parse_findings(texts, await post_json(client, self.url, body, headers))

    def _parse_findings(self, texts: Sequence[ServiceText], body: bytes) -> list[list[Finding]]:
        findings: list[list[Finding]] = [[] for _ in texts]
        for finding in parse_answer(RESPONSE_ADAPTER, body).findings:
            if finding.text >= len(texts):
                raise BadAnswer
            findings[finding.text].append(self._to_finding(finding, len(texts[finding.text].text)))
        return [trim_overlaps(text_findings) for text_findings in findings]

    def _to_finding(self, finding: WebhookFinding, length: int) -> Finding:
        start, end = finding.start or 0, length if finding.end is None else finding.end
        if end > length or (start >= end and finding.end is not None):
            raise BadAnswer
        kind = finding.kind if finding.kind in {*self.kinds, DEFAULT_KIND} else OTHER_KIND
        return Finding(start, end, kind, score=finding.score)


class WebhookConfig(Section):
    """Your own guard service. See `docs/guard-services.md`."""

    url: Annotated[Url, RefersTo("service")]
    """URL for the POST requests."""
    secret: Annotated[SecretRef, RefersTo("secret")]
    """Secret that signs each request, as ${VARIABLE} or file:/path."""
    kinds: list[Name] = Field(default_factory=list)
    """Kinds of findings that the service may return. All others count as `other`."""
    deadline: Duration = 2.0
    """Maximum time for all texts of a call. Default 2s."""


def _make_webhook(keys: WebhookConfig, context: GuardContext) -> Webhook:
    secret, kinds = context.secrets[keys.secret], frozenset(keys.kinds)
    return Webhook(context.name, context.stage, keys.url, secret=secret, kinds=kinds)


KIND = GuardKind(WebhookConfig, _make_webhook, calls_service=True)
