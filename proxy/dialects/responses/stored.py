"""Operations on responses and conversations that a provider stores.

Items that a client adds to a conversation become ``input`` of the call, so that guards and policy
read them like the items of a response.

Source: OpenAI's API reference, and the typed models of its Python SDK, 3.52.0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal, NamedTuple
from urllib.parse import quote

from proxy.dialects.document import DocumentUsage
from proxy.dialects.family import ReadOptions
from proxy.dialects.responses.schema import check_input_items, to_chat_usage
from proxy.dialects.responses.sealing import CONVERSATIONS, ITEMS, IdSealer
from proxy.dialects.responses.state_refs import (
    NOT_SEALED,
    make_unknown_id_error,
    open_state_id,
    resolve_item_ids,
    resolve_page_cursor,
    use_stored_state,
)
from proxy.errors import InvalidField, NotFound, UpstreamInvalid
from proxy.fields.checks import check_body
from proxy.fields.field_table import get_fields
from proxy.fields.token_bounds import KNOWN_SPELLINGS
from proxy.money.estimate import sum_leaf_value_quarters
from proxy.money.usage import read_chat_usage
from proxy.types import Call, Endpoint, Json, RequestHead
from proxy.types.events import UsageReport

CONVERSATIONS_PATH = "/conversations"
FIELDS = get_fields("conversations")
MAX_INCLUDED = 16
NOT_STREAMED = "streaming is not supported for stored responses"


class Operation(NamedTuple):
    """The kind of document that an operation returns, and the fields that its body may have."""

    result: Literal["response", "conversation", "items", "item", "deleted"]
    fields: tuple[str, ...] = ()


OPERATIONS: Mapping[tuple[str, str], Operation] = {
    ("GET", "/responses/{id}"): Operation("response"),
    ("DELETE", "/responses/{id}"): Operation("deleted"),
    ("POST", "/responses/{id}/cancel"): Operation("response"),
    ("GET", "/responses/{id}/input_items"): Operation("items"),
    ("POST", "/conversations"): Operation("conversation", ("items", "metadata")),
    ("GET", "/conversations/{id}"): Operation("conversation"),
    ("POST", "/conversations/{id}"): Operation("conversation", ("metadata",)),
    ("DELETE", "/conversations/{id}"): Operation("deleted"),
    ("GET", "/conversations/{id}/items"): Operation("items"),
    ("POST", "/conversations/{id}/items"): Operation("items", ("items",)),
    ("GET", "/conversations/{id}/items/{item}"): Operation("item"),
    ("DELETE", "/conversations/{id}/items/{item}"): Operation("conversation"),
}
"""By method and path."""
ROUTES: tuple[tuple[str, str, Endpoint], ...] = tuple(
    (method, path, "stored" if path.startswith("/responses") else "conversations")
    for method, path in OPERATIONS
)
_PATH = re.compile("/(?:responses|conversations)(?:/.*)?$")
_QUERY: Mapping[str, tuple[re.Pattern[str], str]] = {
    "after": (re.compile(r"[A-Za-z0-9._:=-]{1,256}"), "must be the id of an item"),
    "include": (
        re.compile(r"[a-z_.]{1,64}"),
        "must be the path of a field, such as message.output_text.logprobs",
    ),
    "limit": (re.compile(r"[1-9][0-9]?|100"), "must be an integer between 1 and 100"),
    "order": (re.compile(r"asc|desc"), "must be one of asc, desc"),
}
"""Query parameters: the pattern of a value, and the problem of other values."""
_STREAM_QUERY = {"stream": "false", "include_obfuscation": "", "starting_after": ""}
"""Query parameters of streams, with the values that request none."""


def _get_operation_path(head: RequestHead) -> str:
    match = _PATH.search(head.route)
    return "" if match is None else match[0]


def find_operation(head: RequestHead) -> Operation:
    return OPERATIONS[head.method, _get_operation_path(head)]


def make_upstream_path(call: Call) -> str:
    """Return the path of a call with the provider's ids."""
    path = _get_operation_path(call.head)
    provider_id = "" if call.state_ref is None else call.state_ref.id
    item_id = call.item_ids[0][1] if "{item}" in path else ""
    path = path.replace("{id}", quote(provider_id, safe=""))
    return path.replace("{item}", quote(item_id, safe=""))


