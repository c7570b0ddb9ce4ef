"""Searches for requests that use more tokens or money than the policy claims and caps.

A server may obey any name of a bound, so the oracle takes the most that some server would use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle, product
from math import gcd
from pathlib import Path
from typing import Any, Literal

import pytest

from proxy.dialects import DIALECTS
from proxy.errors import InvalidField
from proxy.fields.token_bounds import ASSUMED_TOKENS
from proxy.types import Call, ParameterOverrides, Target, Upstream
from tests.adversary.request_calls import (
    OPEN_TARGET,
    TEXT_ROUTES,
    Start,
    build_body,
    find_refused_field,
    get_field,
    read_request,
    send_fields,
)
from tests.conftest import policies_for, running_proxy
from tests.doubles import Json, ScriptedUpstream, chat, respond, usage
from tests.for_each import for_each
from tests.limits.sample_limits import estimate_tokens

# Names that servers are known to obey, listed independently of the product's table.
TOP_BOUNDS = (
    "max_tokens", "max_completion_tokens", "max_new_tokens", "max_output_tokens", "max_length",
    "n_predict", "num_predict", "max_gen_len", "max_token_count", "max_tokens_to_generate",
    "max_tokens_to_sample", "request_output_len",
)  # fmt: skip
NESTED_BOUNDS = (
    "options.num_predict", "extra_body.max_tokens", "inference_extra_params.max_new_tokens",
    "parameters.max_new_tokens", "extra_body.options.num_predict", "model_kwargs.max_gen_len",
    "generation_config.max_output_tokens", "inference_config.max_tokens",
    "text_generation_config.max_token_count", "additional_model_request_fields.max_tokens",
)  # fmt: skip
REASONING_BUDGETS = (
    "thinking.budget_tokens", "reasoning.max_tokens", "thinking_budget", "thinking_token_budget",
    "thinking_budget_tokens", "reasoning_budget_tokens", "reasoning_budget",
    "thinking.token_budget", "chat_template_kwargs.thinking_budget",
    "custom_params.thinking_budget", "nvext.max_thinking_tokens",
    "extra_body.google.thinking_config.thinking_budget",
    "extra_body.thinking.budget_tokens", "extra_body.reasoning.max_tokens",
    "generation_config.thinking_config.thinking_budget", "reasoning_config.budget_tokens",
)  # fmt: skip
LOWER_BOUND = "min_tokens"
UPPER_BOUNDS = (*TOP_BOUNDS, *NESTED_BOUNDS)
BOUNDS = (*UPPER_BOUNDS, LOWER_BOUND)
LEGACY_DEFAULT = 16
SMALL_CAP = 8


def iter_targets() -> Iterator[Target]:
    endpoints: tuple[Literal["completions", "chat"] | None, ...] = (None, "completions", "chat")
    for dialect, endpoint in product(DIALECTS, endpoints):
        upstream = Upstream("up", dialect, "http://127.0.0.1:9")
        yield Target(upstream, "smol", endpoint)
        if dialect == "openai":
            yield Target(replace(upstream, skips_range_checks=True), "smol", endpoint)
            yield Target(replace(upstream, skips_range_checks=True), "o3-mini", endpoint)


TARGETS = tuple(iter_targets())


def list_bounds(body: Json, names: tuple[str, ...] = BOUNDS) -> list[int]:
    return [value for name in names if (value := get_field(body, name)) is not None]


def count_max_usage(body: Json, target: Target) -> int:
    """Return the most output tokens that some server may use for a body.

    A server that knows all names uses the largest. One that knows the names of its API document is
    unbounded without them. One that is not OpenAI's may read 0 as unbounded.
    """
    is_openai = target.upstream.dialect == "openai" and not target.upstream.skips_range_checks
    documented = TOP_BOUNDS[: 3 if target.upstream.dialect in ("scale", "multimodel") else 2]
    is_bounded = any(body.get(name) is not None for name in documented)
    has_zero = any(value < (0 if is_openai else 1) for value in list_bounds(body, UPPER_BOUNDS))
    return max([*list_bounds(body), 0 if is_bounded and not has_zero else ASSUMED_TOKENS])


def iter_fields() -> Iterator[dict[str, int]]:
    yield {}
    for name, value in product(BOUNDS, (0, 1, 60, 900, 5000, -1)):
        yield {name: value}
    for first, second in product(("max_tokens", "max_completion_tokens", "n_predict"), BOUNDS):
        if first != second:
            yield {first: 1, second: 900}


def iter_calls(route: str) -> Iterator[tuple[dict[str, int], Call, Target, Json]]:
    """Yield every accepted call with each of its targets and the body sent there."""
    for fields in iter_fields():
        try:
            call = read_request(route, fields)
        except InvalidField:
            continue
        for target in TARGETS:
            try:
                body = build_body(call, target)
            except InvalidField:
                continue
            yield fields, call, target, body


@for_each("route", TEXT_ROUTES)
def test_claim_covers_every_bound(route: str) -> None:
    number = 0
    for fields, call, target, body in iter_calls(route):
        size = estimate_tokens(call, target)
        assert size is not None
        assert size[1] >= count_max_usage(body, target), (fields, target, body)
        number += 1

    assert number > 500


@pytest.mark.parametrize("route", TEXT_ROUTES)
def test_cap_holds_under_every_name(route: str) -> None:
    caps = cycle(product(("max_tokens", "max_completion_tokens"), (SMALL_CAP, 4096)))
    for (fields, call, target, free), (name, cap) in zip(iter_calls(route), caps, strict=False):
        body = build_body(call, target, ParameterOverrides(cap={name: cap}))
        label = (fields, target, name, cap, body)
        assert all(0 <= value <= cap for value in list_bounds(body)), label
        assert count_max_usage(body, target) <= cap, label
        for bound in BOUNDS:
            before, after = get_field(free, bound), get_field(body, bound)
            assert None in (before, after) or after <= before or before <= 0, label
        if not list_bounds(free) and "prompt" in body:
            assert count_max_usage(body, target) <= LEGACY_DEFAULT, label
        if not list_bounds(free) and target.model == "o3-mini" and "messages" in body:
            assert "max_tokens" not in body, label


def test_each_bound_and_target_is_tested_with_each_cap() -> None:
    """Caps rotate over all calls. Their number per target must not divide evenly."""
    assert gcd(len(TARGETS), 4) == 1


@pytest.mark.parametrize("route", TEXT_ROUTES)
def test_set_value_is_the_only_bound(route: str) -> None:
    for fields, call, target, _ in iter_calls(route):
        body = build_body(call, target, ParameterOverrides(set={"max_tokens": SMALL_CAP}))
        label = (fields, target, body)
        assert set(list_bounds(body)) <= {get_field(body, LOWER_BOUND), SMALL_CAP}, label
        assert count_max_usage(body, target) == SMALL_CAP, label
        assert len(list_bounds(body, UPPER_BOUNDS)) == 1, label


@for_each("multiplier", ["n", "best_of", "n_cmpl", "extra_body.n", "options.n"])
def test_every_choice_is_claimed_under_any_name(multiplier: str) -> None:
    call = read_request("openai", {"max_tokens": 10, multiplier: 7})
    group_tokens = 3 if "." in multiplier else 0  # names and numbers in a group are sent

    assert estimate_tokens(call, OPEN_TARGET) == (1 + group_tokens, 70)


@for_each("budget", REASONING_BUDGETS)
@for_each("route", ["openai-chat", "fireworks-chat", "scale-chat", "multimodel"])
def test_claim_includes_reasoning_and_output_tokens(route: str, budget: str) -> None:
    for bound, value in product((None, 10, 900), (-1, 0, 1, 5000)):
        fields = {budget: value} | ({} if bound is None else {"max_tokens": bound})
        size = estimate_tokens(read_request(route, fields), OPEN_TARGET)
        assert size is not None
        assert size[1] == (ASSUMED_TOKENS if bound is None else bound) + max(0, value), fields


@for_each("budget", REASONING_BUDGETS)
@for_each("effect", ["cap", "set"])
def test_capped_reasoning_leaves_room_for_output(effect: str, budget: str) -> None:
    changes = ParameterOverrides(**{effect: {"max_tokens": 100}})
    for bound, value in product((None, 10, 900), (-1, 0, 20, 5000)):
        call = read_request(
            "openai-chat", {budget: value} | ({} if bound is None else {"max_tokens": bound})
        )
        body = build_body(call, OPEN_TARGET, changes)
        size = estimate_tokens(call, OPEN_TARGET, changes)

        assert get_field(body, budget) == min(value, 99), (bound, value)
        expected = 10 if (effect, bound) == ("cap", 10) else 100
        assert list_bounds(body, ("max_tokens", "max_completion_tokens")) == [expected]
        assert size is not None
        assert size[1] <= 199


def test_added_bound_is_above_the_reasoning_budget() -> None:
    call = read_request("openai-chat", {"reasoning.max_tokens": 50})
    body = build_body(call, OPEN_TARGET, ParameterOverrides(cap={"max_tokens": 400}))

    assert (body["reasoning"]["max_tokens"], body["max_completion_tokens"]) == (50, 400)


@for_each("name", ["max_completion_tokens", "n_predict", "max_new_tokens"])
@for_each("route", ["openai", "openai-chat", "multimodel"])
def test_negative_bound_is_refused(route: str, name: str) -> None:
    assert find_refused_field(route, {name: -1_000_000_000}) == name


TWO_BOUNDS = {"max_tokens": 1, "max_completion_tokens": 900}


async def test_claim_uses_larger_of_two_bounds(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    """900 tokens at a thousand USD per million are 0.9 USD: one call fits a budget of 1, not 30."""
    upstream.answer_with(respond(chat("Hi", usage=usage(2, 900))))
    policy = "\npolicies: {default: {limits: [{name: month, usd: 1 per month, unpriced: allow}]}}\n"
    policies = policies_for(upstream.url).replace("output: 0.6", "output: 1000") + policy
    async with running_proxy(tmp_path / "policies", policies) as proxy:
        calls = [send_fields(proxy, "openai-chat", TWO_BOUNDS) for _ in range(30)]
        replies = await asyncio.gather(*calls)
        records = await proxy.sink.wait(30)

    assert [reply.status for reply in replies].count(200) == 1
    assert sum(record.billing.cost or 0 for record in records) < 1_000_000_000


async def test_economics_guard_uses_larger_bound(start: Start, upstream: ScriptedUpstream) -> None:
    guard = "{guard: economics, max_cost_usd: 0.0001}"
    proxy = await start(f"\npolicies: {{default: {{input: [{guard}]}}}}\n")

    assert (await send_fields(proxy, "openai-chat", TWO_BOUNDS)).status == 400
    assert upstream.requests == []


FIREWORKS = Target(Upstream("up", "fireworks", "http://127.0.0.1:9"), "m")


@for_each(
    ("route", "fields"),
    [
        *(("openai", fields) for fields in ({"stop": ["a"] * 6}, {"logprobs": 10})),
        *(("openai", fields) for fields in ({"max_tokens": -1}, {"temperature": 3})),
        *(("openai-chat", fields) for fields in ({"stop": ["a"] * 6}, {"max_tokens": -1})),
        *(("openai-chat", fields) for fields in ({"logprobs": True, "top_logprobs": 50},)),
        ("openai-chat", {"n": 200}),
        ("scale", {"stop_sequences": [*"abcde"]}),
    ],
)
def test_ranges_are_those_of_the_upstream(route: str, fields: dict[str, Any]) -> None:
    scale = Target(Upstream("up", "scale", "http://127.0.0.1:9"), "m")
    body = build_body(read_request(route, fields), scale if route == "scale" else OPEN_TARGET)

    assert {name: body[name] for name in fields} == fields
    assert route != "scale" or "stop" not in body  # not even as null
    assert find_refused_field(route, fields, FIREWORKS) in fields
