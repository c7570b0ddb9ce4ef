"""Cache key: a keyed hash, so that entries cannot be found without the secret.

The hash covers all fields, also unknown ones, except those listed here. A superfluous field costs a
miss; a missing one would serve a wrong response.
"""

from __future__ import annotations

import hashlib
from typing import Any

import orjson

from proxy.dialects import DIALECTS
from proxy.dialects.request_headers import forwarded_headers
from proxy.dialects.responses.schema import PREVIOUS
from proxy.dialects.wire.large_json import write_pieces
from proxy.fields.denied import NOT_THE_CLIENTS
from proxy.fields.field_table import FIELDS
from proxy.runtime.offload import LARGE_BYTES
from proxy.types import CacheRule, Call, Json, ModelCall, ParameterOverrides, Plan, Target

BYTES = 32
TRANSPORT = frozenset(row.name for row in FIELDS.values() if row.cache == "transport")
"""Fields about delivery. A cached response can be sent in any form."""
CALLER = frozenset(row.name for row in FIELDS.values() if row.cache == "caller")
"""Fields that identify the user. No model reads them."""
TRANSPORT_AND_CALLER = TRANSPORT | CALLER
END = b"]"


def secret_of(text: str) -> bytes:
    """Derive a secret for keys from a configured text of any length."""
    return hashlib.blake2b(text.encode(), digest_size=BYTES, person=b"headrace cache").digest()


def digest(
    secret: bytes, call: Call, *, scope: str, plan: Plan, rule: CacheRule, namespace: str
) -> bytes:
    """Return the key of a call, ``BYTES`` long.

    ``scope`` separates responses of different callers; ``namespace`` is the client's. ``secret``
    has at most 64 bytes.
    """
    frame = _frame(scope, plan, call, rule, namespace)
    question = _question(call.body, by_user=rule.by_user)
    if call.state_ref is not None:  # the provider adds it to the request
        question = [*question, PREVIOUS, call.state_ref.client_id]
    if call.item_ids:
        question = [*question, "item_ids", [sealed for sealed, _ in call.item_ids]]
    headers = call.head.headers
    passed = forwarded_headers(headers, DIALECTS[call.head.dialect].server, headers)
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
    """Return everything but the request as the begin of a JSON list. It is cached in the plan
    unless it depends on the call."""
    head = call.head
    form: str = head.endpoint
    if call.stream and head.endpoint in DIALECTS[head.dialect].families:
        form += ", streamed"  # these streams have events without a counterpart in a body
    field = head.dialect, form  # the meaning of a field depends on the dialect
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
    """Return the fields sorted by name, but not within a field, where order may matter to a
    model. The list is flat, because a body may already have the greatest depth that can be
    encoded."""
    names = body.keys() - (TRANSPORT if by_user else TRANSPORT_AND_CALLER)
    return [part for name in sorted(names) for part in (name, body[name])]


def _leg(leg: ModelCall) -> list[Any]:
    """Return a model call with its overrides. The order of targets counts: targets that are
    drawn by weight have separate responses, so that the shares stay as configured."""
    return [
        leg.model,
        leg.pool_size,
        leg.rules,
        [_target(target, leg.overrides_for(target)) for target in leg.targets],
    ]


def _target(target: Target, changes: ParameterOverrides) -> list[Any]:
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