def make_upstream_query(head: RequestHead) -> list[tuple[str, str]]:
    """Return the query parameters for the upstream. Raises ``InvalidField``."""
    query: list[tuple[str, str]] = []
    for parameter, value in head.parameters:
        name = parameter.removesuffix("[]")
        if name in _STREAM_QUERY and value not in (_STREAM_QUERY[name], "false"):
            raise InvalidField(name, NOT_STREAMED)
        if name not in _QUERY:
            continue
        pattern, problem = _QUERY[name]
        if pattern.fullmatch(value) is None:
            raise InvalidField(name, problem)
        if name != "include" and name in dict(query):
            raise InvalidField(name, "must not be repeated")
        query.append(("include[]" if name == "include" else name, value))
    if len(query) > MAX_INCLUDED:
        raise InvalidField("include", f"must have at most {MAX_INCLUDED} items")
    return query


def read_conversation_call(head: RequestHead, body: Json, size: int = 0, caller: str = "") -> Call:
    """Return the call of a request about a conversation. Raises ``InvalidField``."""
    check_body(FIELDS, body, KNOWN_SPELLINGS)
    fields = find_operation(head).fields
    call_body = {name: body[name] for name in fields if name in body}
    if (items := call_body.pop("items", None)) is not None:
        call_body["input"] = items
        with input_error_renaming():
            check_input_items(call_body)
    return Call(
        head=head,
        body=call_body,
        warnings=tuple(f"{name} dropped" for name in body if name not in fields),
        size=size,
        scheduling_key=caller,
    )


@contextmanager
def input_error_renaming() -> Iterator[None]:
    """Context whose errors name the client's field ``items`` instead of ``input``."""
    try:
        yield
    except (InvalidField, NotFound) as error:
        name = re.sub(r"^input(?=[.[]|$)", "items", error.param or "")
        if isinstance(error, InvalidField):
            raise InvalidField(name, error.problem) from None
        raise NotFound(error.message, param=name) from None


def resolve_conversation_call(call: Call, sealer: IdSealer | None) -> Call:
    """Return a call with references to the stored conversation and items that it uses."""
    head = call.head
    client_id, item_id = head.get_url_parameter("id"), head.get_url_parameter("item")
    if sealer is None:
        raise InvalidField("conversation_id", NOT_SEALED)
    if client_id is not None:
        ref = open_state_id(call, sealer, client_id, CONVERSATIONS)
        call = use_stored_state(call, ref)
        if item_id is not None:
            item_ref = open_state_id(call, sealer, item_id, ITEMS, "item_id")
            if not ref.can_share_target(item_ref):
                raise make_unknown_id_error(head, item_id, "item_id")
            call = replace(call, item_ids=((item_id, item_ref.id),))
        call = resolve_page_cursor(call, sealer)
    items = call.body.get("input")
    if isinstance(items, list):
        with input_error_renaming():
            call = resolve_item_ids(call, items, sealer)
    return call


def check_and_read_usage(doc: Json, options: ReadOptions) -> DocumentUsage:
    """Read the usage of a response, and estimate its output or the size of a list.

    Raises ``UpstreamInvalid`` for a document that is not the result of the operation.
    """
    head = options.call.head
    result = find_operation(head).result
    if result in _CHECKS:
        is_valid, problem = _CHECKS[result]
        if not is_valid(doc):
            raise UpstreamInvalid(problem)
        return DocumentUsage()
    list_member = "output" if result == "response" else "data"
    items = doc.get(list_member)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise UpstreamInvalid(f"The upstream's response lacks the field {list_member}.")
    if head.endpoint == "conversations":
        return DocumentUsage()
    usage = to_chat_usage(doc) if result == "response" else None
    report = None if usage is None else UsageReport(read_chat_usage(usage), doc["usage"])
    return DocumentUsage(report, sum_leaf_value_quarters(items))


_CHECKS: Mapping[str, tuple[Callable[[Json], bool], str]] = {
    "deleted": (lambda d: d.get("deleted") is True, "The upstream did not confirm the deletion."),
    "item": (
        lambda doc: isinstance(doc.get("type"), str),
        "The upstream's response is not a conversation item.",
    ),
    "conversation": (
        lambda doc: isinstance(doc.get("id"), str) and doc.get("object") == "conversation",
        "The upstream's response is not a conversation.",
    ),
}
