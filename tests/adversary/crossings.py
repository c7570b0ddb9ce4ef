"""A proxy with all combinations of guard actions, caches and retries, and a random upstream."""

from __future__ import annotations

import asyncio
import itertools
import re
from dataclasses import dataclass, field

from hypothesis import strategies as st

from tests.conftest import policies_for
from tests.doubles import (
    Json,
    ReceivedRequest,
    Script,
    Wire,
    answer,
    chat,
    chat_events,
    cut_before_head,
    hang,
    head,
    item_events,
    legacy,
    legacy_events,
    response,
    response_events,
    stream,
    text_item,
)

PROMPT_WORD, RESPONSE_WORD = "hippo", "rhino"
"""The words that guards of questions, and those of answers, look for."""

GUARDS = {
    "none": "",
    "in-block": f"input: [{{guard: keywords, words: [{PROMPT_WORD}], action: block}}]",
    "in-mask": f"input: [{{guard: keywords, words: [{PROMPT_WORD}], action: mask}}]",
    "in-flag": f"input: [{{guard: keywords, words: [{PROMPT_WORD}], action: flag}}]",
    "in-route": (
        f"input: [{{guard: keywords, words: [{PROMPT_WORD}], action: route, "
        "to: [{upstream: openai, model: elsewhere, price: {input: 10, output: 30}}]}]"
    ),
    "out-block": f"output: [{{guard: keywords, words: [{RESPONSE_WORD}], action: block}}]",
    "out-mask": f"output: [{{guard: keywords, words: [{RESPONSE_WORD}], action: mask}}]",
    "out-retry": f"output: [{{guard: keywords, words: [{RESPONSE_WORD}], action: retry}}]",
}
CACHES = {"kept": "cache: {ttl: 1h}", "unkept": ""}
ONWARD = {
    "plain": "",
    "retried": "retry: {times: 1, wait: 1ms, max_wait: 2ms}",
    "hedged": "hedge: {after: 5ms}",
    "fallen": "fallback: [{upstream: openai, model: spare, price: {input: 2, output: 4}}]",
}
STEADY = "rules: [{name: steady, set: {seed: 1}}]"
MODELS = ("one", "two")
CASES = list(itertools.product(GUARDS, CACHES, ONWARD))
LIMITS = """  limited:
    limits:
      - {name: month, usd: 1000 per month}
      - {name: tokens, tokens: 500M per day}
      - {name: at-once, concurrency: 200}
"""

WAYS = (
    "answered", "found", "overloaded", "broken", "refused", "garbled", "gone", "cut", "slow",
    "zero", "unreported", "denied",
)  # fmt: skip
"""What an upstream may do to one request. ``found`` answers with the guarded word, ``zero`` reports
no tokens in its first event and breaks off, ``slow`` answers late enough for a hedge."""

FORMS = {
    "legacy": "/v1/completions",
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}
"""The paths of clients' forms; all but Messages are the upstream's, too."""
IN_TURN = ("responses", "legacy", "chat", "responses", "messages")  # no divisor of ``WAYS``
USUAL = ("answered", "found", "found")
OVERSIZED = answer(b'{"choices": [' + b"{}," * 100_000 + b"{}]}")
LEAVES = ("stays", "stays", "stays", "leaves-early", "leaves-midway")


def policies(upstream: str) -> str:
    """Return policies with a deployment for each case, and one that only counts."""
    price = "price: {input: 2, output: 4}"
    by_name = {"-".join(case): case for case in CASES}
    deployments = "".join(
        f"  {name}:\n    policy: {case[0]}-{case[1]}\n    {ONWARD[case[2]]}\n    targets:\n"
        + "".join(f"      - {{upstream: openai, model: {m}, {price}}}\n" for m in MODELS)
        for name, case in by_name.items()
    )
    rules = "".join(
        f"  {guard}-{cache}:\n    extends: limited\n    {STEADY}\n    {GUARDS[guard]}\n"
        f"    {CACHES[cache]}\n"
        for guard, cache in itertools.product(GUARDS, CACHES)
    )
    text = policies_for(upstream)
    reach = ", ".join(by_name)
    text = text.replace("deployments: [support-chat,", f"deployments: [{reach}, support-chat,")
    text = text.replace("base_url: '", "breaker: off, base_url: '")
    return f"{text}{deployments}policies:\n{LIMITS}{rules}"


@dataclass(frozen=True)
class Step:
    """One call: its deployment, text, result of each attempt, and whether its client stays."""

    case: tuple[str, str, str]
    form: str
    streamed: bool
    asks: str
    ways: tuple[str, ...]
    leaves: str = "stays"
    several: bool = False
    padding: str = ""

    @property
    def path(self) -> str:
        return "/v1/completion" if self.several else FORMS[self.form]

    def body(self, number: int) -> Json:
        text = f"call {number}, who {self.leaves}: {self.asks} and {','.join(self.ways)}"
        text = self.padding + text
        if self.several:
            return {"model": list(MODELS), "prompt": text, "max_tokens": 20}
        fields: Json = {"role": "user", "content": text}
        request: dict[str, Json] = {
            "legacy": {"prompt": text, "max_tokens": 20},
            "chat": {"messages": [fields], "max_tokens": 20},
            "responses": {"input": [fields], "max_output_tokens": 20},
            "messages": {"messages": [fields], "max_tokens": 20},
        }
        return {"model": MODELS[0], "stream": self.streamed, **request[self.form]}


