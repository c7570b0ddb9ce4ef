"""Portkey: OpenAI's bodies, everything else in ``x-portkey-*`` headers.

A saved config or virtual key names a deployment. An inline config may balance calls among several
deployments that the key may use. Hosts, provider keys and fallbacks are refused: the policy decides
them.

Sources: Portkey's API reference for ``POST /completions``, and the headers that its SDK sends.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from itertools import accumulate
from typing import Any

import orjson

from proxy.dialects import base, request_headers
from proxy.dialects.findings import (
    DETECTIONS_MEMBER,
    HOOKS_MEMBER,
    make_portkey_hook,
    merge_portkey_hooks,
)
from proxy.dialects.request_headers import Tag, make_header_error, parse_timeout_s
from proxy.dialects.statuses import DEFAULT_STATUSES, DENIAL_CODES
from proxy.dialects.vendors import openai, other_gateways
from proxy.dialects.wire.strict_json import as_object, parse_rejecting_duplicates
from proxy.errors import GuardBlocked, GuardUnavailable, ProxyError
from proxy.errors.words import MAX_NAME, join_names
from proxy.types import Json, RequestHead
from proxy.types.guard import GuardResult, GuardResults, Stage

HOOK_FAILED, HOOK_DENIED = 246, 446
"""Statuses of a success with a failed hook, and of a call that a hook denies."""
HOOKS_FAILED = "hooks_failed"
"""Error type of a call that a hook denies."""
CONFIG_HEADER, TIMEOUT = "x-portkey-config", "x-portkey-request-timeout"
MAX_TARGETS, MAX_WEIGHT = 32, 1_000_000
_IGNORED_KEYS = frozenset({"cache", "retry", "request_timeout", "strict_open_ai_compliance"})
_IGNORED_HEADERS = ("x-portkey-forward-headers", "x-portkey-provider")
_CACHE_STATUS = {
    "hit": "HIT",
    "hit_semantic": "SEMANTIC HIT",
    "coalesced": "HIT",
    "miss": "MISS",
    "refresh": "REFRESH",
}


def read_portkey_headers(headers: base.Headers, head: RequestHead) -> RequestHead:
    if headers.get("x-portkey-custom-host"):
        raise make_header_error("x-portkey-custom-host", "clients may not set this header")
    deployments, warnings = _read_deployments_and_warnings(headers, head.call_id)
    user, tags = _read_user_and_tags(headers)
    timeout = headers.get(TIMEOUT, "").strip()
    trace = headers.get("x-portkey-trace-id", "")[:256]
    trace = trace if trace.isascii() and trace.isprintable() and trace else head.request_id
    ignored = [f"{name} ignored" for name in _IGNORED_HEADERS if headers.get(name)]
    return replace(
        head,
        deployment=head.deployment
        or next(iter(deployments), None)
        or headers.get("x-portkey-virtual-key", "").strip()
        or None,
        alternatives=() if head.deployment else deployments[1:],
        tags=head.tags + tags,
        user=user,
        timeout_s=parse_timeout_s(TIMEOUT, timeout, 1000) if timeout else None,
        echo=(("x-portkey-trace-id", trace),),  # without it the SDK retries
        warnings=(*head.warnings, *ignored, *warnings),
    )


def _parse_object_header(name: str, headers: base.Headers) -> dict[str, Any]:
    text = headers.get(name, "").strip()
    if not text:
        return {}
    try:
        value = parse_rejecting_duplicates(text.encode())
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise make_header_error(name, "must be a JSON object")
    return value


def _read_deployments_and_warnings(
    headers: base.Headers, call_id: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    # Returns deployments and warnings. A config is a saved id, or inline with targets.
    text = headers.get(CONFIG_HEADER, "").strip()
    if not text.startswith("{"):
        return ((text,) if text else ()), ()
    config = _parse_object_header(CONFIG_HEADER, headers)
    warning = f"{CONFIG_HEADER}: cache, retry and timeout ignored because the policy decides"
    warnings = () if config.keys().isdisjoint(_IGNORED_KEYS) else (warning,)
    targets = config.get("targets")
    if isinstance(targets, list) and len(targets) > 1:
        return _choose_weighted_targets(config, targets, call_id), warnings
    if isinstance(targets, list) and len(targets) == 1 and isinstance(targets[0], dict):
        shared = {n: value for n, value in config.items() if n not in {"targets", "strategy"}}
        config = {**shared, **targets[0]}
    refused = sorted(config.keys() - _IGNORED_KEYS - {"virtual_key"})
    if refused:
        problem = f"an inline config may not set {join_names(refused)}, because the policy does"
        raise make_header_error(CONFIG_HEADER, problem)
    target = config.get("virtual_key")
    if target is not None and not isinstance(target, str):
        raise make_header_error(CONFIG_HEADER, "virtual_key must be a string")
    return ((target,) if target else ()), warnings


def _choose_weighted_targets(
    config: dict[str, Any], targets: list[Any], call_id: str
) -> tuple[str, ...]:
    # A hash of ``call_id`` decides which target is the first.
    if as_object(config.get("strategy")).get("mode") != "loadbalance":
        problem = "several targets require the strategy mode loadbalance"
        raise make_header_error(CONFIG_HEADER, f"{problem}. Set fallbacks in the policy.")
    refused = sorted(config.keys() - _IGNORED_KEYS - {"strategy", "targets"})
    if refused:
        problem = f"must not set {join_names(refused)} together with targets"
        raise make_header_error(CONFIG_HEADER, problem)
    if len(targets) > MAX_TARGETS:
        raise make_header_error(CONFIG_HEADER, f"must have at most {MAX_TARGETS} targets")
    weights = [_read_weight(index, target) for index, target in enumerate(targets)]
    names = [str(target["virtual_key"]) for target in targets]
    point = int.from_bytes(sha256(call_id.encode()).digest()[:7]) / 2**56 * sum(weights)
    for index, limit in enumerate(accumulate(weights)):
        if point < limit:
            return (names[index], *names[:index], *names[index + 1 :])
    raise make_header_error(CONFIG_HEADER, "must have a target with a weight greater than 0")


def _read_weight(index: int, target: Any) -> float:
    place = f"targets[{index}]"
    if not isinstance(as_object(target).get("virtual_key"), str):
        problem = f"{place}.virtual_key must be the name of a deployment"
        raise make_header_error(CONFIG_HEADER, problem)
    refused = sorted(target.keys() - {"virtual_key", "weight"})
    if refused:
        raise make_header_error(CONFIG_HEADER, f"{place} may not set {join_names(refused)}")
    weight = target.get("weight", 1)
    if type(weight) not in (int, float) or not 0 <= weight <= MAX_WEIGHT:
        problem = f"{place}.weight must be a number between 0 and {MAX_WEIGHT}"
        raise make_header_error(CONFIG_HEADER, problem)
    return float(weight)


def _read_user_and_tags(headers: base.Headers) -> tuple[str | None, tuple[Tag, ...]]:
    name = "x-portkey-metadata"
    values = _parse_object_header(name, headers)
    if not all(isinstance(value, (str, int, float)) for value in values.values()):
        raise make_header_error(name, "must have only strings and numbers as values")
    texts = {
        key: value if isinstance(value, str) else orjson.dumps(value).decode()
        for key, value in values.items()
    }
    user = texts.pop("_user", None)
    if len(user or "") > MAX_NAME:
        raise make_header_error(name, f"_user must have at most {MAX_NAME} characters")
    return user, request_headers.check_tags(name, [*texts.items()])


def make_response_headers(
    data: Json | None, attempts: int, cache: str
) -> tuple[tuple[str, str], ...]:
    retries = max(0, attempts - 1)
    return (
        ("x-portkey-cache-status", _CACHE_STATUS.get(cache, "DISABLED")),
        ("x-portkey-retry-attempt-count", str(retries)),
        ("x-portkey-last-used-option-index", f"config.targets[{retries}]"),
    )


def add_guard_results(data: Json, results: GuardResults, findings: base.Findings = ()) -> Json:
    if not results and not findings and DETECTIONS_MEMBER not in data:
        return data
    return {**data, HOOKS_MEMBER: merge_portkey_hooks(data, findings, make_hook_results(results))}


def make_error_response(
    error: ProxyError, request_id: str, *, ends_stream: bool = False
) -> base.ErrorResponse:
    """Return an error. A guard that blocks is a hook that denies the call."""
    response = openai.make_error_response(error, request_id)
    if not isinstance(error, GuardBlocked) or isinstance(error, GuardUnavailable):
        return response
    denial = {**response.body["error"], "type": HOOKS_FAILED}
    return replace(response, status=HOOK_DENIED, body={"error": denial})


def make_hook_results(results: GuardResults) -> Json:
    """Return guard results as hooks with one check each.

    As at Portkey, neither a check with an error nor a check that changed a text fails its hook.
    """

    def hooks(stage: Stage) -> list[Json]:
        return [_make_hook(result) for result_stage, result in results if result_stage == stage]

    return {"before_request_hooks": hooks("input"), "after_request_hooks": hooks("output")}


# Called by name from the dialect's record.
def choose_success_status(results: GuardResults, is_flagged: bool) -> int:
    """Return the status of a successful response: ``HOOK_FAILED`` if a hook has failed.

    A hook that ends a streamed response reports that in the stream.
    """
    has_passed = not is_flagged and all(
        _has_passed(result) or (stage == "output" and result.verdict == "blocked")
        for stage, result in results
    )
    return 200 if has_passed else HOOK_FAILED


def _has_passed(result: GuardResult) -> bool:
    return result.verdict not in ("flagged", "blocked", "routed")


def _make_hook(result: GuardResult) -> Json:
    has_passed = _has_passed(result)
    check: Json = {
        "id": f"headrace.{result.kind}",
        "verdict": has_passed and result.error is None,
        "data": {"findings": dict(result.findings), "score": round(result.score, 3)},
        "transformed": result.verdict == "masked",
        "execution_time": round(result.seconds * 1000, 3),
    }
    if result.error is not None:
        check["error"] = {"name": "Check error", "message": "The guard could not inspect the text."}
    deny, skip = result.action == "block", result.verdict == "not_applicable"
    return make_portkey_hook(result.guard, check, verdict=has_passed, deny=deny, skip=skip)


PORTKEY = base.Dialect(
    name="portkey",
    fields=openai.OPENAI.fields,
    families=openai.RESPONSES,
    client=base.ClientDialect(
        routes=openai.OPENAI.client.routes,
        key_headers=("x-portkey-api-key", "authorization"),  # the SDK always sends the second
        header_prefix="x-portkey-",  # the routes are OpenAI's
        read_headers=read_portkey_headers,
        make_error_response=make_error_response,
        rules=openai.OPENAI.client.rules,
        ruled_fields=openai.OPENAI.client.ruled_fields,
        merge_documents=other_gateways.make_model_list_for_path,
        make_response_headers=make_response_headers,
        add_guard_results=add_guard_results,
        choose_success_status=choose_success_status,
        error_event_endpoints=frozenset({"responses"}),
    ),
    server=base.UpstreamDialect(
        prefix="/v1",
        paths=openai.PATHS,
        key_header="x-portkey-api-key",
        statuses={**DEFAULT_STATUSES, HOOK_FAILED: "flagged", HOOK_DENIED: "denied"},
        denial_codes=DENIAL_CODES | {HOOKS_FAILED},
    ),
)
