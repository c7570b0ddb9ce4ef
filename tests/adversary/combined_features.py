"""Policies with all combinations of guards, caches and failover, and an upstream for them."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections import Counter
from dataclasses import dataclass, field

from hypothesis import strategies as st

from tests.conftest import policies_for
from tests.doubles import (
    Json,
    ReceivedRequest,
    Script,
    Wire,
    chat,
    chat_events,
    cut_before_head,
    hang,
    head,
    item_events,
    legacy_completion,
    legacy_events,
    respond,
    response,
    response_events,
    stream,
    text_item,
    usage,
)

PROMPT_WORD, RESPONSE_WORD = "hippo", "rhino"
"""The words of guards of requests and of responses."""
PRICE = "price: {input: 2, output: 4}"


def keyword_guard(side: str, word: str, action: str) -> str:
    return f"{side}: [{{guard: keywords, words: [{word}], action: {action}}}]"


ROUTE = "route, to: [{upstream: openai, model: elsewhere, price: {input: 10, output: 30}}]"
GUARDS = {
    "none": "",
    **{f"in-{a}": keyword_guard("input", PROMPT_WORD, a) for a in ("block", "mask", "flag")},
    "in-route": keyword_guard("input", PROMPT_WORD, ROUTE),
    **{f"out-{a}": keyword_guard("output", RESPONSE_WORD, a) for a in ("block", "mask", "retry")},
}
CACHES = {"kept": "cache: {ttl: 1h}", "unkept": ""}
FAILOVERS = {
    "plain": "",
    "retried": "retry: {times: 1, wait: 1ms, max_wait: 2ms}",
    "hedged": "hedge: {after: 5ms}",
    "fallen": f"fallback: [{{upstream: openai, model: spare, {PRICE}}}]",
}
MODELS = ("one", "two")
RULES = "rules: [{name: steady, set: {seed: 1}}]"
COMBINATIONS = list(itertools.product(GUARDS, CACHES, FAILOVERS))
"""A guard, a cache and a failover. Their deployment has the three names."""
LIMITS = """  limited:
    limits:
      - {name: month, usd: 1000 per month}
      - {name: tokens, tokens: 500M per day}
      - {name: at-once, concurrency: 200}
