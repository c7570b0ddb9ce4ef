"""Portkey: OpenAI's bodies, everything else in ``x-portkey-*`` headers.

Sources: Portkey's API reference for ``POST /completions`` and the headers that its SDK sends. A
saved config or virtual key names a deployment. An inline config may share calls out among several:
each is one that the key may use. A custom host or a provider key would let a client choose where a
call goes, and a fallback what limits and guards it has: both are the policy's to say.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from itertools import accumulate
from typing import Any

import orjson

from proxy.dialects import request_headers
from proxy.dialects.base import (
    ClientDialect,
    Dialect,
    ErrorResponse,
    Findings,
    Headers,
    TableCells,
    UpstreamDialect,
)
from proxy.dialects.counting import read_distinct
from proxy.dialects.findings import DETECTIONS, HOOKS, join_hooks
from proxy.dialects.hooks import DENIED, FAILED, hook_results, status
from proxy.dialects.request_headers import MAX_TIMEOUT_S, bad_header
from proxy.dialects.statuses import DENIALS, USUAL
from proxy.dialects.vendors import openai
from proxy.errors import GuardBlocked, GuardUnavailable, ProxyError
from proxy.errors.words import MAX_NAME, listed
from proxy.types import Json, RequestHead, Secret
from proxy.types.guard import GuardResults

HOOKS_FAILED = "hooks_failed"  # the type of an error by which a hook denies a call
_HARMLESS = frozenset({"cache", "retry", "request_timeout", "strict_open_ai_compliance"})
_CACHE_STATUS = {
    "hit": "HIT",
    "hit_semantic": "SEMANTIC HIT",
    "coalesced": "HIT",
    "miss": "MISS",
    "refresh": "REFRESH",
}
CONFIG = "x-portkey-config"
MAX_TARGETS, MAX_WEIGHT = 32, 1_000_000
_IGNORED = ("x-portkey-forward-headers", "x-portkey-provider")


def credential(headers: Headers) -> Secret | None:
    """Beside ``x-portkey-api-key`` the SDK's idle ``Authorization`` is not looked at."""
    own = request_headers.plain("x-portkey-api-key", headers)
    return request_headers.bearer(headers) if own is None else own


def _object(name: str, headers: Headers) -> dict[str, Any]:
    text = headers.get(name, "").strip()
    if not text:
        return {}
    try:
        value = read_distinct(text.encode())
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise bad_header(name, "must be a JSON object")
    return value


def _saved_config(headers: Headers, nonce: str) -> tuple[tuple[str, ...], str | None]:
    """Return the id of a saved config, or of the target of an inline one, and those of the targets
    that were not drawn; and a warning for what an inline one says that the policy decides."""
    name = CONFIG
    text = headers.get(name, "").strip()
    if not text.startswith("{"):
        return ((text,) if text else ()), None
    config = _object(name, headers)
    targets = config.get("targets")
    if isinstance(targets, list) and len(targets) > 1:
        return _drawn(config, targets, nonce), _warning(config)
    config = _only_target(config)
    beyond = sorted(config.keys() - _HARMLESS - {"virtual_key"})
    if beyond:
        problem = f"an inline config may not set {listed(beyond)}, because the policy does"
        raise bad_header(name, problem)
    target = config.get("virtual_key")
    if target is not None and not isinstance(target, str):
        raise bad_header(name, "virtual_key must be a string")
    return ((target,) if target else ()), _warning(config)


def _warning(config: dict[str, Any]) -> str | None:
    if config.keys().isdisjoint(_HARMLESS):
        return None
    return f"{CONFIG}: cache, retry and timeout ignored because the policy decides"


def _drawn(config: dict[str, Any], targets: list[Any], nonce: str) -> tuple[str, ...]:
    """Return the deployments that targets name, the one that is drawn by their weights first: a
    call's ``call_id`` decides. Raises ``BadRequest`` for what is no load balance of deployments."""
    strategy = config.get("strategy")
    mode = strategy.get("mode") if isinstance(strategy, dict) else None
    if mode != "loadbalance":
        problem = (
            "several targets require the strategy mode loadbalance. Set fallbacks in the policy."
        )
        raise bad_header(CONFIG, problem)
    beyond = sorted(config.keys() - _HARMLESS - {"strategy", "targets"})
    if beyond:
        raise bad_header(CONFIG, f"may not set {listed(beyond)} next to targets")
    if len(targets) > MAX_TARGETS:
        raise bad_header(CONFIG, f"must have at most {MAX_TARGETS} targets")
    weights = [_weight(number, target) for number, target in enumerate(targets)]
    names = [str(target["virtual_key"]) for target in targets]
    share = int.from_bytes(sha256(nonce.encode()).digest()[:7]) / 2**56 * sum(weights)
    for number, upto in enumerate(accumulate(weights)):
        if share < upto:
            return (names[number], *names[:number], *names[number + 1 :])
    raise bad_header(CONFIG, "must have a target with a weight greater than 0")


def _weight(number: int, target: Any) -> float:
    """Return the share of a target. Raises ``BadRequest`` for one that says more than that and the
    deployment it means."""
    place = f"targets[{number}]"
    if not isinstance(target, dict) or not isinstance(target.get("virtual_key"), str):
        raise bad_header(CONFIG, f"{place}.virtual_key must be the name of a deployment")
    beyond = sorted(target.keys() - {"virtual_key", "weight"})
    if beyond:
        raise bad_header(CONFIG, f"{place} may not set {listed(beyond)}")
    weight = target.get("weight", 1)
    if type(weight) not in (int, float) or not 0 <= weight <= MAX_WEIGHT:
        problem = f"{place}.weight must be a number between 0 and {MAX_WEIGHT}"
        raise bad_header(CONFIG, problem)
    return float(weight)


