"""What is told of a call when it has ended: one value, from which metrics, spans, the log, the
decision log and the ledger take what they tell.

It holds no text of the call, of its headers the properties alone, and names and numbers alone of
its error, so that it may wait for whoever writes it. Moments are seconds of ``time.monotonic``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from proxy.call.attempts import Attempt, CallOutcome, Skip
from proxy.call.billing import BilledAttempt, BudgetCharge, CacheSavings
from proxy.errors import Lapse, UpstreamFinding
from proxy.errors.causes import ErrorCause
from proxy.errors.words import Word
from proxy.money.usage import Source, Tokens
from proxy.types.guard import GuardResults
from proxy.types.limit import Limit

UNKNOWN = "unknown"
CacheResult = Literal["hit", "hit_semantic", "miss", "refresh", "bypass", "coalesced"]
SemanticResult = Literal[
    "hit", "would_hit", "miss", "ineligible", "timeout", "failed", "invalid", "busy"
]
Side = Literal["client", "upstream", "proxy"]


class Failure(NamedTuple):
    """Why a call ended before its end, and whose doing it was. ``limit`` is the one that refused
    it; ``lapse`` is why there was no known key, and ``lapsed_key`` whose it was; ``wanted`` is the
    path that nobody serves; ``cause`` says why a connection to the upstream failed. ``text`` is
    the system's text of that failure or, under ``capture``, the redacted message of the upstream.
    """

    code: str
    side: Side
    upstream_status: int | None
    limit: str | None
    lapse: Lapse | None
    lapsed_key: str | None
    wanted: str | None = None
    cause: ErrorCause | None = None
    text: str | None = None
    upstream_type: str | None = None
    upstream_code: str | None = None


@dataclass(slots=True, init=False)
class CallSummary:
    """What is told of a call. Unknown is None, never zero.

    ``method`` is that of a call that is passed on.
    ``asked_model`` is the model of the first target. ``served`` is the attempt whose answer was
    used, else the last one. ``limits`` are those that it was counted by, each with whether it
    refused, or in shadow would have. ``ttft_s`` are the seconds to the first text of any leg,
    ``overhead_s`` those that the proxy itself took, ``lookup_s`` those spent on looking for a kept
    answer.
    ``verdicts`` say each thing once: of a list of models every answer is looked at, and so many
    have no more to say than one; ``each_verdict`` has them all. ``cost`` and ``lost_cost`` are
    nano-USD of all attempts. Who works it out sets all of it, one after the other, and nobody sets
    anything afterwards: to give so many values by name takes five times as long.
    """

    trace_id: str
    server_span: str
    started_at: datetime
    duration_s: float
    ttft_s: float | None
    overhead_s: float
    request_id: str | None
    key: str | None
    credential: str | None
    policy: str | None
    deployment: str | None
    tags: Mapping[str, str] | None
    dropped_tags: int
    properties: Sequence[tuple[Word, Word]]
    rules: Sequence[str]
    shadow_rules: Sequence[str]
    dialect: str | None
    endpoint: str | None
    route: str | None
    method: str
    is_stream: bool | None
    models: list[Word] | None
    asked_model: str
    status: int | None
    outcome: CallOutcome
    failure: Failure | None
    attempts: Sequence[BilledAttempt]
    served: Attempt | None
    first_sent: float | None
    source: Source
    tokens: Tokens
    cost: int | None
    lost_cost: int | None
    finish_reasons: list[str]
    skips: Sequence[Skip]
    limits: Sequence[tuple[Limit, bool]]
    charges: Sequence[BudgetCharge]
    verdicts: GuardResults
    each_verdict: GuardResults
    upstream_findings: list[tuple[str, UpstreamFinding]]
    cache: CacheResult
    cache_store: str | None
    semantic_match: bool
    lookup_s: float | None
    saved: CacheSavings | None

    @property
    def error(self) -> str | None:
        """The code of why the call ended before its end."""
        return self.failure.code if self.failure is not None else None
