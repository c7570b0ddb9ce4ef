"""Claims cover what each upstream may obey, and caps hold, between all dialects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import cycle, product
from math import gcd
from typing import Any, Literal

import pytest

from proxy.dialects import DIALECTS, RequestContext, parse_head, read_call
from proxy.dialects.requests.upstream_request import build_request
from proxy.errors import InvalidField
from proxy.fields.token_bounds import ASSUMED_TOKENS
from proxy.types import UNCHANGED, Call, Endpoint, ParameterOverrides, Target, Upstream
from tests.for_each import for_each
from tests.limits.sample_limits import estimate_tokens

# Names that servers are known to obey, listed independently of the product's table.
TOP = (
    "max_tokens", "max_completion_tokens", "max_new_tokens", "max_output_tokens", "max_length",
    "n_predict", "num_predict", "max_gen_len", "max_token_count", "max_tokens_to_generate",
    "max_tokens_to_sample", "request_output_len",
)  # fmt: skip
NESTED = (
    "options.num_predict", "extra_body.max_tokens", "inference_extra_params.max_new_tokens",
    "parameters.max_new_tokens", "extra_body.options.num_predict", "model_kwargs.max_gen_len",
    "generation_config.max_output_tokens", "inference_config.max_tokens",
    "text_generation_config.max_token_count", "additional_model_request_fields.max_tokens",
)  # fmt: skip
BUDGETS = (
    "thinking.budget_tokens", "reasoning.max_tokens", "thinking_budget", "thinking_token_budget",
    "thinking_budget_tokens", "reasoning_budget_tokens", "reasoning_budget",
    "thinking.token_budget", "chat_template_kwargs.thinking_budget",
    "custom_params.thinking_budget", "nvext.max_thinking_tokens",
    "extra_body.google.thinking_config.thinking_budget",
    "extra_body.thinking.budget_tokens", "extra_body.reasoning.max_tokens",
    "generation_config.thinking_config.thinking_budget", "reasoning_config.budget_tokens",
)  # fmt: skip
FLOOR = "min_tokens"
NAMES = (*TOP, *NESTED, FLOOR)
LEGACY_DEFAULT = 16
CAP = 8

DOORS: dict[str, tuple[str, Endpoint]] = {
    "openai": ("/v1/completions", "completions"),
    "openai-chat": ("/v1/chat/completions", "chat"),
    "portkey": ("/v1/completions", "completions"),
    "portkey-chat": ("/v1/chat/completions", "chat"),
    "fireworks": ("/inference/v1/completions", "completions"),
    "fireworks-chat": ("/inference/v1/chat/completions", "chat"),
    "scale": ("/v5/completions", "completions"),
    "scale-chat": ("/v5/chat/completions", "chat"),
    "multimodel": ("/v1/completion", "completions"),
    "enkrypt": ("/ai-proxy/completions", "completions"),
    "enkrypt-chat": ("/ai-proxy/chat/completions", "chat"),
}


def targets() -> Iterator[Target]:
    endpoints: tuple[Literal["completions", "chat"] | None, ...] = (None, "completions", "chat")
    for dialect, endpoint in product(DIALECTS, endpoints):
        upstream = Upstream("up", dialect, "http://127.0.0.1:9")
        yield Target(upstream, "smol", endpoint)
        if dialect == "openai":
            yield Target(replace(upstream, open_ranges=True), "smol", endpoint)
            yield Target(replace(upstream, open_ranges=True), "o3-mini", endpoint)


TARGETS = tuple(targets())


def set_value(body: dict[str, Any], path: str, value: Any) -> None:
    *groups, name = path.split(".")
    for group in groups:
        body = body.setdefault(group, {})
    body[name] = value


def value_at(body: Any, path: str) -> Any:
    for name in path.split("."):
        body = body.get(name) if isinstance(body, dict) else None
    return body


def call_of(door: str, fields: dict[str, Any]) -> Call:
    path, endpoint = DOORS[door]
    body: dict[str, Any] = {"model": "m"}
    if endpoint == "completions":
        body["prompt"] = "Hi"
    else:
        body["messages"] = [{"role": "user", "content": "Hi"}]
    for name, value in fields.items():
        set_value(body, name, value)
    headers = {"x-portkey-api-key": "k"} if door.startswith("portkey") else {}
    received = RequestContext("r", "r", datetime(2026, 1, 1, tzinfo=UTC))
    return read_call(parse_head("POST", path, headers, received), body)


def sent_body(
    call: Call, target: Target, changes: ParameterOverrides = UNCHANGED
) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(build_request(call, target, changes).body)
    return body


def bounds_in(body: dict[str, Any]) -> list[int]:
    return [value for name in NAMES if (value := value_at(body, name)) is not None]


def may_use(body: dict[str, Any], target: Target) -> int:
    """The most tokens that any server may make of it: one that knows every name takes the largest,
    one that knows those of its API's document alone is unbounded where they are not there, and one
    that is not OpenAI's own may take 0 for unbounded."""
    values = [
        value for name in NAMES if name != FLOOR and (value := value_at(body, name)) is not None
    ]
    minimum = 0 if target.upstream.dialect == "openai" and not target.upstream.open_ranges else 1
    documented = TOP[:3] if target.upstream.dialect in ("scale", "multimodel") else TOP[:2]
    known_items = [body[name] for name in documented if body.get(name) is not None]
    open_end = not known_items or any(value < minimum for value in values)
    return max([*bounds_in(body), ASSUMED_TOKENS if open_end else 0])