@st.composite
def steps(draw: st.DrawFn) -> Step:
    several = draw(st.integers(0, 7)) == 0
    return Step(
        case=draw(st.sampled_from(CASES)),
        form="legacy" if several else draw(st.sampled_from(sorted(FORMS))),
        streamed=not several and draw(st.booleans()),
        asks=draw(st.sampled_from(("nothing", PROMPT_WORD))),
        ways=tuple(draw(st.lists(st.sampled_from((*WAYS, *USUAL)), min_size=1, max_size=3))),
        leaves=draw(st.sampled_from(LEAVES)),
        several=several,
    )


SEQUENCES = st.lists(st.tuples(steps(), st.integers(1, 3)), min_size=1, max_size=4)
"""Steps, each sent by so many clients at the same time."""


EVERY_STEP = [
    Step(
        case,
        form,
        streamed,
        PROMPT_WORD if case[0].startswith("in") else "nothing",
        (way, "answered"),
    )
    for number, (case, way, streamed) in enumerate(itertools.product(CASES, WAYS, (False, True)))
    for form in (IN_TURN[number % len(IN_TURN)],)
]
"""Each case with each way of its first try, whole and streamed, in one form after the other."""


@dataclass
class Fickle:
    """An upstream that does what each request's own text asks for, try by try. ``reported`` counts
    the tokens of the answers that it gave to their ends, to clients who stayed."""

    tries: dict[str, int] = field(default_factory=dict)
    reported: int = 0

    async def __call__(self, request: ReceivedRequest, wire: Wire) -> None:
        body = request.json
        turns = body.get("messages", body.get("input"))
        text = turns[0]["content"] if turns else body["prompt"]
        bound = body.get("max_tokens", body.get("max_output_tokens"))
        name = f"{text} {body['model'] if bound != 20 else ''}"
        match = re.search(r"and ([a-z,]+)$", text)
        ways = match[1].split(",") if match else ["answered"]
        number = self.tries[name] = self.tries.get(name, -1) + 1
        way = ways[min(number, len(ways) - 1)]
        await self.script(way, body, request)(request, wire)
        if way in ("answered", "found") and "who stays" in text:
            self.reported += 8

    def script(self, way: str, body: Json, request: ReceivedRequest) -> Script:
        string = f"It is a {RESPONSE_WORD if way == 'found' else 'cat'}, y" + "es" * 20
        failures: dict[str, Script] = {
            "overloaded": answer({"error": {"message": "later"}}, 429),
            "broken": answer({"error": {"message": "no"}}, 500),
            "refused": answer({"error": {"message": "no"}}, 400),
            "denied": answer({"error": {"message": "no"}}, 401),
            "garbled": answer(b"{"),
            "gone": cut_before_head(),
            "html": answer(b"<html>", media_type="text/html"),
            "oversized": OVERSIZED,
            "silent": hang(),
            "torn": stream([*chat_events("Par")[:2], b"no json"]),
        }
        if way in failures:
            return failures[way]
        event = way not in ("zero", "unreported")
        if not body.get("stream"):
            document = chat(string) if "messages" in body else legacy(string)
            document = response(text_item(string)) if "input" in body else document
            if not event:
                del document["usage"]
            if way in ("cut", "zero"):
                return _half(document)
            return _delayed(answer(document), request) if way == "slow" else answer(document)
        if "input" in body:
            return _late_if(way, request, _response_stream(way, string))
        make = chat_events if "messages" in body else legacy_events
        events = make(string[:12], string[12:], with_usage=event)
        if way == "zero":
            events[0]["usage"] = dict.fromkeys(
                ("prompt_tokens", "completion_tokens", "total_tokens"), 0
            )
        script = stream(events, cut_after=2 if way in ("cut", "zero") else None)
        return _late_if(way, request, script)


def _response_stream(way: str, text: str) -> Script:
    """Stream a response, which may be cut after its first words."""
    item = text_item(text)
    document = response(item)
    if way in ("zero", "unreported"):
        document["usage"] = None
    events = response_events(item_events(0, item, text[:12], text[12:]), document=document)
    return stream(events, is_done=False, cut_after=5 if way in ("cut", "zero") else None)


def _late_if(way: str, request: ReceivedRequest, script: Script) -> Script:
    return _delayed(script, request) if way == "slow" else script


def _half(document: Json) -> Script:
    async def script(request: ReceivedRequest, wire: Wire) -> None:
        await wire.send(head(200, "application/json", "content-length: 5000"), b'{"id": "half')
        wire.cut()

    return script


def _delayed(script: Script, request: ReceivedRequest) -> Script:
    async def late(observed: ReceivedRequest, wire: Wire) -> None:
        await asyncio.sleep(0.03)
        await script(observed, wire)

    return late
