"""Translates the fields of a request for an upstream of another dialect.

A field is *passed* if the upstream's dialect has it, or if neither side has; *mapped* if it has
another name or form there; *dropped* with a warning if it only tunes the response; and *refused* if
the response would differ. The tables in ``docs/dialects.md`` are generated from this module.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from proxy.dialects import DIALECTS
from proxy.dialects.base import Dialect, UpstreamDialect
from proxy.dialects.chat import requests
from proxy.dialects.families import FAMILIES
from proxy.dialects.family import RequestForm
from proxy.dialects.requests.field_filter import filter_fields
from proxy.dialects.vendors.openai import OPENAI
from proxy.errors import InvalidField
from proxy.errors.field_problems import NOT_SUPPORTED, no_endpoint
from proxy.fields import token_bounds
from proxy.fields.checks import Fields
from proxy.fields.field_table import FIELDS, SAME_FIELD, UNDECLARED
from proxy.types import (
    UNCHANGED,
    Endpoint,
    Json,
    ParameterOverrides,
    Target,
    TranslatedRequest,
    Upstream,
)
from proxy.types.events import FamilyName
from proxy.types.providers import WISHES, Provider, is_reasoning_model

_CHATS: frozenset[Endpoint] = frozenset({"chat", "responses"})
"""Endpoints whose requests are conversations."""
UNANSWERED: frozenset[Endpoint] = frozenset({"embeddings", "count_tokens"})
"""Endpoints without an answer of a model."""


def translate(
    from_dialect: Dialect,
    endpoints: tuple[Endpoint, Endpoint],
    body: Json,
    target: Target,
    changes: ParameterOverrides = UNCHANGED,
) -> TranslatedRequest:
    """Return a body in the format of a target, changed by rules.

    ``endpoints`` are those of the client and of the target. Raises ``InvalidField`` for a field
    that the upstream lacks, that exceeds its range, or that the policy refuses.
    """
    from_endpoint, to_endpoint = endpoints
    upstream, to_dialect = target.upstream, DIALECTS[target.upstream.dialect]
    known_there = get_supported_fields(target, to_endpoint)
    obeyed = list_obeyed_fields(upstream, known_there)
    allowed, dropped = filter_fields(body, upstream, target.model)
    allowed["model"] = target.model
    zero = accepts_zero_limit(upstream)
    known_here = from_dialect.fields.get(from_endpoint, {})
    families = from_dialect.families.get(from_endpoint), to_dialect.families.get(to_endpoint)
    if families[0] != families[1]:
        known_here = {**OPENAI.fields["chat"], **known_here}
    body, left_out = _convert_form(families, endpoints, allowed, upstream.traits)
    body, bound = _add_required_limit(families, body, upstream)
    body = apply_parameters(to_endpoint, body, changes, obeyed, takes_zero=zero)
    body, unfit = _convert_from_chat(
        families, to_dialect.server, to_endpoint, body, upstream.traits
    )
    dropped += [*left_out, *unfit, *_find_lost_limit(from_endpoint, to_endpoint, allowed)]
    if families[0] != families[1]:
        known_there = {
            name: field
            for name, field in known_there.items()
            if not (FIELDS.get(name, UNDECLARED).is_ambiguous and name in known_here)
        }
    result, unknown = _split_supported(body, known_here, known_there, target)
    dropped += unknown
    return TranslatedRequest(
        body=result,
        dropped_fields=tuple(dropped),
        default_fields=(f"max_tokens {bound}",)
        if bound and result.get("max_tokens") == bound
        else (),
        supported_fields=obeyed,
        accepts_zero_bound=zero,
        max_output_tokens=0
        if from_endpoint in UNANSWERED
        else token_bounds.most_tokens(result, obeyed, takes_zero=zero)
        * token_bounds.prompts_of(result),
    )


def _split_supported(
    body: Json, client_fields: Fields, target_fields: Fields, target: Target
) -> tuple[Json, list[str]]:
    upstream = target.upstream
    implied = DIALECTS[upstream.dialect].server.implied
    result: Json = {}
    dropped: list[str] = []
    for name, value in body.items():
        row = FIELDS.get(name, UNDECLARED)
        default = client_fields[name].default if name in client_fields else None
        if name in target_fields:
            problem = None if value is None else target_fields[name].check(value)
            if problem is None:
                result[name] = value
            elif not _is_nothing(value, target_fields[name].default, default, *row.nothing):
                raise InvalidField(name, f"{problem} for the upstream that serves this model")
        elif name in upstream.accepts or not (name in client_fields or upstream.is_gateway):
            result[name] = value
        elif row.unknown == "fulfill" or _is_nothing(
            value, implied.get(name, default), *row.nothing
        ):
            continue
        elif row.unknown == "refuse":
            raise InvalidField(name, NOT_SUPPORTED)
        else:
            dropped.append(name)
    return result, dropped


Families = tuple[FamilyName | None, FamilyName | None]
"""The families of a request and of its upstream, None for chats and legacy completions."""


def _convert_form(
    families: Families, endpoints: tuple[Endpoint, Endpoint], body: Json, traits: Provider
) -> tuple[Json, Collection[str]]:
    client_family, target_family = families
    if client_family is not None and client_family == target_family:
        return body, ()
    left_out: Collection[str] = ()
    if (client_form := _get_request_form(client_family)) is not None:
        if body.get("n") not in (None, 1):  # a chat upstream would charge all of them
            raise InvalidField("n", "must be 1, because this API returns one choice")
        body, left_out = client_form.to_chat(body, keeps_thoughts=traits.thoughts == "required")
    elif target_family is not None or (endpoints[0] in _CHATS and endpoints[1] not in _CHATS):
        body, left_out = requests.remove_thoughts(body)
    if endpoints[0] == "completions" and endpoints[1] in _CHATS:
        body = requests.convert_legacy_to_chat(body)
    elif endpoints[0] in _CHATS and endpoints[1] == "completions":
        body = requests.convert_chat_to_legacy(body)
    if (target_form := _get_request_form(target_family)) is not None:
        left_out = (*left_out, *target_form.lost(body))
    return body, left_out


def _get_request_form(family: FamilyName | None) -> RequestForm | None:
    return None if family is None else FAMILIES[family].request


def _add_required_limit(
    families: Families, body: Json, upstream: Upstream
) -> tuple[Json, int | None]:
    # Rules run later and can only lower the limit.
    form = _get_request_form(families[1])
    if form is None or form.bound is None or families[0] == families[1]:
        return body, None
    if (body.get("max_completion_tokens"), body.get("max_tokens")) != (None, None):
        return body, None
    bound = int(dict(upstream.most).get("max_tokens", form.bound))
    return {**body, "max_tokens": bound}, bound


def _convert_from_chat(
    families: Families, server: UpstreamDialect, endpoint: Endpoint, body: Json, traits: Provider
) -> tuple[Json, Collection[str]]:
    if endpoint == "chat" and not traits.is_plain:
        return requests.adapt_chat_to_provider(body, traits)
    form = _get_request_form(families[1])
    if form is None:
        return body if server.from_chat is None else server.from_chat(endpoint, body), ()
    return form.tidy(body) if families[0] == families[1] else form.from_chat(body), ()


def get_supported_fields(target: Target, endpoint: Endpoint) -> Fields:
    """Return the fields that a target takes, with its ranges. Raises ``InvalidField``."""
    dialect = DIALECTS[target.upstream.dialect]
    ranges = dialect.types if target.upstream.open_ranges and dialect.types else dialect.fields
    fields = ranges.get(endpoint)
    if fields is None:
        raise InvalidField("model", no_endpoint(endpoint))
    traits = target.upstream.traits
    if endpoint == "chat" and traits.fields is not None:
        fields = {name: field for name, field in fields.items() if traits.accepts_field(name)}
    elif endpoint == "responses" and target.upstream.open_ranges:
        fields = {name: field for name, field in fields.items() if not FIELDS[name].only_openai}
    return token_bounds.with_maxima(fields, target.upstream.most)


def list_obeyed_fields(upstream: Upstream, fields: Fields) -> Collection[str]:
    """Return the names of fields that an upstream is known to obey."""
    return fields.keys() | upstream.accepts if upstream.accepts else fields


def accepts_zero_limit(upstream: Upstream) -> bool:
    """Return True if an upstream is known to accept an output limit of 0."""
    return upstream.dialect == "openai" and not upstream.open_ranges


def find_client_names(name: str, names: Collection[str]) -> tuple[str, ...]:
    """Return the client's names for a field that the upstream calls ``name``."""
    if name in names and name != "logprobs":
        return (name,)
    aliases = (alias for group in SAME_FIELD if name in group for alias in group)
    return tuple(alias for alias in aliases if alias in names) or (name,)


