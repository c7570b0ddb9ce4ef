"""The name of a question: a keyed hash, so that what is kept cannot be looked for without the key.

Everything that can change the answer is in it: all fields but those listed here, known or not. A
field too many costs a miss, while one left out by mistake would serve a wrong answer.
"""

from __future__ import annotations

import hashlib
from typing import Any

import orjson

from proxy.dialects import DIALECTS
from proxy.dialects.pieces import write_pieces
from proxy.dialects.request_headers import forwarded_headers
from proxy.dialects.responses.schema import PREVIOUS
from proxy.fields.denied import NOT_THE_CLIENTS
from proxy.fields.field_table import FIELDS
from proxy.runtime.offload import LARGE_BYTES
from proxy.types import CacheRule, Call, Json, ModelCall, ParameterOverrides, Plan, Target

BYTES = 32
TRANSPORT = frozenset(row.name for row in FIELDS.values() if row.cache == "transport")
"""Fields that say how an answer is sent: a cached one is sent as a stream or whole, and at once."""
CALLER = frozenset(row.name for row in FIELDS.values() if row.cache == "caller")
"""Fields that say who asks: no model reads them."""
TRANSPORT_AND_CALLER = TRANSPORT | CALLER
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
    if call.state_ref is not None:  # what the provider keeps is a part of the question
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
    """Return all that the question stands in, as the begin of a list in JSON: that of a plan itself
    is written once for all calls that share it."""
    head = call.head
    form: str = head.endpoint
    if call.stream and head.endpoint in DIALECTS[head.dialect].families:
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
    names = body.keys() - (TRANSPORT if by_user else TRANSPORT_AND_CALLER)
    return [part for name in sorted(names) for part in (name, body[name])]


def _leg(leg: ModelCall) -> list[Any]:
    """What policy makes of the question. The order of targets counts: of those that are drawn by
    weight each keeps its own answers, so that the shares stay what the policy says."""
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
