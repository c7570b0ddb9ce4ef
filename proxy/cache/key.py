"""The name of a question: a keyed hash, so that what is kept cannot be looked for without the key.

Everything that can change the answer is in it. A field that no table knows is part of the question
too: that costs a miss at worst, while one left out by mistake would serve a wrong answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Literal

import orjson

from proxy.dialects import DIALECTS
from proxy.dialects.pieces import write_pieces
from proxy.dialects.request_headers import passed_headers
from proxy.dialects.responses.words import PREVIOUS
from proxy.offload import LARGE_BYTES
from proxy.types import CacheRule, Call, Changes, Json, ModelCall, Plan, Target
from proxy.types.target import NOT_THE_CLIENTS

BYTES = 32
Part = Literal["question", "who", "form"]


def _all(part: Part, *names: str) -> dict[str, Part]:
    return dict.fromkeys(names, part)


PARTS: Mapping[str, Part] = {
    # Who asks, and for which of its own books: of no weight to a model.
    **_all("who", "client_metadata", "metadata", "safety_identifier", "user"),
    # In which form, and how soon: a kept answer can be given in either form, and at once.
    **_all("form", "inference_timeout", "stream", "stream_options"),
    # What is asked. Hints that only save the provider work are here too: some split its own caches.
    **_all("question", "model", "prompt", "messages", "input", "images", "suffix", "context"),
    **_all("question", "enkrypt_context", "echo", "n", "best_of", "seed", "stop", "stop_sequences"),
    **_all("question", "max_tokens", "max_completion_tokens", "max_new_tokens", "min_p", "top_k"),
    **_all("question", "temperature", "top_p", "typical_p", "frequency_penalty", "logit_bias"),
    **_all("question", "presence_penalty", "repetition_penalty", "mirostat_lr", "mirostat_target"),
    **_all("question", "logprobs", "top_logprobs", "return_token_log_probs", "return_token_ids"),
    **_all("question", "tools", "tool_choice", "parallel_tool_calls", "functions", "function_call"),
    **_all("question", "response_format", "guided_choice", "guided_grammar", "guided_json"),
    **_all("question", "guided_regex", "include_stop_str_in_output", "ignore_eos", "raw_output"),
    **_all("question", "audio", "modalities", "prediction", "reasoning_effort", "verbosity"),
    **_all("question", "web_search_options", "service_tier", "store", "prompt_cache_key"),
    **_all("question", "prompt_cache_isolation_key", "perf_metrics_in_response", "dimensions"),
    **_all("question", "encoding_format", "context_length_exceeded_behavior"),
    **_all("question", "cache_control", "container", "context_management", "diagnostics"),
    **_all("question", "inference_geo", "mcp_servers", "output_config", "speed", "system"),
    **_all("question", "thinking", "access_programs", "background", "conversation", "image"),
    **_all("question", "thread", "include", "instructions", "max_output_tokens", "max_tool_calls"),
    **_all("question", "moderation", "previous_response_id", "prompt_cache_options"),
    **_all("question", "prompt_cache_retention", "reasoning", "text", "truncation"),
    **_all("question", "inference_extra_headers", "inference_extra_params"),
}

FORM = frozenset(name for name, part in PARTS.items() if part == "form")
FORM_AND_WHO = FORM | {name for name, part in PARTS.items() if part == "who"}
ECHOING = frozenset({"responses"})
"""Endpoints whose answers repeat their question, also what is no part of it here, as ``metadata``:
what an upstream has sent is for the very call that asked it, and written anew for any other."""
END = b"]"


def secret_of(text: str) -> bytes:
    """Make a secret for keys out of a configured one of any length."""
    return hashlib.blake2b(text.encode(), digest_size=BYTES, person=b"headrace cache").digest()


def digest(
    secret: bytes, call: Call, *, scope: str, plan: Plan, rule: CacheRule, namespace: str
) -> bytes:
    """Return the key of a call in ``BYTES`` bytes.

    ``scope`` is whose answers may be shared: nothing ever crosses it. ``namespace`` is the
    client's own word, beside that of the rule. ``secret`` has at most 64 bytes.
    """
    frame = _frame(scope, plan, call, rule, namespace)
    question = _question(call.body, by_user=rule.by_user)
    if call.pin is not None:  # what the provider keeps is a part of the question
        question = [*question, PREVIOUS, call.pin.sealed]
    if call.item_ids:
        question = [*question, "item_ids", [sealed for sealed, _ in call.item_ids]]
    headers = call.head.headers
    passed = passed_headers(headers, DIALECTS[call.head.dialect].server, headers)
    if passed:
        question = [*question, "headers", sorted(passed.items())]
    if call.size <= LARGE_BYTES:
        whole = frame + orjson.dumps(question) + END
        return hashlib.blake2b(whole, digest_size=BYTES, key=secret).digest()
    made = hashlib.blake2b(frame, digest_size=BYTES, key=secret)
    for piece in (*write_pieces(question), END):
        made.update(piece)
    return made.digest()


def _frame(scope: str, plan: Plan, call: Call, rule: CacheRule, namespace: str) -> bytes:
    """Return all that the question stands in, as the begin of a list in JSON: that of a plan itself
    is written once for all calls that share it."""
    head = call.head
    form: str = head.endpoint
    if call.stream and head.endpoint in DIALECTS[head.dialect].forms:
        form += ", streamed"  # events of other forms than OpenAI's have what makes no whole answer
    field = head.dialect, form  # a field means what its dialect says
    is_plans = rule is plan.cache and scope == plan.key and not rule.by_user and not namespace
    frame = plan.question_frames.get(field) if is_plans else None
    if frame is None:
        parts = [
            scope,
            plan.deployment,
            [rule.namespace, ascii(namespace)],
            field,
            head.user if rule.by_user else None,
            [_leg(leg) for leg in plan.model_calls],
            plan.guards.digest,
        ]
        frame = orjson.dumps(parts)[: -len(END)] + b","
        if is_plans:
            plan.question_frames[field] = frame
    return frame


def _question(body: Json, *, by_user: bool) -> list[Any]:
    """Return the fields in the order of their names; within a field order may matter to a model.
    Each name stands before its value, and not in a pair with it: a body may be as deep as what is
    written can be."""
    names = body.keys() - (FORM if by_user else FORM_AND_WHO)
    return [part for name in sorted(names) for part in (name, body[name])]


def _leg(leg: ModelCall) -> list[Any]:
    """What policy makes of the question. The order of targets counts: of those that are drawn by
    weight each keeps its own answers, so that the shares stay what the policy says."""
    return [
        leg.model,
        leg.pool,
        leg.rules,
        [_target(target, leg.changes_for(target)) for target in leg.targets],
    ]


def _target(target: Target, changes: Changes) -> list[Any]:
    upstream = target.upstream
    return [
        sorted(changes.set.items()),
        sorted(changes.cap.items()),
        target.model,
        target.endpoint,
        upstream.name,
        upstream.dialect,
        upstream.base_url,
        upstream.query,
        sorted(upstream.accepts),
        sorted(upstream.most),
        upstream.is_gateway,
        sorted(upstream.drops),
        None if upstream.refuses is NOT_THE_CLIENTS else sorted(upstream.refuses),
        upstream.open_ranges,
        [(name, value.reveal()) for name, value in upstream.headers],
    ]
