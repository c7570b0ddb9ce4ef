"""What came of a call beside what was expected: every difference, in a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

import orjson

from proxy.dialects import sse
from proxy.policytest.cases import Expect
from proxy.policytest.harness import Played
from proxy.types import Json
from proxy.usage import NANO

MISSING = "nothing"
TEXTS = ("prompt", "messages", "input", "suffix", "tools", "functions")


def differences(expect: Expect, played: Played) -> list[str]:
    """Return what is otherwise than expected; nothing where all is as it should be."""
    found = [*_of_the_plan(expect, played), *_of_the_answer(expect, played)]
    return [f"{what}: expected {_shown(want)}, got {_shown(got)}" for what, want, got in found]


Difference = tuple[str, Any, Any]


def _of_the_plan(expect: Expect, played: Played) -> Iterator[Difference]:
    plan = played.record.plan
    legs = plan.model_calls if plan else ()
    asked = [attempt.target for attempt in played.record.attempts]
    known = {
        "deployment": plan.deployment if plan else None,
        "tags": dict(plan.tags) if plan else {},
        "rules": list(plan.rules) if plan else [],
        "shadow_rules": list(plan.shadow_rules) if plan else [],
        "plan": [target.title for leg in legs for target in leg.targets],
        "targets": [target.title for target in asked],
    }
    yield from _differing(expect, known)


def _differing(expect: Expect, known: Mapping[str, Any]) -> Iterator[Difference]:
    for what, got in known.items():
        want = getattr(expect, what)
        if want is not None and want != got:
            yield what, want, got


def _of_the_answer(expect: Expect, played: Played) -> Iterator[Difference]:
    record = played.record
    cost = None if record.billing.cost is None else Decimal(record.billing.cost) / NANO
    known = {
        "status": played.status,
        "error": record.error.code if record.error else "none",
        "cost_usd": cost,
    }
    yield from _differing(expect, known)
    for name, verdict in (expect.guards or {}).items():
        verdicts = [r.verdict for stage, r in record.verdicts() if f"{stage}.{r.guard}" == name]
        if verdict not in verdicts:  # one that had an answer asked for again has said two things
            guards = (f"{stage}.{result.guard}" for stage, result in record.verdicts())
            yield f"guards.{name}", verdict, verdicts[-1] if verdicts else _missing(guards)
    for name, want in (expect.charged or {}).items():
        if want != played.charged.get(name):
            yield f"charged.{name}", want, played.charged.get(name, _missing(played.charged))
    yield from _of_the_texts(expect, played)


def _missing(names: Iterable[str]) -> str:
    """Return what is shown instead of a value that is not there: which there are."""
    known = ", ".join(sorted(set(names)))
    return f"{MISSING} (available: {known})" if known else MISSING


def _of_the_texts(expect: Expect, played: Played) -> Iterator[Difference]:
    if expect.upstream is not None:
        body = played.asked[-1].body if played.asked else {}
        yield from _part("upstream.body", expect.upstream.body or {}, body)
        if expect.upstream.text is not None and expect.upstream.text != read_by_model(body):
            yield "upstream.text", expect.upstream.text, read_by_model(body)
    if expect.client is not None:
        yield from _part("client.headers", expect.client.headers, played.headers)
        yield from _part("client.body", expect.client.body or {}, _document(played.body))
        if expect.client.text is not None and expect.client.text != shown_text(played):
            yield "client.text", expect.client.text, shown_text(played)


def _part(path: str, want: Any, got: Any) -> Iterator[Difference]:
    """Compare what is expected of a value; a mapping may have more than that."""
    if isinstance(want, dict) and isinstance(got, dict):
        for name, each in want.items():
            yield from _part(f"{path}.{name}", each, got.get(name, MISSING))
    elif want != got:
        yield path, want, got


def _shown(value: Any) -> str:
    return str(value) if isinstance(value, (str, Decimal)) else orjson.dumps(value).decode()


def _document(body: bytes) -> Json:
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return data if isinstance(data, dict) else {}


def read_by_model(body: Json) -> str:
    """Return all texts of a request that a model reads, in order, joined by line breaks."""
    return "\n".join(text for name in TEXTS if name in body for text in _texts(body[name]))


def _texts(value: Any, name: str = "") -> Iterator[str]:
    if isinstance(value, str) and name not in ("role", "type", "id"):
        yield value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _texts(each, key)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each, name)


def shown_text(played: Played) -> str:
    """Return the text of an answer, whole or streamed, as its reader sees it."""
    if not played.headers.get("content-type", "").startswith("text/event-stream"):
        return _answer_text(_document(played.body))
    reader = sse.EventReader(limit=len(played.body) + 1)
    events = [*reader.feed(played.body), *reader.close()]
    return "".join(_answer_text(_document(event)) for event in events)


def _answer_text(document: Json) -> str:
    choices = document.get("choices") or [document.get("choice") or {}]
    texts = []
    for choice in choices:
        message = choice.get("message") or choice.get("delta") or choice
        texts.append(message.get("content") or message.get("text") or "")
    return "".join(texts)
