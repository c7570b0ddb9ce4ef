"""Metrics of what was used and what it cost. Cost is in whole nano-USD, rounded for each attempt
as the ledger does, so that the two agree."""

from __future__ import annotations

from proxy.emit.declared import axes
from proxy.emit.declared.metric import Declared

TOKENS = tuple(4.0**power for power in range(11))
USD = (0.00001, 0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5)

METRICS = (
    Declared(
        name="headrace_tokens_total",
        kind="counter",
        axes=(axes.SERVED, axes.TOKEN_TYPE, axes.ESTIMATED),
        help="Tokens by type; the types do not overlap, so their sum is what was billed.",
    ),
    Declared(
        name="headrace_request_tokens",
        kind="histogram",
        axes=(axes.DEPLOYMENT, axes.DIRECTION),
        help="Tokens of a call that an upstream worked on, all its attempts together.",
        edges=TOKENS,
    ),
    Declared(
        name="headrace_cost_usd_total",
        kind="counter",
        axes=(axes.PRICED, axes.COST_TYPE),
        help="Cost of attempts whose price is known, by what it was for (other: cache writes, "
        "audio).",
    ),
    Declared(
        name="headrace_request_cost_usd",
        kind="histogram",
        axes=(axes.DEPLOYMENT,),
        help="Cost of a call that an upstream worked on, where the price of all its attempts is "
        "known.",
        edges=USD,
    ),
    Declared(
        name="headrace_money_usd_total",
        kind="counter",
        axes=(axes.DEPLOYMENT, axes.USE),
        help="What the cost did: useful, retried, abandoned, blocked or shadow; together they are "
        "it.",
    ),
    Declared(
        name="headrace_lost_cost_usd_total",
        kind="counter",
        axes=(axes.PRICED, axes.LOSS),
        help="The part of the cost whose answer nobody got to its end, by why.",
    ),
    Declared(
        name="headrace_key_cost_usd_total",
        kind="counter",
        axes=(axes.KEY,),
        help="Cost of attempts whose price is known, by virtual key.",
    ),
    Declared(
        name="headrace_tagged_cost_usd_total",
        kind="counter",
        axes=(axes.TAGGED,),
        help="Cost by each tag of the policies; the values of one tag together are the whole cost.",
    ),
    Declared(
        name="headrace_tagged_tokens_total",
        kind="counter",
        axes=(axes.TAGGED,),
        help="Tokens by each tag of the policies; the values of one tag together are all tokens.",
    ),
    Declared(
        name="headrace_unpriced_requests_total",
        kind="counter",
        axes=(axes.UNPRICED, axes.LACKING),
        help="Answers whose cost is unknown: they used tokens of a model without a known price, or "
        "said nothing of their usage (no_usage), as those of paths that are passed on may.",
    ),
    Declared(
        name="headrace_usage_estimated_total",
        kind="counter",
        axes=(axes.MODEL,),
        help="Answers whose tokens were estimated, as the upstream reported none.",
    ),
    Declared(
        name="headrace_usage_invalid_total",
        kind="counter",
        axes=(axes.UPSTREAM,),
        help="Usage reports of upstreams that could not be trusted.",
    ),
    Declared(
        name="headrace_price_table_timestamp_seconds",
        kind="gauge",
        axes=(),
        help="The day on which the table of prices was taken, in seconds since the epoch.",
        lazy=True,
    ),
)
