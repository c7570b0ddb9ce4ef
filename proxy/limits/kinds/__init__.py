"""The kinds of limits, one file each, by their key in policies."""

from __future__ import annotations

from collections.abc import Mapping

from proxy.limits.kinds import concurrency, requests, tokens, usd
from proxy.types.limit import LimitKind

KINDS: Mapping[str, LimitKind] = {
    kind.name: kind
    for kind in (
        requests.RequestRate(),
        tokens.TokenRate(),
        concurrency.Concurrency(),
        usd.UsdBudget(),
    )
}
