"""What was spent, by whom, on what, and how long budgets will last."""

from __future__ import annotations

from dashboards.build.panels import Ask, Board, Row, Variable, bars, lines, stacked, stat, table
from dashboards.build.promql import Selecting, by, grown, lively, quantile, rate, ratio, zero

USD, SHARE = "currencyUSD", "percentunit"
SOME_SHARE = ((None, "green"), (0.01, "orange"), (0.05, "red"))

of = Selecting(("deployment", "model"))
whole = Selecting(("deployment",))  # for metrics that do not know models

COST = of("cost_usd_total")
SPENT = by("", grown(COST))
LAST_DAY = by("", f"rate({COST}[1d])")
REST_OF_MONTH = "(days_in_month() - day_of_month() + 1) * 86400 - hour() * 3600 - minute() * 60"
MONEY = by("", grown(whole("money_usd_total")))
CALL_COSTS = whole("request_cost_usd_bucket")
CALL_TOKENS = whole("request_tokens_bucket")
ANSWERED = by("", grown(whole("requests_total", outcome="success")))
SIDES = {
    "input": "=~input|cached_input|cache_write|audio_input",
    "output": "=~output|reasoning|audio_output",
}


def hourly(labels: str) -> str:
    return f"{by(labels, rate(COST))} * 3600"


def share_of_side(side: str, part: str) -> str:
    """Give the share that one type of token has of all that went in, or came out."""
    together = by("", grown(of("tokens_total", token_type=SIDES[side])))
    return ratio(zero(by("", grown(of("tokens_total", token_type=part)))), together)


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

TAGGED = whole("tagged_cost_usd_total", tag="$tag")

WHO = Row(
    "Who spends it",
    (
        stacked(
            "Spend per hour by $tag",
            "Which team, or whatever the chosen tag names, spends?",
            USD,
            Ask(f"{by('value', rate(TAGGED))} * 3600", "{{value}}"),
        ),
        table(
            "By $tag",
            "What did each spend, use and ask in the range? All of it is there, untagged as none.",
            ("value",),
            Ask(by("value", grown(TAGGED)), "Spent", USD),
            Ask(by("value", grown(whole("tagged_tokens_total", tag="$tag"))), "Tokens", "short"),
            Ask(by("value", grown(whole("tagged_requests_total", tag="$tag"))), "Calls", "short"),
            width=8,
        ),
        bars(
            "Spent in range by key",
            "Which virtual keys cost most?",
            USD,
            Ask(f"topk(10, {by('key', grown(of('key_cost_usd_total')))})", "{{key}}"),
        ),
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
        lines(
            "Cost of a call",
            "What does a usual call cost, and a dear one?",
            USD,
            *(Ask(quantile(q, CALL_COSTS), f"p{q * 100:g}") for q in (0.5, 0.95)),
        ),
    ),
)

BOUGHT = Row(
    "What the money did",
    (
        stat(
            "Useful",
            "What share of the money paid for answers that callers got whole?",
            SHARE,
            ratio(by("", grown(whole("money_usd_total", use="useful"))), MONEY),
            steps=((None, "red"), (0.8, "orange"), (0.95, "green")),
        ),
        stat(
            "Saved by the cache",
            "What would kept and shared answers have cost?",
            USD,
            by("", grown(whole("cache_saved_usd_total"))),
        ),
        stat(
            "Cached input",
            "What share of the input did the caches of providers serve?",
            SHARE,
            share_of_side("input", "cached_input"),
        ),
        stat(
            "Reasoning",
            "What share of the output is thinking that nobody reads?",
            SHARE,
            share_of_side("output", "reasoning"),
        ),
        stat(
            "Answers without a price",
            "What share of the answers is missing in the money here, as no price is known?",
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
        stacked(
            "Spend per hour by use",
            "Is money lost to failed tries, to answers that nobody waited for, or to blocked ones?",
            USD,
            Ask(f"3600 * ({lively(whole('money_usd_total'), 'use')})", "{{use}}"),
        ),
        bars(
            "Spent in range by use",
            "What was the money of the range spent on?",
            USD,
            Ask(by("use", grown(whole("money_usd_total"))), "{{use}}"),
        ),
        bars(
            "Lost in range by cause",
            "Why did nobody get to the end of what was paid for?",
            USD,
            Ask(by("cause", grown(of("lost_cost_usd_total"))), "{{cause}}"),
        ),
        stacked(
            "Spend per hour by type of token",
            "Is it the questions or the answers that cost?",
            USD,
            Ask(hourly("cost_type"), "{{cost_type}}"),
        ),
    ),
)

SPENDING = f"clamp_min(deriv({of('budget_spent_usd')}[1h]), 0)"

BUDGETS = Row(
    "Budgets",
    (
        table(
            "Budgets",
            "What is left of each budget, and when is it spent if the last hour goes on?",
            ("budget", "scope"),
            Ask(by("budget, scope", of("budget_limit_usd"), "max"), "Limit", USD),
            Ask(by("budget, scope", of("budget_spent_usd"), "max"), "Spent", USD),
            Ask(by("budget, scope", of("budget_remaining_usd"), "min"), "Left", USD),
            Ask(
                by("budget, scope", f"{of('budget_remaining_usd')} / ({SPENDING} > 0)", "min"),
                "Lasts for",
                "s",
            ),
            Ask(
                by("budget, scope", f"{of('budget_reset_timestamp_seconds')} - time()", "max"),
                "Begins anew in",
                "s",
            ),
            width=16,
        ),
        bars(
            "Left of each budget",
            "Which budgets are nearly spent?",
            SHARE,
            Ask(
                by(
                    "budget, scope",
                    f"{of('budget_remaining_usd')} / {of('budget_limit_usd')}",
                    "min",
                ),
                "{{budget}} {{scope}}",
            ),
            most=1,
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
            "Tokens of a call",
            "How long are questions and answers, in the middle and at the long end?",
            "short",
            *(
                Ask(quantile(q, CALL_TOKENS, "direction"), f"{{{{direction}}}} p{q * 100:g}")
                for q in (0.5, 0.95)
            ),
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

BOARD = Board(
    uid="headrace-cost",
    title="Headrace: cost",
    description="What was spent, by whom, on what, and how long budgets will last.",
    span="24h",
    variables=(
        Variable("deployment", "Deployment", "headrace_requests_total"),
        Variable("model", "Model", "headrace_tokens_total"),
        Variable("tag", "Tag", "headrace_tagged_cost_usd_total", single="team"),
    ),
    rows=(HOW_MUCH, WHO, BOUGHT, BUDGETS, TOKENS),
)
