"""Other wordings of a question, behind a real door."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from proxy.cache.semantic import CHARACTERS
from proxy.ports import Guards
from proxy.record import Record
from proxy.types import Call, Plan, Semantic
from proxy.types.guard import GuardResult, Verdict
from tests.cache.world import RULE, SEARCH_KEY, Cached, cached_proxy
from tests.conftest import KEY
from tests.doubles import ScriptedUpstream, Unguarded, answer, chat, chat_events, stream

ASKED = "How do I reset my password?"
AGAIN = "Could you tell me how to reset my password?"
PORTKEY = {"x-portkey-api-key": KEY, "x-portkey-virtual-key": "search-answers"}


class Saying(Unguarded):
    """A guard that says the same of every question with an @ in it."""

    def __init__(self, verdict: Verdict) -> None:
        self.result = GuardResult("pii", verdict, False, {"email": 1}, 1.0, 10, 1, 0.0)

    def gate(self, plan: Plan, call: Call, record: Record) -> Any:
        if "@" in str(call.body):
            record.guarded("input", [self.result])
        return super().gate(plan, call, record)


@dataclass
class Asking:
    """A client of a proxy whose rule takes other wordings for the same question."""

    cached: Cached
    bodies: list[bytes] = field(default_factory=list)

    def rule(self, semantic: Semantic, **more: Any) -> None:
        self.cached.rule(replace(RULE, semantic=semantic, **more))

    async def ask(
        self,
        text: Any = ASKED,
        *,
        key: str = KEY,
        headers: dict[str, str] | None = None,
        more: dict[str, Any] | None = None,
    ) -> str:
        """Return what the cache had to do with it."""
        asked = {"model": "smol", "messages": [{"role": "user", "content": text}], **(more or {})}
        said = {"authorization": f"Bearer {key}", **(headers or {})}
        post = self.cached.client.post("/v1/chat/completions", headers=said, json=asked)
        async with post as response:
            self.bodies.append(await response.read())
            assert response.status == 200
            return response.headers["x-headrace-cache"]

    def looked(self, result: str) -> float:
        return self.cached.counted(f'headrace_cache_semantic_total{{result="{result}"}}')


@asynccontextmanager
async def asking(
    tmp_path: Path, upstream: ScriptedUpstream, guards: Guards | None = None
) -> AsyncIterator[Asking]:
    upstream.answer_with(answer(chat()))
    async with cached_proxy(tmp_path / "policies", upstream, guards=guards) as cached:
        made = Asking(cached)
        made.rule(Semantic(shadow=False))
        yield made
    assert cached.bugs == []


@pytest.fixture
async def made(tmp_path: Path, upstream: ScriptedUpstream) -> AsyncIterator[Asking]:
    async with asking(tmp_path, upstream) as running:
        yield running


async def test_another_wording_gets_the_kept_answer_and_is_told_so(
    made: Asking, upstream: ScriptedUpstream
) -> None:
    first = await made.ask()
    result = await made.ask(AGAIN)
    exact = await made.ask()

    assert (first, result, exact) == ("miss", "hit_semantic", "hit")
    assert len(upstream.requests) == 1
    assert made.bodies[0] == made.bodies[1]
    [_, record, _] = await made.cached.sink.wait(3)
    assert record.cache == "hit_semantic"
    assert record.saved is not None
    assert record.billing.cost == 0
    assert made.cached.counted('headrace_cache_lookups_total{result="hit_semantic"}') == 1
    assert made.looked("hit") == 1


async def test_either_form_serves_another_wording(made: Asking, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(stream(chat_events()))

    await made.ask(more={"stream": True})
    results = [await made.ask(AGAIN, more={"stream": streamed}) for streamed in (True, False)]

    assert results == ["hit_semantic", "hit_semantic"]
    assert len(upstream.requests) == 1


async def test_a_portkey_client_is_told_that_it_was_a_semantic_hit(made: Asking) -> None:
    await made.ask(headers=PORTKEY)
    body = {"model": "smol", "messages": [{"role": "user", "content": AGAIN}]}
    post = made.cached.client.post("/v1/chat/completions", headers=PORTKEY, json=body)

    async with post as response:
        assert response.headers["x-portkey-cache-status"] == "SEMANTIC HIT"


async def test_in_shadow_it_is_noted_and_asked_all_the_same(
    made: Asking, upstream: ScriptedUpstream
) -> None:
    made.rule(Semantic())

    await made.ask()
    again = await made.ask(AGAIN)

    assert again == "miss"
    assert len(upstream.requests) == 2
    assert made.looked("would_hit") == 1
    [_, record] = await made.cached.sink.wait(2)
    assert record.other_words
    assert record.cache == "miss"


async def test_nobody_gets_the_answer_of_another_key(made: Asking) -> None:
    await made.ask()
    stranger = await made.ask(AGAIN, key=SEARCH_KEY)
    own = await made.ask(AGAIN)

    assert stranger == "miss"
    assert own == "hit_semantic"


async def test_questions_that_only_look_alike_are_asked(made: Asking) -> None:
    for text in ("How do I lock my card?", "How do I unlock my card?", "How do I lock your card?"):
        assert await made.ask(text) == "miss"

    assert made.looked("hit") == 0
    assert made.looked("other_words") == 3


def turn(content: Any, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content, **more}]}


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
TOOL = {"type": "function", "function": {"name": "reset"}}
SURROUNDINGS: dict[str, dict[str, Any]] = {
    "a system prompt": {
        "messages": [{"role": "system", "content": "Be brief."}, *turn(AGAIN)["messages"]]
    },
    "a name": turn(AGAIN, name="mia"),
    "a turn before": {
        "messages": [
            *turn(ASKED)["messages"],
            {"role": "assistant", "content": "Press the button."},
            *turn(AGAIN)["messages"],
        ]
    },
    "another temperature": {"temperature": 0.5},
    "a higher temperature than is allowed": {"temperature": 1.5},
    "another length": {"max_tokens": 5},
    "a context": {"context": "Passwords are reset on Mondays."},
    "a tool": {"tools": [TOOL]},
    "a field that nobody knows": {"novelty": 1},
    "parts": turn([{"type": "text", "text": AGAIN}]),
    "a picture": turn([{"type": "text", "text": AGAIN}, PICTURE]),
}


@pytest.mark.parametrize("name", SURROUNDINGS)
async def test_other_surroundings_are_another_question(name: str, made: Asking) -> None:
    await made.ask()
    other = await made.ask(AGAIN, more=SURROUNDINGS[name])
    same = await made.ask(AGAIN)

    assert other == "miss"
    assert same == "hit_semantic"


async def test_tools_and_hot_calls_are_never_looked_for(made: Asking) -> None:
    for more in ({"tools": [TOOL]}, {"temperature": 1.5}, {"novelty": 1}):
        for text in (ASKED, AGAIN):
            assert await made.ask(text, more=more) == "miss"

    assert made.looked("unfit") == 6


async def test_surroundings_that_are_the_same_do_not_matter(made: Asking) -> None:
    def said(text: str) -> dict[str, Any]:
        system = {"role": "system", "content": "Be brief."}
        more = {"temperature": 0.2, "context": "Passwords are reset on Mondays."}
        return {"messages": [system, *turn(text)["messages"]], **more}

    await made.ask(more=said(ASKED))

    assert await made.ask(more=said(AGAIN)) == "hit_semantic"


async def test_namespaces_of_clients_stay_apart(made: Asking) -> None:
    one, other = ({**PORTKEY, "x-portkey-cache-namespace": name} for name in ("a", "b"))

    await made.ask(headers=one)

    assert await made.ask(AGAIN, headers=other) == "miss"
    assert await made.ask(AGAIN, headers=one) == "hit_semantic"


async def test_another_plan_is_another_question(made: Asking) -> None:
    await made.ask()
    made.rule(Semantic(shadow=False), namespace="faq")

    assert await made.ask(AGAIN) == "miss"


async def test_a_wish_for_a_new_answer_is_heard_and_the_new_one_is_found(
    made: Asking, upstream: ScriptedUpstream
) -> None:
    await made.ask()
    upstream.answer_with(answer(chat("Press the button.")))

    no_cache = await made.ask(headers={"cache-control": "no-cache"})
    again = await made.ask(AGAIN)
    alone = await made.ask(AGAIN, headers={"cache-control": "no-store"})

    assert no_cache == "refresh"
    assert again == "hit_semantic"
    assert b"Press the button." in made.bodies[2]
    assert alone == "miss"


async def test_an_answer_older_than_a_client_takes_is_asked_anew(made: Asking) -> None:
    await made.ask()
    made.cached.clock.now += 10

    again = await made.ask(AGAIN, headers={"cache-control": "max-age=5"})

    assert again == "refresh"


@pytest.mark.parametrize("verdict", ["flagged", "masked", "failed"])
async def test_what_a_guard_found_something_in_is_not_looked_for(
    verdict: Verdict, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with asking(tmp_path, upstream, Saying(verdict)) as made:
        texts = ("Who is mia@x.test?", "Tell me who is mia@x.test?", ASKED, AGAIN)
        results = [await made.ask(text) for text in texts]

    assert results == ["miss", "miss", "miss", "hit_semantic"]


async def test_what_guards_have_passed_is_looked_for(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with asking(tmp_path, upstream, Saying("passed")) as made:
        texts = ("Who is mia@x.test?", "Tell me who is mia@x.test?")
        results = [await made.ask(text) for text in texts]

    assert results == ["miss", "hit_semantic"]


async def test_an_answer_that_is_kept_no_more_is_not_found(made: Asking) -> None:
    made.rule(Semantic(shadow=False), ttl=1000.0)
    await made.ask()
    made.rule(Semantic(shadow=False), ttl=60.0)
    made.cached.clock.now += 61

    assert await made.ask(AGAIN) == "miss"
    assert made.looked("gone") == 1


async def test_an_answer_too_large_to_keep_is_not_found(made: Asking) -> None:
    made.rule(Semantic(shadow=False), max_bytes=100)

    assert [await made.ask(text) for text in (ASKED, AGAIN)] == ["miss"] * 2
    assert made.looked("gone") == 0


async def test_equal_questions_at_once_all_get_the_other_wordings_answer(
    made: Asking, upstream: ScriptedUpstream
) -> None:
    await made.ask()

    results = await asyncio.gather(*(made.ask(AGAIN) for _ in range(20)))

    assert results == ["hit_semantic"] * 20
    assert len(upstream.requests) == 1


async def test_what_was_found_in_other_words_does_not_lead_further_away(made: Asking) -> None:
    await made.ask()
    await made.ask(AGAIN)

    assert made.cached.counted('headrace_cache_entries{store="other_words"}') == 1


@pytest.mark.parametrize("text", ["x" * (CHARACTERS + 1), "Sort this:\n  b\n  a", " ", "?"])
async def test_what_is_no_short_question_is_asked_as_ever(text: str, made: Asking) -> None:
    results = [await made.ask(each) for each in (text, text, f"Please {text}")]

    assert results == ["miss", "hit", "miss"]
