"""A proxy with every feature enabled, and checks of its guarantees after each call.

Its upstream uses all tokens that a body allows, and reports them.
"""

from __future__ import annotations

import asyncio
import gc
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proxy.ledger.audit import audit
from proxy.limits.claims import estimate_claims
from proxy.settings import LedgerLocation
from tests.adversary.event_loops import LAG_S, LoopLag
from tests.adversary.hostile_requests import BOUNDS, FORBIDDEN, ROUTING, HostileRequest
from tests.conftest import Proxy, policies_for, running_proxy
from tests.doubles import (
    Json,
    ReceivedRequest,
    Wire,
    chat,
    legacy_completion,
    respond,
    scripted_upstream,
    stream,
)

MAX_TOKENS = 40
MAX_CHOICES = 3
TIMEOUT_S = 30.0
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
      - name: short
        when: {{model: {{glob: '*'}}}}
        cap: {{max_tokens: {MAX_TOKENS}, n: {MAX_CHOICES}}}
    limits:
      - {{name: tokens, tokens: 1000M per day}}
      - {{name: money, usd: 100000 per month, unpriced: allow}}
      - {{name: calls, requests: 1M per minute, per: [key, user]}}
      - {{name: at-once, concurrency: 1000}}
"""


def list_strings(value: Any, *, names: bool = True) -> list[str]:
    """Return all strings in a JSON value, with or without names of members."""
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    own = [*value] if names and isinstance(value, dict) else []
    return own + [text for item in inner for text in list_strings(item, names=names)]


def count_min_tokens(texts: list[str]) -> int:
    """Return a lower bound of tokens: 1/8 of ASCII characters, 1/4 of other letters."""
    letters = "".join(texts)
    ascii_ = sum(map(str.isascii, letters))
    other_count = sum(letter.isalpha() for letter in letters if not letter.isascii())
    return ascii_ // 8 + other_count // 4


def _list_int(value: object) -> list[int]:
    return [value] if type(value) is int else []


@dataclass
class GreedyUpstream:
    """Records request bodies and reports the most tokens that each allows."""

    bodies: list[Json] = field(default_factory=list)

    def max_tokens(self, body: Json) -> int:
        options = body.get("options")
        inner = _list_int(options.get("num_predict")) if isinstance(options, dict) else []
        names = [number for name in BOUNDS for number in _list_int(body.get(name))]
        return max((number for number in names + inner if number >= 0), default=MAX_TOKENS)

    def report_usage(self, body: Json) -> Json:
        prompts = body.get("prompt")
        several = isinstance(prompts, list) and not all(type(item) is int for item in prompts)
        count = len(prompts) if isinstance(prompts, list) and several else 1
        choices = max([1, *_list_int(body.get("n")), *_list_int(body.get("best_of"))])
        tokens = self.max_tokens(body) * choices * count
        prompt = count_min_tokens(list_strings({**body, "model": ""}, names=False))
        return {
            "prompt_tokens": prompt,
            "completion_tokens": tokens,
            "total_tokens": prompt + tokens,
        }

    async def __call__(self, request: ReceivedRequest, wire: Wire) -> None:
        body = request.json
        self.bodies.append(body)
        usage = self.report_usage(body)
        document = chat("Fine.") if "messages" in body else legacy_completion("Fine.")
        if body.get("stream"):
            base = {**document, "choices": [self._event(document)]}
            del base["usage"]
            script = stream([base, {**base, "choices": [], "usage": usage}])
        else:
            script = respond({**document, "usage": usage})
        await script(request, wire)

    @staticmethod
    def _event(document: Json) -> Json:
        choice = document["choices"][0]
        if "message" in choice:
            return {"index": 0, "delta": choice["message"], "finish_reason": "stop"}
        return dict(choice)


class GuaranteeBroken(AssertionError):
    """A request broke a guarantee. The message has the request."""


@dataclass
class CheckedProxy:
    """Sends requests. ``send`` raises ``GuaranteeBroken`` if one breaks a guarantee."""

    proxy: Proxy
    greedy: GreedyUpstream
    ledger: Path
    statuses: Counter[int] = field(default_factory=Counter)

    async def send(self, request: HostileRequest) -> int:
        """Send one request, check every guarantee, and return the status."""
        gc.collect(0)
        gc.disable()  # it would traverse all objects of the tests
        try:
            with LoopLag() as lag:
                async with asyncio.timeout(TIMEOUT_S):
                    status, text = await self._send(request)
        except TimeoutError:
            raise GuaranteeBroken(f"no response within {TIMEOUT_S} s: {request!r}") from None
        finally:
            gc.enable()
        self.statuses[status] += 1
        [record] = await self.proxy.sink.wait()
        self.proxy.sink.forget()
        bodies, self.greedy.bodies = self.greedy.bodies, []
        broken = [
            *self._check_response(status, text),
            *self._check_bodies(bodies),
            *self._check_record(record, bodies),
            *([f"the loop was held for {lag.worst_s:.3f} s"] if lag.worst_s > LAG_S else []),
        ]
        if broken:
            raise GuaranteeBroken(f"{broken}\n{status} {text[:300]!r}\n{request!r}")
        return status

    async def _send(self, request: HostileRequest) -> tuple[int, bytes]:
        headers = {
            "content-type": "application/json",
            "cache-control": "no-cache",
            **dict(request.headers),
            **request.route.credential,
        }
        reply = await self.proxy.send(request.route.path, request.body, headers)
        assert not reply.is_cut
        return reply.status, reply.raw

    def _check_response(self, status: int, text: bytes) -> list[str]:
        broken = []
        if (status >= 500 and status != 508) or status == 429:  # 508: a forged Via header
            broken.append("the proxy failed, or has no capacity")
        if status >= 400:
            try:
                error = json.loads(text)
            except ValueError:
                return [*broken, "the error is not JSON"]
            if not isinstance(error, dict) or "error" not in error:
                broken.append("the error has no error object")
        if FORBIDDEN.encode() in text:
            broken.append("the response repeats text of the request")
        return broken

    def _check_bodies(self, bodies: list[Json]) -> list[str]:
        broken = []
        for body in bodies:
            if any(FORBIDDEN in string for string in list_strings(body)):
                broken.append("the upstream got a text that guards did not inspect")
            maximum = self.greedy.max_tokens(body)
            if maximum > MAX_TOKENS:
                broken.append(f"the request allows {maximum} tokens, above the cap of {MAX_TOKENS}")
            if not any(body.get(name) is not None for name in BOUNDS[:3]):
                broken.append("the request has no bound")
            broken += [f"{name} was sent" for name in ROUTING if body.get(name) is not None]
        return broken

    def _check_record(self, record: Any, bodies: list[Json]) -> list[str]:
        used = [self.greedy.report_usage(body) for body in bodies]
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
        greedy = GreedyUpstream()
        upstream.answer_with(greedy)
        ledger = folder / "ledger.db"
        policies = policies_for(upstream.url) + POLICY
        async with running_proxy(
            folder / "policies", policies, ledger=LedgerLocation("sqlite", ledger)
        ) as proxy:
            yield CheckedProxy(proxy, greedy, ledger)
        violations = audit(ledger).violations
        assert violations == ()  # every call is in the ledger, and all sums agree
