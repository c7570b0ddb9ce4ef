"""Cache key: a keyed hash, so that entries cannot be found without the secret.

The hash covers all fields, also unknown ones, except those listed here. An unnecessary field in the
hash causes a miss. A missing one would serve a wrong response.
"""

from __future__ import annotations

import hashlib
from typing import Any

import orjson

from proxy.dialects import DIALECTS
from proxy.dialects.request_headers import select_forwarded_headers
from proxy.dialects.responses.schema import PREVIOUS_RESPONSE_ID
from proxy.dialects.wire.large_json import serialize_to_pieces
from proxy.fields.field_table import FIELDS
from proxy.fields.rules import POLICY_FIELDS
from proxy.runtime.fair_queue import LARGE_BYTES
from proxy.types import CacheRule, Call, ModelCall, ParameterOverrides, Plan, Target

KEY_BYTES = 32
TRANSPORT_FIELDS = frozenset(row.name for row in FIELDS.values() if row.cache == "transport")
"""Fields about delivery. A cached response can be sent in any form."""
CALLER_FIELDS = frozenset(row.name for row in FIELDS.values() if row.cache == "caller")
"""Fields that identify the user. No model reads them."""
UNKEYED_FIELDS = TRANSPORT_FIELDS | CALLER_FIELDS
LIST_END = b"]"


def derive_secret(text: str) -> bytes:
    """Derive a secret for keys from a configured text of any length."""
    return hashlib.blake2b(text.encode(), digest_size=KEY_BYTES, person=b"headrace cache").digest()


def compute_cache_key(
    secret: bytes, call: Call, plan: Plan, rule: CacheRule, namespace: str
) -> bytes:
    """Return the key of a call, ``KEY_BYTES`` long.

    Virtual keys do not share responses: ``plan.key`` is hashed too. ``namespace`` comes from the
    client. ``secret`` has at most 64 bytes.
    """
    prefix = _make_json_key_prefix(plan, call, rule, namespace)
    # Sorted by name, but not within a field, where order may matter to a model. The list is flat,
    # because a body may already have the greatest depth that can be encoded.
    unkeyed = TRANSPORT_FIELDS if rule.by_user else UNKEYED_FIELDS
    names = sorted([name for name in call.body if name not in unkeyed])
    request = [part for name in names for part in (name, call.body[name])]
    if call.state_ref is not None:  # the provider adds it to the request
        request = [*request, PREVIOUS_RESPONSE_ID, call.state_ref.client_id]
    if call.item_ids:
        request = [*request, "item_ids", [sealed for sealed, _ in call.item_ids]]
    headers = call.head.headers
    forwarded = select_forwarded_headers(headers, DIALECTS[call.head.dialect].server, headers)
    if forwarded:
        request = [*request, "headers", sorted(forwarded.items())]
    if call.size <= LARGE_BYTES:
        text = prefix + orjson.dumps(request) + LIST_END
        return hashlib.blake2b(text, digest_size=KEY_BYTES, key=secret).digest()
    hasher = hashlib.blake2b(prefix, digest_size=KEY_BYTES, key=secret)
    for piece in (*serialize_to_pieces(request), LIST_END):
        hasher.update(piece)
    return hasher.digest()


def _make_json_key_prefix(plan: Plan, call: Call, rule: CacheRule, namespace: str) -> bytes:
    """Return the beginning of the key's JSON list: all parts except the request.

    It is cached in the plan unless it depends on the call.
    """
    head = call.head
    form: str = head.endpoint
    if call.stream and head.endpoint in DIALECTS[head.dialect].families:
        form += ", streamed"  # these streams have events without a counterpart in a body
    form_key = head.dialect, form  # the meaning of a field depends on the dialect
    is_shared = rule is plan.cache and not rule.by_user and not namespace
    prefix = plan.cache_key_prefixes.get(form_key) if is_shared else None
    if prefix is None:
        parts = [
            plan.key,
            plan.deployment,
            [rule.namespace, ascii(namespace)],
            form_key,
            head.user if rule.by_user else None,
            [_list_model_call_parts(model_call) for model_call in plan.model_calls],
            plan.guards.digest,
        ]
        prefix = orjson.dumps(parts)[: -len(LIST_END)] + b","
        if is_shared:
            plan.cache_key_prefixes[form_key] = prefix
    return prefix


def _list_model_call_parts(model_call: ModelCall) -> list[Any]:
    """Return a model call with its overrides.

    The order of targets counts: targets that are drawn by weight have separate responses, so
    that the shares stay as configured.
    """
    get_overrides = model_call.get_overrides
    return [
        model_call.model,
        model_call.pool_size,
        model_call.rules,
        [_list_target_parts(target, get_overrides(target)) for target in model_call.targets],
    ]


def _list_target_parts(target: Target, changes: ParameterOverrides) -> list[Any]:
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
        sorted(upstream.max_values),
        upstream.is_gateway,
        sorted(upstream.drops),
        None if upstream.refuses is POLICY_FIELDS else sorted(upstream.refuses),
        upstream.skips_range_checks,
        [(name, value.reveal()) for name, value in upstream.headers],
    ]
