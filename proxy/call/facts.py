"""Immutable summary of a finished call. Metrics, spans, logs and the ledger are built from it.

It contains no text of the request except ``properties``, and only codes of errors, so it can be
queued. Moments are seconds of ``time.monotonic``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from proxy.call.attempts import (
    Attempt,
    BilledAttempt,
    BudgetCharge,
    CacheSavings,
    CallOutcome,
    Skip,
)
from proxy.errors import KeyProblem, UpstreamFinding
from proxy.errors.causes import ErrorCause
from proxy.errors.words import BoundedText
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
    """Reason for the failure of a call, and the side that caused it.

    - ``limit``: the limit that refused the call.
    - ``key_problem``, ``rejected_key``: the reason for a rejected key, and its name.
    - ``path``: the unknown path.
    - ``cause``, ``text``: reason for a failed connection. Under ``capture``, ``text`` is the
      redacted message of the upstream.
    """

    code: str
    side: Side
    upstream_status: int | None
    limit: str | None
    key_problem: KeyProblem | None
    rejected_key: str | None
    path: str | None = None
    cause: ErrorCause | None = None
    text: str | None = None
    upstream_type: str | None = None
    upstream_code: str | None = None


@dataclass(slots=True, init=False)
class CallSummary:
    """Summary of a call. Unknown values are None, never zero.

    - ``first_model``: model of the first target.
    - ``served``: attempt whose response was used, or the last one.
    - ``limits``: pairs with True for a limit that refused the call, or would have in shadow mode.
    - ``ttft_s``: time to the first token of any model call.
    - ``overhead_s``: time spent in the proxy. ``lookup_s``: time spent on the cache lookup.
    - ``verdicts``: results of guards, equal ones merged. ``all_verdicts``: all of them.
    - ``cost``, ``lost_cost``: nano-USD of all attempts.

    ``summarize`` sets the fields one by one, because keyword arguments take five times as long.
    Afterwards they are read-only.
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
    properties: Sequence[tuple[BoundedText, BoundedText]]
    rules: Sequence[str]
    shadow_rules: Sequence[str]
    dialect: str | None
    endpoint: str | None
    route: str | None
    method: str
    is_stream: bool | None
    models: list[BoundedText] | None
    first_model: str
    status: int | None
    outcome: CallOutcome
    failure: Failure | None
    attempts: Sequence[BilledAttempt]
    served: Attempt | None
    first_sent: float | None
    usage_source: Source
    tokens: Tokens
    cost: int | None
    lost_cost: int | None
    finish_reasons: list[str]
    skips: Sequence[Skip]
    limits: Sequence[tuple[Limit, bool]]
    charges: Sequence[BudgetCharge]
    verdicts: GuardResults
    all_verdicts: GuardResults
    upstream_findings: list[tuple[str, UpstreamFinding]]
    cache: CacheResult
    cache_store: str | None
    semantic_match: bool
    lookup_s: float | None
    saved: CacheSavings | None

    @property
    def error(self) -> str | None:
        """Error code of a failed call."""
        return self.failure.code if self.failure is not None else None
