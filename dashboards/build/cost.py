"""What was spent, by whom, on what, and how long budgets will last."""

from __future__ import annotations

from dashboards.build.panels import Ask, Board, Row, Variable, bars, lines, stacked, stat
from dashboards.build.promql import Selecting, by, grown, rate, ratio, zero

USD, SHARE = "currencyUSD", "percentunit"
SOME_SHARE = ((None, "green"), (0.01, "orange"), (0.05, "red"))

of = Selecting(("deployment", "model"))
whole = Selecting(("deployment",))  # for metrics that do not know models

COST = of("cost_usd_total")
SPENT = by("", grown(COST))
LAST_DAY = by("", f"rate({COST}[1d])")
REST_OF_MONTH = "(days_in_month() - day_of_month() + 1) * 86400 - hour() * 3600 - minute() * 60"
ANSWERED = by("", grown(whole("requests_total", outcome="success")))
SIDES = {
    "input": "=~input|cached_input|cache_write|audio_input",
    "output": "=~output|reasoning|audio_output",
}


def hourly(labels: str) -> str:
    return f"{by(labels, rate(COST))} * 3600"


def share_of_side(side: str, part: str) -> str:
    """Give the share that one type of token has of all that went in, or came out."""
    together = by("", rate(of("tokens_total", token_type=SIDES[side])))
    return ratio(by("", rate(of("tokens_total", token_type=part))), together)


HOW_MUCH = Row(
    "How much",
    (
        stat(
            "Spent in range",
            "What did the calls of the range shown cost, as far as prices are known?",
            USD,
            SPENT,
        ),
        stat("Spent today", "What has been spent since midnight UTC?", USD, SPENT, since="now/d"),
        stat(
            "Run rate per day",
            "What would a day cost that goes on like the last hour?",
            USD,
            f"{by('', f'rate({COST}[1h])')} * 86400",
        ),
        stat(
            "Forecast for the month",
            "What will this month (UTC) have cost if the rest goes on like the last 24 hours?",
            USD,
            f"{SPENT} + {LAST_DAY} * ({REST_OF_MONTH})",
            since="now/M",
        ),
        stat(
            "Per 1000 calls",
            "What do 1000 calls cost, those among them that were refused or had a kept answer?",
            USD,
            ratio(
                f"1000 * {by('', grown(whole('cost_usd_total')))}",
                by("", grown(whole("requests_total"))),
            ),
        ),
        stat(
            "Per million tokens",
            "What does a million tokens cost, all types together?",
            USD,
            ratio(f"1e6 * {SPENT}", by("", grown(of("tokens_total")))),
        ),
        stacked(
            "Spend per hour by deployment",
            "Who spends, and since when?",
            USD,
            Ask(hourly("deployment"), "{{deployment}}"),
        ),
        stacked(
            "Spend per hour by model",
            "Which models is the money spent on?",
            USD,
            Ask(hourly("model"), "{{model}}"),
        ),
        lines(
            "Spend per hour against a week before",
            "Is this more than at the same time a week ago?",
            USD,
            Ask(hourly(""), "now"),
            Ask(f"{by('', f'rate({COST}[$__rate_interval] offset 1w)')} * 3600", "a week before"),
        ),
    ),
)

WHERE = Row(
    "Where it goes",
    (
        bars(
            "Spent in range by deployment",
            "Which deployments cost most?",
            USD,
            Ask(f"topk(10, {by('deployment', grown(COST))})", "{{deployment}}"),
        ),
        bars(
            "Spent in range by model",
            "Which models cost most, at which provider?",
            USD,
            Ask(f"topk(10, {by('model, provider', grown(COST))})", "{{model}} ({{provider}})"),
        ),
    ),
)

TOKENS = Row(
    "Tokens",
    (
        stacked(
            "Tokens per second by type",
            "What are the tokens that are paid for?",
            "short",
            Ask(by("token_type", rate(of("tokens_total"))), "{{token_type}}"),
        ),
        lines(
            "Cached and reasoning shares",
            "How much of the input did the provider's cache serve, how much output is thinking?",
            SHARE,
            Ask(zero(share_of_side("input", "cached_input")), "cached input"),
            Ask(zero(share_of_side("output", "reasoning")), "reasoning"),
        ),
        lines(
            "Per million tokens by model",
            "What does each model cost in fact, as it is used here?",
            USD,
            Ask(
                ratio(f"1e6 * {by('model', rate(COST))}", by("model", rate(of("tokens_total")))),
                "{{model}}",
            ),
        ),
    ),
)

TRUST = Row(
    "How far the numbers can be trusted",
    (
        stat(
            "Answers without a price",
            "What share of the answers is missing in the money above, as no price is known?",
            SHARE,
            ratio(zero(by("", grown(of("unpriced_requests_total")))), ANSWERED),
            steps=SOME_SHARE,
        ),
        stat(
            "Answers with estimated tokens",
            "What share of the answers did no provider count?",
            SHARE,
            ratio(zero(by("", grown(of("usage_estimated_total")))), ANSWERED),
            steps=SOME_SHARE,
        ),
    ),
)

BOARD = Board(
    uid="headrace-cost",
    title="Headrace: cost",
    description="What was spent, by whom, on what, and how long budgets will last.",
    span="24h",
    variables=(
        Variable("deployment", "Deployment", "headrace_requests_total"),
        Variable("model", "Model", "headrace_cost_usd_total"),
    ),
    rows=(HOW_MUCH, WHERE, TOKENS, TRUST),
)
