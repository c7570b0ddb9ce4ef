"""A proxy with every feature enabled, a greedy upstream, and checks of all guarantees."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proxy.ledger.audit import audit
from proxy.limits.claims import estimate_claims
from proxy.settings import LedgerLocation
from tests.adversary.grammar import BOUNDS, FORBIDDEN, ROUTING, Hostile
from tests.adversary.loops import LAG_S, Lag
from tests.conftest import Proxy, policies_for, running_proxy
from tests.doubles import (
    Json,
    ReceivedRequest,
    Wire,
    answer,
    chat,
    legacy,
    scripted_upstream,
    stream,
)

CAP = 40
CHOICES = 3
PATIENCE_S = 30.0
POLICY = f"""
policies:
  default:
    match: all
    input:
      - {{guard: keywords, words: [{FORBIDDEN}], action: block}}
      - {{guard: secrets, action: mask}}
      - {{guard: pii, entities: [email, card], action: mask, restore: true}}
      - {{guard: urls, action: flag}}
      - {{guard: injection, action: flag}}
    output:
      - {{guard: keywords, name: out, words: [{FORBIDDEN}], action: block}}
      - {{guard: secrets, name: leaks, action: mask}}
    cache: {{ttl: 1h}}
    rules:
      - {{name: short, when: {{model: {{glob: '*'}}}}, cap: {{max_tokens: {CAP}, n: {CHOICES}}}}}
    limits:
      - {{name: tokens, tokens: 1000M per day}}
      - {{name: money, usd: 100000 per month, unpriced: allow}}
      - {{name: calls, requests: 1M per minute, per: [key, user]}}
      - {{name: at-once, concurrency: 1000}}
