"""Cost dashboard: spend by deployment, model, tag and key, its use, and budgets."""

from __future__ import annotations

from dashboards.build.panels import Board, Query, Row, Variable, bars, lines, stacked, stat, table
from dashboards.build.promql import (
    Selector,
    active_rates,
    by,
    increase,
    or_zero,
    quantile,
    rate,
    ratio,
)

USD, SHARE = "currencyUSD", "percentunit"
LOW_SHARE_STEPS = ((None, "green"), (0.01, "orange"), (0.05, "red"))

metric = Selector(("deployment", "model"))
call_metric = Selector(("deployment",))  # for metrics without a label "model"

COST = metric("cost_usd_total")
SPEND = by("", increase(COST))
DAILY_RATE = by("", f"rate({COST}[1d])")
REST_OF_MONTH_S = "(days_in_month() - day_of_month() + 1) * 86400 - hour() * 3600 - minute() * 60"
MONEY = by("", increase(call_metric("money_usd_total")))
CALL_COSTS = call_metric("request_cost_usd_bucket")
CALL_TOKENS = call_metric("request_tokens_bucket")
SUCCESSFUL = by("", increase(call_metric("requests_total", outcome="success")))
TOKEN_TYPES = {
    "input": "=~input|cached_input|cache_write|audio_input",
    "output": "=~output|reasoning|audio_output",
}


def hourly(labels: str) -> str:
    return f"{by(labels, rate(COST))} * 3600"


def share_of_tokens(direction: str, token_type: str) -> str:
    """Return the share of a token type in all input or output tokens."""
    total = by("", increase(metric("tokens_total", token_type=TOKEN_TYPES[direction])))
    return ratio(or_zero(by("", increase(metric("tokens_total", token_type=token_type)))), total)


SPEND_ROW = Row(
    "Spend",
    (
        stat(
            "Spend",
            "What did calls cost, as far as prices are known?",
            USD,
            SPEND,
        ),
        stat(
            "Spend today", "What has been spent since midnight UTC?", USD, SPEND, time_from="now/d"
        ),
        stat(
            "Run rate per day",
            "What does a day cost at the rate of the last hour?",
            USD,
            f"{by('', f'rate({COST}[1h])')} * 86400",
        ),
        stat(
            "Forecast for the month",
            "What will this month (UTC) cost at the rate of the last 24 hours?",
            USD,
            f"{SPEND} + {DAILY_RATE} * ({REST_OF_MONTH_S})",
            time_from="now/M",
        ),
        stat(
            "Per 1000 calls",
            "What do 1000 calls cost, including refused and cached ones?",
            USD,
            ratio(
                f"1000 * {by('', increase(call_metric('cost_usd_total')))}",
                by("", increase(call_metric("requests_total"))),
            ),
        ),
        stat(
            "Per million tokens",
            "What does a million tokens cost, all types together?",
            USD,
            ratio(f"1e6 * {SPEND}", by("", increase(metric("tokens_total")))),
        ),
        stacked(
            "Spend per hour by deployment",
            "Which deployments spend, over time?",
            USD,
            Query(hourly("deployment"), "{{deployment}}"),
        ),
        stacked(
            "Spend per hour by model",
            "Which models cost most, over time?",
            USD,
            Query(hourly("model"), "{{model}}"),
        ),
        lines(
            "Spend per hour, compared with a week before",
            "Is this more than at the same time a week ago?",
            USD,
            Query(hourly(""), "now"),
            Query(f"{by('', f'rate({COST}[$__rate_interval] offset 1w)')} * 3600", "a week before"),
        ),
    ),
)

TAGGED = call_metric("tagged_cost_usd_total", tag="$tag")

OWNER_ROW = Row(
    "Spend by owner",
    (
        stacked(
            "Spend per hour by $tag",
            "Which values of the chosen tag spend, over time?",
            USD,
            Query(f"{by('value', rate(TAGGED))} * 3600", "{{value}}"),
        ),
        table(
            "By $tag",
            "What did each value of the tag use? Calls without the tag are listed as none.",
            ("value",),
            Query(by("value", increase(TAGGED)), "Spent", USD),
            Query(
                by("value", increase(call_metric("tagged_tokens_total", tag="$tag"))),
                "Tokens",
                "short",
            ),
            Query(
                by("value", increase(call_metric("tagged_requests_total", tag="$tag"))),
                "Calls",
                "short",
            ),
            width=8,
        ),
        bars(
            "Spend by key",
            "Which virtual keys cost most?",
            USD,
            Query(f"topk(10, {by('key', increase(metric('key_cost_usd_total')))})", "{{key}}"),
        ),
        bars(
            "Spend by deployment",
            "Which deployments cost most?",
            USD,
            Query(f"topk(10, {by('deployment', increase(COST))})", "{{deployment}}"),
        ),
        bars(
            "Spend by model",
            "Which models cost most, at which provider?",
            USD,
            Query(f"topk(10, {by('model, provider', increase(COST))})", "{{model}} ({{provider}})"),
        ),
        lines(
            "Cost of a call",
            "What does a typical call cost, and an expensive one?",
            USD,
            *(Query(quantile(q, CALL_COSTS), f"p{q * 100:g}") for q in (0.5, 0.95)),
        ),
    ),
)