def combinations() -> Iterator[dict[str, int]]:
    yield {}
    for name, value in product(NAMES, (0, 1, 60, 900, 5000, -1)):
        yield {name: value}
    for first_value, second in product(("max_tokens", "max_completion_tokens", "n_predict"), NAMES):
        if first_value != second:
            yield {first_value: 1, second: 900}


Crossing = tuple[dict[str, int], Call, Target, dict[str, Any]]


def crossings(door: str) -> Iterator[Crossing]:
    """Yield every accepted call with each of its targets and the body sent there."""
    for combination in combinations():
        try:
            call = call_of(door, combination)
        except InvalidField:
            continue
        for target in TARGETS:
            try:
                body = sent_body(call, target)
            except InvalidField:
                continue
            yield combination, call, target, body


@for_each("door", DOORS)
def test_claim_covers_every_bound(door: str) -> None:
    number = 0
    for fields, call, target, body in crossings(door):
        size = estimate_tokens(call, target)
        assert size is not None
        assert size[1] >= may_use(body, target), (fields, target, body)
        number += 1

    assert number > 500


@pytest.mark.parametrize("door", DOORS)
def test_cap_holds_under_every_name(door: str) -> None:
    item = cycle(product(("max_tokens", "max_completion_tokens"), (CAP, 4096)))
    for (fields, call, target, free), (name, maximum) in zip(crossings(door), item, strict=False):
        body = sent_body(call, target, ParameterOverrides(cap={name: maximum}))
        where = (fields, target, name, maximum, body)
        assert all(0 <= value <= maximum for value in bounds_in(body)), where
        assert may_use(body, target) <= maximum, where
        for count_before, count_after in matching_bounds(free, body):
            assert count_after <= count_before or count_before <= 0, where
        if not bounds_in(free) and ("prompt" in body):
            assert may_use(body, target) <= LEGACY_DEFAULT, where
        if not bounds_in(free) and target.model == "o3-mini" and "messages" in body:
            assert "max_tokens" not in body, where


def test_each_bound_and_target_is_tested_with_each_cap() -> None:
    """Caps rotate over all crossings. Their number per target must not divide evenly."""
    assert gcd(len(TARGETS), 4) == 1


def matching_bounds(free: dict[str, Any], body: dict[str, Any]) -> list[tuple[int, int]]:
    pairs = ((value_at(free, name), value_at(body, name)) for name in NAMES)
    return [
        (value, other_value)
        for value, other_value in pairs
        if value is not None and other_value is not None
    ]


@pytest.mark.parametrize("door", DOORS)
def test_set_value_is_the_only_bound(door: str) -> None:
    for fields, call, target, _ in crossings(door):
        body = sent_body(call, target, ParameterOverrides(set={"max_tokens": CAP}))
        where = (fields, target, body)
        assert set(bounds_in(body)) <= {value_at(body, FLOOR), CAP}, where
        assert may_use(body, target) == CAP, where
        assert sum(value_at(body, name) is not None for name in NAMES if name != FLOOR) == 1, where


@for_each("multiplier", ["n", "best_of", "n_cmpl", "extra_body.n", "options.n"])
def test_every_choice_is_claimed_under_any_name(multiplier: str) -> None:
    body = {"max_tokens": 10, multiplier: 7}
    target = Target(Upstream("up", "openai", "http://127.0.0.1:9", open_ranges=True), "m")

    assert estimate_tokens(call_of("openai", body), target) == (1 + extra(body), 70)


def extra(body: dict[str, int]) -> int:
    """Return names and numbers in a group of options that is sent."""
    return 3 if any("." in name for name in body) else 0


OPEN = Target(Upstream("up", "openai", "http://127.0.0.1:9", open_ranges=True), "m")


@for_each("budget", BUDGETS)
@for_each("door", ["openai-chat", "fireworks-chat", "scale-chat", "multimodel"])
def test_claim_includes_reasoning_and_output_tokens(door: str, budget: str) -> None:
    for bound, value in product((None, 10, 900), (-1, 0, 1, 5000)):
        fields = {budget: value} | ({} if bound is None else {"max_tokens": bound})
        size = estimate_tokens(call_of(door, fields), OPEN)
        assert size is not None
        assert size[1] == (ASSUMED_TOKENS if bound is None else bound) + max(0, value), fields


@for_each("budget", BUDGETS)
@for_each("does", ["cap", "set"])
def test_capped_reasoning_leaves_room_for_output(does: str, budget: str) -> None:
    changes = ParameterOverrides(**{does: {"max_tokens": 100}})
    for bound, value in product((None, 10, 900), (-1, 0, 20, 5000)):
        fields = {budget: value} | ({} if bound is None else {"max_tokens": bound})
        body = sent_body(call_of("openai-chat", fields), OPEN, changes)
        assert value_at(body, budget) == min(value, 99), fields
        top = [body.get(name) for name in ("max_tokens", "max_completion_tokens")]
        assert [item for item in top if item is not None] == [
            10 if (does, bound) == ("cap", 10) else 100
        ]
        size = estimate_tokens(call_of("openai-chat", fields), OPEN, changes)
        assert size is not None
        assert size[1] <= 199


def test_added_bound_is_above_the_reasoning_budget() -> None:
    fields = {"reasoning.max_tokens": 50}
    body = sent_body(
        call_of("openai-chat", fields), OPEN, ParameterOverrides(cap={"max_tokens": 400})
    )

    assert (body["reasoning"]["max_tokens"], body["max_completion_tokens"]) == (50, 400)