def _find_lost_limit(from_endpoint: Endpoint, to_endpoint: Endpoint, body: Json) -> list[str]:
    """Return the output limit that is dropped if a chat sets two: legacy completions have one."""
    bounds = body.get("max_tokens"), body.get("max_completion_tokens")
    to_legacy = from_endpoint in _CHATS and to_endpoint == "completions"
    is_legacy_target = to_legacy and None not in bounds
    return ["max_tokens"] if is_legacy_target and bounds[0] != bounds[1] else []


def _is_nothing(value: object, *nothing: object) -> bool:
    """Return True if a value means the same as an absent field. A count of 0 is not False."""
    return value is None or any(
        value == default and isinstance(value, bool) is isinstance(default, bool)
        for default in nothing
    )


SAME: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(token_bounds.BOUNDS, frozenset(token_bounds.LENGTHS)),
    "n": frozenset(token_bounds.CHOICES) - {"best_of"},
}
"""Names of a parameter at servers, if it has more than one."""

READ = token_bounds.GROUPS.union(token_bounds.LENGTHS, token_bounds.CHOICES, WISHES)
"""Fields that may affect the changes of a request, in addition to those that rules name."""

Change = Callable[[str, Any], Any]


def apply_parameters(
    endpoint: Endpoint,
    body: Json,
    changes: ParameterOverrides,
    obeyed: Collection[str],
    *,
    takes_zero: bool = False,
) -> Json:
    """Return the body as changed by rules, the same object if they change nothing.

    ``endpoint`` is the target's, ``obeyed`` are the fields that the target is known to obey. A cap
    leaves a bound of at least 1 unless the target ``takes_zero``: other servers read 0 as no bound.
    """
    if not (changes.set or changes.cap) or endpoint not in OPENAI.fields:
        return body  # token counts and other endpoints have no parameters
    for name, value in changes.set.items():
        body = _set(endpoint, body, name, value)
    for name, maximum in changes.cap.items():
        minimum = 0 if takes_zero else 1
        body = _cap(endpoint, body, name, (minimum, maximum), obeyed)
    return body


