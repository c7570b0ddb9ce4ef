"""Metrics of what was used and what it cost. Cost is in whole nano-USD, rounded for each attempt
as the ledger does, so that the two agree."""

from __future__ import annotations

from proxy.emit.declared import axes
from proxy.emit.declared.metric import Declared

TOKENS = tuple(4.0**power for power in range(11))
USD = (0.00001, 0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5)

METRICS = (
    Declared(
        "headrace_tokens_total",
        "counter",
        (axes.SERVED, axes.TOKEN_TYPE, axes.ESTIMATED),
        "Tokens by type; the types do not overlap, so their sum is what was billed.",
    ),
    Declared(
        "headrace_request_tokens",
        "histogram",
        (axes.DEPLOYMENT, axes.DIRECTION),
        "Tokens of a call that an upstream worked on, all its attempts together.",
        TOKENS,
    ),
    Declared(
        "headrace_cost_usd_total",
        "counter",
        (axes.PRICED, axes.COST_TYPE),
        "Cost of attempts whose price is known, by what it was for (other: cache writes, audio).",
    ),
    Declared(
        "headrace_request_cost_usd",
        "histogram",
        (axes.DEPLOYMENT,),
        "Cost of a call that an upstream worked on, where the price of all its attempts is known.",
        USD,
    ),
    Declared(
        "headrace_money_usd_total",
        "counter",
        (axes.DEPLOYMENT, axes.USE),
        "What the cost did: useful, retried, abandoned, blocked or shadow; together they are it.",
    ),
    Declared(
        "headrace_lost_cost_usd_total",
        "counter",
        (axes.PRICED, axes.LOSS),
        "The part of the cost whose answer nobody got to its end, by why.",
    ),
    Declared(
        "headrace_key_cost_usd_total",
        "counter",
        (axes.KEY,),
        "Cost of attempts whose price is known, by virtual key.",
    ),
    Declared(
        "headrace_tagged_cost_usd_total",
        "counter",
        (axes.TAGGED,),
        "Cost by each tag of the policies; the values of one tag together are the whole cost.",
    ),
    Declared(
        "headrace_tagged_tokens_total",
        "counter",
        (axes.TAGGED,),
        "Tokens by each tag of the policies; the values of one tag together are all tokens.",
    ),
    Declared(
        "headrace_unpriced_requests_total",
        "counter",
        (axes.UNPRICED,),
        "Answers that used tokens of a model without a known price.",
    ),
    Declared(
        "headrace_usage_estimated_total",
        "counter",
        (axes.MODEL,),
        "Answers whose tokens were estimated, as the upstream reported none.",
    ),
    Declared(
        "headrace_usage_invalid_total",
        "counter",
        (axes.UPSTREAM,),
        "Usage reports of upstreams that could not be trusted.",
    ),
    Declared(
        "headrace_price_table_timestamp_seconds",
        "gauge",
        (),
        "The day on which the table of prices was taken, in seconds since the epoch.",
        lazy=True,
    ),
)