def _only_target(config: dict[str, Any]) -> dict[str, Any]:
    """Return an inline config of one target as if it said itself what that says. Which of several
    is asked the policy says: the config is returned as it is, and refused."""
    targets = config.get("targets")
    if not isinstance(targets, list) or len(targets) != 1 or not isinstance(targets[0], dict):
        return config
    rest = {name: value for name, value in config.items() if name not in {"targets", "strategy"}}
    return {**rest, **targets[0]}


def _timeout_s(headers: Headers) -> float | None:
    name = "x-portkey-request-timeout"
    text = headers.get(name, "").strip()
    if not text:
        return None
    most = MAX_TIMEOUT_S * 1000
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:12]) <= most:
        raise bad_header(name, f"must be an integer of milliseconds between 1 and {most}")
    return int(text) / 1000


def _metadata(headers: Headers) -> tuple[str | None, tuple[tuple[str, str | None], ...]]:
    """``x-portkey-metadata``: ``_user`` is the end user, the rest are tags."""
    name = "x-portkey-metadata"
    values = _object(name, headers)
    if not all(isinstance(value, (str, int, float)) for value in values.values()):
        raise bad_header(name, "must have only strings and numbers as values")
    texts = {key: _text(value) for key, value in values.items()}
    tags = [(key, text) for key, text in texts.items() if key != "_user"]
    if len(texts.get("_user", "")) > MAX_NAME:
        raise bad_header(name, f"_user must have at most {MAX_NAME} characters")
    return texts.get("_user"), request_headers.checked_tags(name, tags)


def _text(value: str | float) -> str:
    """Return a number as JSON writes it."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def read_portkey_headers(headers: Headers, head: RequestHead) -> RequestHead:
    if headers.get("x-portkey-custom-host"):
        raise bad_header("x-portkey-custom-host", "clients may not set this header")
    configs, warning = _saved_config(headers, head.call_id)
    user, tags = _metadata(headers)
    given = headers.get("x-portkey-trace-id", "")[:256]
    trace = given if given.isascii() and given.isprintable() and given else head.request_id
    ignored = [f"{name} ignored" for name in _IGNORED if headers.get(name)]
    return replace(
        head,
        deployment=head.deployment
        or next(iter(configs), None)
        or headers.get("x-portkey-virtual-key", "").strip()
        or None,
        alternatives=() if head.deployment else configs[1:],
        tags=head.tags + tags,
        user=user,
        timeout_s=_timeout_s(headers),
        echo=(("x-portkey-trace-id", trace),),  # its SDK leaves retries to who sets it
        warnings=(*head.warnings, *ignored, *([warning] if warning else ())),
    )


def answer_headers(data: Json | None, attempts: int, cache: str) -> tuple[tuple[str, str], ...]:
    return (
        ("x-portkey-cache-status", _CACHE_STATUS.get(cache, "DISABLED")),
        ("x-portkey-retry-attempt-count", str(max(0, attempts - 1))),
        ("x-portkey-last-used-option-index", f"config.targets[{max(0, attempts - 1)}]"),
    )


def add_verdicts(data: Json, verdicts: GuardResults, found: Findings = ()) -> Json:
    if not verdicts and not found and DETECTIONS not in data:
        return data
    return {**data, HOOKS: join_hooks(data, found, hook_results(verdicts))}


def refuse(error: ProxyError, request_id: str) -> ErrorResponse:
    """A guard that blocks is a hook that denies; its results are beside the error."""
    refusal = openai.refuse(error, request_id)
    if not isinstance(error, GuardBlocked) or isinstance(error, GuardUnavailable):
        return refusal
    denial = {**refusal.body["error"], "type": HOOKS_FAILED}
    return replace(refusal, status=DENIED, body={"error": denial})


def authorize(key: str) -> tuple[str, str]:
    return ("x-portkey-api-key", key)


PORTKEY = Dialect(
    name="portkey",
    fields=openai.OPENAI.fields,
    families=openai.RESPONSES,
    client=openai.with_endpoints(
        ClientDialect(
            routes=openai.OPENAI.client.routes,
            credential=credential,
            header_prefix="x-portkey-",  # the routes are OpenAI's
            read_headers=read_portkey_headers,
            refuse=refuse,
            rules=openai.OPENAI.client.rules,
            ruled=openai.OPENAI.client.ruled,
            to_chat=openai.to_chat,
            headers=answer_headers,
            add_verdicts=add_verdicts,
            status=status,
        )
    ),
    server=UpstreamDialect(
        prefix="/v1",
        paths=openai.PATHS,
        authorize=authorize,
        statuses={**USUAL, FAILED: "flagged", DENIED: "denied"},
        denials=DENIALS | {HOOKS_FAILED},
    ),
    cells=TableCells(
        credential="`x-portkey-api-key`, or `Authorization: Bearer`",
        deployment="`x-portkey-config` (a saved id), `x-portkey-virtual-key`",
        tags="`x-portkey-metadata`",
        upstream="set `x-portkey-virtual-key` or `-config` in `headers`",
    ),
)