"""
BEHAVIORS = (
    "answered", "found", "overloaded", "broken", "refused", "garbled", "gone", "cut", "slow",
    "zero", "unreported", "denied",
)  # fmt: skip
"""Behaviors of an upstream. ``found`` responds with the guarded word, ``zero`` reports no tokens in
its first event and breaks off, ``slow`` responds late enough for a hedge."""
USUAL_BEHAVIORS = ("answered", "found", "found")
PATHS = {
    "legacy": "/v1/completions",
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}
"""Paths of client APIs. All but Messages are also APIs of the upstream."""
API_ROTATION = (
    "responses",
    "legacy",
    "chat",
    "responses",
    "messages",
)  # 5: no divisor of behaviors
OVERSIZED = respond(b'{"choices": [' + b"{}," * 100_000 + b"{}]}")
DISCONNECTS = ("stays", "stays", "stays", "leaves-early", "leaves-midway")


def build_policies(upstream: str) -> str:
    """Return policies with a deployment for each combination of features."""
    targets = "".join(f"      - {{upstream: openai, model: {m}, {PRICE}}}\n" for m in MODELS)
    names = ["-".join(combination) for combination in COMBINATIONS]
    deployments = "".join(
        f"  {name}:\n    policy: {guard}-{cache}\n    {FAILOVERS[failover]}\n"
        f"    targets:\n{targets}"
        for name, (guard, cache, failover) in zip(names, COMBINATIONS, strict=True)
    )
    policies = "".join(
        f"  {guard}-{cache}:\n    extends: limited\n    {RULES}\n"
        f"    {GUARDS[guard]}\n    {CACHES[cache]}\n"
        for guard, cache in itertools.product(GUARDS, CACHES)
    )
    text = policies_for(upstream).replace("base_url: '", "breaker: off, base_url: '")
    allowed = f"deployments: [{', '.join(names)}, support-chat,"
    text = text.replace("deployments: [support-chat,", allowed)
    return f"{text}{deployments}policies:\n{LIMITS}{policies}"


@dataclass(frozen=True)
class Step:
    """One call: its deployment, text, upstream behavior by attempt, and disconnect."""

    combination: tuple[str, str, str]
    api: str
    streamed: bool
    word: str
    behaviors: tuple[str, ...]
    disconnect: str = "stays"
    several_models: bool = False
    padding: str = ""

    @property
    def path(self) -> str:
        return "/v1/completion" if self.several_models else PATHS[self.api]

    def body(self, number: int) -> Json:
        """Return the body, whose text tells the upstream what to do."""
        behaviors = ",".join(self.behaviors)
        text = f"{self.padding}call {number}, who {self.disconnect}: {self.word} and {behaviors}"
        if self.several_models:
            return {"model": list(MODELS), "prompt": text, "max_tokens": 20}
        messages = [{"role": "user", "content": text}]
        fields: dict[str, Json] = {
            "legacy": {"prompt": text, "max_tokens": 20},
            "chat": {"messages": messages, "max_tokens": 20},
            "responses": {"input": messages, "max_output_tokens": 20},
            "messages": {"messages": messages, "max_tokens": 20},
        }
        return {"model": MODELS[0], "stream": self.streamed, **fields[self.api]}


@st.composite
def steps(draw: st.DrawFn) -> Step:
    several = draw(st.integers(0, 7)) == 0
    behaviors = st.sampled_from((*BEHAVIORS, *USUAL_BEHAVIORS))
    return Step(
        combination=draw(st.sampled_from(COMBINATIONS)),
        api="legacy" if several else draw(st.sampled_from(sorted(PATHS))),
        streamed=not several and draw(st.booleans()),
        word=draw(st.sampled_from(("nothing", PROMPT_WORD))),
        behaviors=tuple(draw(st.lists(behaviors, min_size=1, max_size=3))),
        disconnect=draw(st.sampled_from(DISCONNECTS)),
        several_models=several,
    )


SEQUENCES = st.lists(st.tuples(steps(), st.integers(1, 3)), min_size=1, max_size=4)
"""Steps, each sent by so many clients at the same time."""
EVERY_STEP = [
    Step(
        combination,
        API_ROTATION[number % len(API_ROTATION)],
        streamed,
        PROMPT_WORD if combination[0].startswith("in") else "nothing",
        (behavior, "answered"),
    )
    for number, (combination, behavior, streamed) in enumerate(
        itertools.product(COMBINATIONS, BEHAVIORS, (False, True))
    )
]
"""Each combination with each behavior of its first attempt, whole and streamed."""


@dataclass
class ObedientUpstream:
    """An upstream that behaves as the text of each request says, attempt by attempt.

    ``reported_tokens`` are those of complete responses to clients that stayed.
    """

    attempts: Counter[str] = field(default_factory=Counter)
    reported_tokens: int = 0

    async def __call__(self, request: ReceivedRequest, wire: Wire) -> None:
        body = request.json
        messages = body.get("messages", body.get("input"))
        text = messages[0]["content"] if messages else body["prompt"]
        bound = body.get("max_tokens", body.get("max_output_tokens"))
        name = f"{text} {body['model'] if bound != 20 else ''}"
        match = re.search(r"and ([a-z,]+)$", text)
        behaviors = match[1].split(",") if match else ["answered"]
        behavior = behaviors[min(self.attempts[name], len(behaviors) - 1)]
        self.attempts[name] += 1
        script = build_script(behavior, body)
        if behavior == "slow":
            await asyncio.sleep(0.03)
        await script(request, wire)
        if behavior in ("answered", "found") and "who stays" in text:
            self.reported_tokens += 8


FAILURES: dict[str, Script] = {
    "overloaded": respond({"error": {"message": "later"}}, 429),
    "broken": respond({"error": {"message": "no"}}, 500),
    "refused": respond({"error": {"message": "no"}}, 400),
    "denied": respond({"error": {"message": "no"}}, 401),
    "garbled": respond(b"{"),
    "gone": cut_before_head(),
    "html": respond(b"<html>", media_type="text/html"),
    "oversized": OVERSIZED,
    "silent": hang(),
    "torn": stream([*chat_events("Par")[:2], b"no json"]),
}


def build_script(behavior: str, body: Json) -> Script:
    if behavior in FAILURES:
        return FAILURES[behavior]
    text = f"It is a {RESPONSE_WORD if behavior == 'found' else 'cat'}, y" + "es" * 20
    has_usage, is_cut = behavior not in ("zero", "unreported"), behavior in ("cut", "zero")
    if body.get("stream"):
        return stream_text(text, body, behavior, has_usage=has_usage, is_cut=is_cut)
    if is_cut:
        return cut_within_body
    document = response(text_item(text)) if "input" in body else legacy_completion(text)
    document = chat(text) if "messages" in body else document
    if not has_usage:
        del document["usage"]
    return respond(document)


def stream_text(text: str, body: Json, behavior: str, *, has_usage: bool, is_cut: bool) -> Script:
    pieces = text[:12], text[12:]
    if "input" in body:
        item = text_item(text)
        document = response(item, **({} if has_usage else {"usage": None}))
        events = response_events(item_events(0, item, *pieces), document=document)
        return stream(events, is_done=False, cut_after=5 if is_cut else None)
    build = chat_events if "messages" in body else legacy_events
    events = build(*pieces, with_usage=has_usage)
    if behavior == "zero":
        events[0]["usage"] = usage(0, 0)
    return stream(events, cut_after=2 if is_cut else None)


async def cut_within_body(request: ReceivedRequest, wire: Wire) -> None:
    await wire.send(head(200, "application/json", "content-length: 5000"), b'{"id": "half')
    wire.cut()