def _set(endpoint: Endpoint, body: Json, name: str, value: Any) -> Json:
    is_known = name in OPENAI.fields[endpoint] or endpoint in FIELDS.get(name, UNDECLARED).elsewhere
    if not is_known and name not in token_bounds.BOUNDS:
        return body

    def change(field: str, old: Any) -> Any:
        if field in token_bounds.BUDGETS:
            return _cap_reasoning_budget(old, value)
        return min(old, value) if field in token_bounds.FLOORS else None

    body = _map_numbers(body, name, change)
    if name in token_bounds.BOUNDS:
        bound = _bound_name(endpoint, body, name)
        return body if bound is None else body | {bound: value}
    return body | {name: value}


def _cap(
    endpoint: Endpoint,
    body: Json,
    name: str,
    bounds: tuple[int, float],
    obeyed: Collection[str],
) -> Json:
    minimum, maximum = bounds

    def change(field: str, old: Any) -> Any:
        if field in token_bounds.BUDGETS:
            return _cap_reasoning_budget(old, maximum)
        if field not in token_bounds.BOUNDS:
            return min(old, maximum)
        return min(max(old, minimum), maximum) if old >= token_bounds.BOUNDS[field] else maximum

    body = _map_numbers(body, name, change)
    bound = _bound_name(endpoint, body, name) if name in token_bounds.BOUNDS else None
    if bound is None:
        return body
    for field in token_bounds.BOUNDS.keys() & body.keys():
        if field in obeyed and body[field] is not None:
            return body
    return body | {bound: _compute_lowest_limit(endpoint, body, maximum)}


def _cap_reasoning_budget(budget: Any, maximum: Any) -> Any:
    """Return a reasoning budget below an output limit: some servers count reasoning as output."""
    return min(budget, max(1, maximum - 1))


def _map_numbers(body: Json, name: str, change: Change, path: str = "") -> Json:
    """Change a number under all its names, also in groups of options. None removes the field."""
    names = SAME.get(name) or {name}
    if names.isdisjoint(body) and token_bounds.GROUPS.isdisjoint(body):
        return body
    changed: Json = {}
    for field, value in body.items():
        if field in names and type(value) in (int, float):
            if (new := change(token_bounds.counts_as(path, field), value)) is not None:
                changed[field] = new
        elif field in token_bounds.GROUPS and isinstance(value, dict):
            changed[field] = _map_numbers(value, name, change, f"{path}{field}.")
        else:
            changed[field] = value
    return changed


def _bound_name(endpoint: Endpoint, body: Json, name: str) -> str | None:
    """Return an endpoint's field for the output limit, None if the endpoint has no output."""
    if endpoint == "completions":
        return "max_tokens"
    if endpoint == "responses":
        return "max_output_tokens"
    if endpoint != "chat":
        return None
    if is_reasoning_model(str(body.get("model")), body):  # such models refuse the old name
        return "max_completion_tokens"
    return name


def _compute_lowest_limit(endpoint: Endpoint, body: Json, maximum: float) -> float:
    """Return the output limit to add for a target that may ignore those of the request.

    It is the lowest of ``maximum``, the limits in the request, and for legacy completions the
    default of that API; at least 1.
    """
    lowest = min(maximum, token_bounds.LEGACY_DEFAULT) if endpoint == "completions" else maximum
    for path, group in token_bounds.groups(body):
        for name in token_bounds.BOUNDS.keys() & group.keys():
            if (
                group[name] is not None
                and token_bounds.counts_as(path, name) in token_bounds.BOUNDS
            ):
                lowest = min(lowest, group[name])
    return max(1, lowest)