USE_ROW = Row(
    "Use of the spend",
    (
        stat(
            "Useful",
            "What share of the spend paid for responses that callers received whole?",
            SHARE,
            ratio(by("", increase(call_metric("money_usd_total", use="useful"))), MONEY),
            steps=((None, "red"), (0.8, "orange"), (0.95, "green")),
        ),
        stat(
            "Saved by the cache",
            "What would cached and shared responses have cost?",
            USD,
            by("", increase(call_metric("cache_saved_usd_total"))),
        ),
        stat(
            "Cached input",
            "What share of the input was served from caches of providers?",
            SHARE,
            share_of_tokens("input", "cached_input"),
        ),
        stat(
            "Reasoning",
            "What share of the output is reasoning?",
            SHARE,
            share_of_tokens("output", "reasoning"),
        ),
        stat(
            "Responses without a price",
            "What share of the responses is missing in the cost because no price is known?",
            SHARE,
            ratio(or_zero(by("", increase(metric("unpriced_requests_total")))), SUCCESSFUL),
            steps=LOW_SHARE_STEPS,
        ),
        stat(
            "Responses with estimated tokens",
            "What share of the responses has token counts that the proxy estimated?",
            SHARE,
            ratio(or_zero(by("", increase(metric("usage_estimated_total")))), SUCCESSFUL),
            steps=LOW_SHARE_STEPS,
        ),
        stacked(
            "Spend per hour by use",
            "How much is spent on failed, abandoned and blocked responses?",
            USD,
            Query(f"3600 * ({active_rates(call_metric('money_usd_total'), 'use')})", "{{use}}"),
        ),
        bars(
            "Spend by use",
            "What was the money spent on?",
            USD,
            Query(by("use", increase(call_metric("money_usd_total"))), "{{use}}"),
        ),
        bars(
            "Lost spend by cause",
            "Why was paid output not delivered?",
            USD,
            Query(by("cause", increase(metric("lost_cost_usd_total"))), "{{cause}}"),
        ),
        stacked(
            "Spend per hour by type of token",
            "What do input and output cost?",
            USD,
            Query(hourly("cost_type"), "{{cost_type}}"),
        ),
    ),
)

BUDGET_SPEND_RATE = f"clamp_min(deriv({metric('budget_spent_usd')}[1h]), 0)"

BUDGET_ROW = Row(
    "Budgets",
    (
        table(
            "Budgets",
            "What is left of each budget, and how long does it last at the rate of the last hour?",
            ("budget", "scope"),
            Query(by("budget, scope", metric("budget_limit_usd"), "max"), "Limit", USD),
            Query(by("budget, scope", metric("budget_spent_usd"), "max"), "Spent", USD),
            Query(by("budget, scope", metric("budget_remaining_usd"), "min"), "Left", USD),
            Query(
                by(
                    "budget, scope",
                    f"{metric('budget_remaining_usd')} / ({BUDGET_SPEND_RATE} > 0)",
                    "min",
                ),
                "Lasts for",
                "s",
            ),
            Query(
                by("budget, scope", f"{metric('budget_reset_timestamp_seconds')} - time()", "max"),
                "Resets in",
                "s",
            ),
            width=16,
        ),
        bars(
            "Left of each budget",
            "Which budgets are nearly exhausted?",
            SHARE,
            Query(
                by(
                    "budget, scope",
                    f"{metric('budget_remaining_usd')} / {metric('budget_limit_usd')}",
                    "min",
                ),
                "{{budget}} {{scope}}",
            ),
            maximum=1,
        ),
    ),
)

TOKEN_ROW = Row(
    "Tokens",
    (
        stacked(
            "Tokens per second by type",
            "Which types of tokens are billed?",
            "short",
            Query(by("token_type", rate(metric("tokens_total"))), "{{token_type}}"),
        ),
        lines(
            "Tokens of a call",
            "How many tokens do requests and responses have (median and p95)?",
            "short",
            *(
                Query(quantile(q, CALL_TOKENS, "direction"), f"{{{{direction}}}} p{q * 100:g}")
                for q in (0.5, 0.95)
            ),
        ),
        lines(
            "Per million tokens by model",
            "What do tokens of each model cost?",
            USD,
            Query(
                ratio(
                    f"1e6 * {by('model', rate(COST))}", by("model", rate(metric("tokens_total")))
                ),
                "{{model}}",
            ),
        ),
    ),
)

BOARD = Board(
    uid="headrace-cost",
    title="Headrace: cost",
    description="Spend by deployment, model, tag and key, its use, and remaining budgets.",
    span="24h",
    variables=(
        Variable("deployment", "Deployment", "headrace_requests_total"),
        Variable("model", "Model", "headrace_tokens_total"),
        Variable("tag", "Tag", "headrace_tagged_cost_usd_total", single="team"),
    ),
    rows=(SPEND_ROW, OWNER_ROW, USE_ROW, BUDGET_ROW, TOKEN_ROW),
)