"""


def strings(value: Any, *, names: bool = True) -> list[str]:
    matches: list[str] = []
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            matches.append(item)
        elif isinstance(item, dict):
            matches += item if names else ()
            stack += item.values()
        elif isinstance(item, list):
            stack += item
    return matches


def tokens_at_least(texts: list[str]) -> int:
    """Return a lower bound of tokens: 1/8 of ASCII characters, 1/4 of other letters."""
    letters = "".join(texts)
    ascii_ = sum(map(str.isascii, letters))
    other_count = sum(letter.isalpha() for letter in letters if not letter.isascii())
    return ascii_ // 8 + other_count // 4


def _if_int(value: object) -> list[int]:
    return [value] if type(value) is int else []


@dataclass
class Greedy:
    """An upstream that uses all tokens that a body allows, and reports them."""

    bodies: list[Json] = field(default_factory=list)

    def most(self, body: Json) -> int:
        options = body.get("options")
        inner = _if_int(options.get("num_predict")) if isinstance(options, dict) else []
        names = [number for name in BOUNDS for number in _if_int(body.get(name))]
        return max((number for number in names + inner if number >= 0), default=CAP)

    def used(self, body: Json) -> Json:
        prompts = body.get("prompt")
        several = isinstance(prompts, list) and not all(type(item) is int for item in prompts)
        count = len(prompts) if isinstance(prompts, list) and several else 1
        choices = max([1, *_if_int(body.get("n")), *_if_int(body.get("best_of"))])
        tokens = self.most(body) * choices * count
        prompt = tokens_at_least(strings({**body, "model": ""}, names=False))
        return {
            "prompt_tokens": prompt,
            "completion_tokens": tokens,
            "total_tokens": prompt + tokens,
        }

    async def __call__(self, request: ReceivedRequest, wire: Wire) -> None:
        body = request.json
        self.bodies.append(body)
        usage = self.used(body)
        document = chat("Fine.") if "messages" in body else legacy("Fine.")
        if body.get("stream"):
            base = {**document, "choices": [self._event(document)]}
            del base["usage"]
            script = stream([base, {**base, "choices": [], "usage": usage}])
        else:
            script = answer({**document, "usage": usage})
        await script(request, wire)

    @staticmethod
    def _event(document: Json) -> Json:
        choice = document["choices"][0]
        if "message" in choice:
            return {"index": 0, "delta": choice["message"], "finish_reason": "stop"}
        return dict(choice)


class GuaranteeBroken(AssertionError):
    """A reproducible request broke a guarantee."""


@dataclass
class CheckedProxy:
    """A checked proxy. ``send`` raises ``Broken`` for a request that breaks a guarantee."""

    proxy: Proxy
    greedy: Greedy
    ledger: Path
    calls: int = 0
    statuses: dict[int, int] = field(default_factory=dict)

    async def send(self, hostile: Hostile) -> int:
        """Send one request, check every guarantee, and return the status."""
        gc.collect(0)
        gc.disable()  # it would traverse all objects of the tests
        try:
            with Lag() as lag:
                async with asyncio.timeout(PATIENCE_S):
                    status, text = await self._check_response(hostile)
        except TimeoutError:
            raise GuaranteeBroken(f"no answer within {PATIENCE_S} s: {hostile!r}") from None
        finally:
            gc.enable()
        self.calls += 1
        self.statuses[status] = self.statuses.get(status, 0) + 1
        [record] = await self.proxy.sink.wait()
        self.proxy.sink.forget()
        results, self.greedy.bodies = self.greedy.bodies, []
        broken = [
            *self._of_answer(status, text),
            *self._of_bodies(results, hostile),
            *self._of_record(record, results),
            *([f"the loop was held for {lag.worst:.3f} s"] if lag.worst > LAG_S else []),
        ]
        if broken:
            raise GuaranteeBroken(f"{broken}\n{status} {text[:300]!r}\n{hostile!r}")
        return status

    async def _check_response(self, hostile: Hostile) -> tuple[int, bytes]:
        headers = {
            "content-type": "application/json",
            "cache-control": "no-cache",
            **dict(hostile.headers),
            **hostile.route.credential,
        }
        path = hostile.route.path
        reply = await self.proxy.send(path, hostile.body, headers)
        assert not reply.is_cut
        return reply.status, reply.raw

    def _of_answer(self, status: int, text: bytes) -> list[str]:
        broken = []
        if (status >= 500 and status != 508) or status == 429:  # 508: a forged Via header
            broken.append("a status of ours says that the proxy failed, or is used up")
        if status >= 400:
            try:
                error = json.loads(text)
            except ValueError:
                return [*broken, "the error is not JSON"]
            if not isinstance(error, dict) or "error" not in error:
                broken.append("the error has no error object")
        if FORBIDDEN.encode() in text:
            broken.append("the answer repeats the request's text")
        return broken

    def _of_bodies(self, bodies: list[Json], hostile: Hostile) -> list[str]:
        broken = []
        for body in bodies:
            if any(FORBIDDEN in string for string in strings(body)):
                broken.append("a text was sent that no guard has read")
            maximum = self.greedy.most(body)
            if maximum > CAP:
                broken.append(f"the cap of {CAP} let {maximum} tokens through")
            if not any(body.get(name) is not None for name in BOUNDS[:3]):
                broken.append("the cap bounded nothing")
            broken += [f"{name} was sent" for name in ROUTING if body.get(name) is not None]
        return broken

    def _of_record(self, record: Any, bodies: list[Json]) -> list[str]:
        used = [self.greedy.used(body) for body in bodies]
        total = sum(document["total_tokens"] for document in used)
        if not bodies:
            free = record.billing.tokens.total == 0 and not record.billing.cost
            return [] if free else ["a call that was not forwarded costs something"]
        claims = {
            claim.limit.name: claim.amount for claim in estimate_claims(record.plan, record.call)
        }
        broken = []
        if claims["tokens"] < total:
            broken.append(f"claimed {claims['tokens']} tokens, used {total}")
        if any(amount < 0 for amount in claims.values()):
            broken.append(f"a negative claim: {claims}")
        if record.billing.tokens.total != total:
            broken.append(f"recorded {record.billing.tokens.total} tokens of {total}")
        return broken


@asynccontextmanager
async def checked_proxy(folder: Path) -> AsyncIterator[CheckedProxy]:
    async with scripted_upstream() as upstream:
        greedy = Greedy()
        upstream.answer_with(greedy)
        ledger = folder / "ledger.db"
        policies = policies_for(upstream.url) + POLICY
        async with running_proxy(
            folder / "policies", policies, ledger=LedgerLocation("sqlite", ledger)
        ) as proxy:
            yield CheckedProxy(proxy, greedy, ledger)
        violations = audit(ledger).violations
        assert violations == ()  # every call is in the ledger, and all sums agree
