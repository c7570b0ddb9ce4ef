"""The table of API families, and responses in the family of the client.

Embeddings, token counts, lists and stored objects are families of documents without parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from proxy.dialects import DIALECTS
from proxy.dialects.base import ClientDialect, Dialect, ErrorResponse
from proxy.dialects.chat import choices
from proxy.dialects.chat.choices import CHOICES
from proxy.dialects.chat.reader import ChatReader
from proxy.dialects.chat.writer import CHAT_FORMATS, ChatWholeWriter, make_chat_writer
from proxy.dialects.document import (
    COUNT_MEMBER,
    DocumentReader,
    DocumentUsage,
    PassthroughWriter,
    ReadDocumentUsage,
    read_chat_usage_report,
)
from proxy.dialects.family import Family, FamilyWriter, ReadOptions, RequestConversion, WriteOptions
from proxy.dialects.findings import drop_shadow_results, has_upstream_finding
from proxy.dialects.messages import from_chat, to_chat
from proxy.dialects.messages.reader import MessageReader, WholeMessageReader
from proxy.dialects.messages.writer import MessageWriter, WholeMessageWriter
from proxy.dialects.responses import requests, stored
from proxy.dialects.responses.reader import ResponsesReader
from proxy.dialects.responses.schema import find_failure
from proxy.dialects.responses.whole import WholeResponseReader
from proxy.dialects.responses.writer import ResponsesWriter
from proxy.errors import ProxyError, UpstreamInvalid
from proxy.types import Call, Endpoint, Json, ResponseHead
from proxy.types.events import Extension, FamilyName, Frame, UsageReport
from proxy.types.guard import GuardResults


def _check_token_count(doc: Json, options: ReadOptions) -> DocumentUsage:
    """Raise ``UpstreamInvalid`` for a token count without its integer. Return no usage."""
    if options.call.head.endpoint == "count_tokens" and type(doc.get(COUNT_MEMBER)) is not int:
        raise UpstreamInvalid(f"The upstream's response lacks the integer {COUNT_MEMBER}.")
    return DocumentUsage()


def _make_document_family(
    name: FamilyName, read_document_usage: ReadDocumentUsage, **columns: Any
) -> Family:
    return Family(
        name=name,
        reader=partial(DocumentReader, family=name, read_usage=read_document_usage),
        writer=partial(ChatWholeWriter, family=name),
        has_part_events=False,
        **columns,
    )


# Families

CHAT, COMPLETIONS = (
    Family(
        name=layout.family,
        reader=partial(ChatReader, layout=layout),
        writer=partial(make_chat_writer, family=layout.family),
        has_part_events=False,
        result_list=CHOICES,
        allows_error_with_results=True,
        sends_done=True,
        shown_as={"summary": "reasoning"},
    )
    for layout in (choices.CHAT, choices.COMPLETIONS)
)
MESSAGES: Final = Family(
    name="messages",
    reader=lambda options: (WholeMessageReader if options.whole else MessageReader)(options),
    writer=lambda options: (WholeMessageWriter if options.whole else MessageWriter)(),
    has_part_events=True,
    result_list="content",
    request_conversion=RequestConversion(
        to_chat=to_chat.convert_to_chat,
        from_chat=from_chat.convert_from_chat,
        rename_chat_fields=from_chat.rename_chat_fields,
        find_lost_fields=from_chat.find_lost_fields,
        default_max_tokens=from_chat.DEFAULT_MAX_TOKENS,
    ),
    shown_as={"refusal": "text", "summary": "reasoning"},
)
RESPONSES: Final = Family(
    name="responses",
    reader=lambda options: (WholeResponseReader if options.whole else ResponsesReader)(options),
    writer=ResponsesWriter,
    has_part_events=True,
    has_stored_ids=True,
    result_list="output",
    find_failure=find_failure,
    request_conversion=RequestConversion(
        to_chat=requests.convert_to_chat,
        from_chat=requests.convert_from_chat,
        rename_chat_fields=requests.rename_chat_fields,
    ),
)
EMBEDDINGS: Final = _make_document_family(
    "embeddings",
    lambda doc, options: DocumentUsage(read_chat_usage_report(doc)),
    result_list="data",
    has_vectors=True,
)
DOCUMENT: Final = _make_document_family("document", _check_token_count)
STORED: Final = _make_document_family(
    "stored", stored.check_and_read_usage, has_stored_ids=True, find_failure=lambda doc: None
)
"""Objects that a provider stores. An error in a stored response is not an error of the call."""

FAMILIES: Final[Mapping[FamilyName, Family]] = {
    family.name: family
    for family in (CHAT, COMPLETIONS, MESSAGES, RESPONSES, EMBEDDINGS, STORED, DOCUMENT)
}
FAMILY_OF_ENDPOINT: Final[Mapping[Endpoint, FamilyName]] = {
    "chat": "chat",
    "completions": "completions",
    "responses": "responses",
    "embeddings": "embeddings",
    "stored": "stored",
    "conversations": "stored",
    "models": "document",
    "count_tokens": "document",
    "passthrough": "document",
}
"""API family of the responses at each endpoint, unless the dialect has its own."""


def find_family_name(dialect: Dialect, endpoint: Endpoint) -> FamilyName:
    family = FAMILY_OF_ENDPOINT[endpoint]
    return family if family == "document" else dialect.families.get(endpoint, family)


def find_client_family(call: Call) -> FamilyName:
    """Return the API family of the response that the client gets."""
    return find_family_name(DIALECTS[call.head.dialect], call.head.endpoint)


def needs_translation(client: FamilyName, upstream: FamilyName) -> bool:
    """Return True if a response's documents must be rebuilt from events for a client.

    Documents of chat and legacy completions are converted into each other instead.
    """
    return client != upstream and not CHAT_FORMATS.issuperset((client, upstream))


# Responses in the client's dialect


def choose_success_status(
    client: ClientDialect, results: GuardResults, *, is_flagged: bool, data: Json | None = None
) -> int:
    """Return the status of a successful response.

    ``is_flagged``: a guard of the upstream found something. The first document (``data``) may also
    report that.
    """
    if client.choose_success_status is None:
        return 200
    is_flagged = is_flagged or has_upstream_finding(data or {})
    return client.choose_success_status(drop_shadow_results(results), is_flagged)


def make_client_error_response(
    client: ClientDialect,
    error: ProxyError,
    request_id: str,
    results: GuardResults,
    *,
    ends_stream: bool = False,
) -> ErrorResponse:
    """Return an error in the client's format, with guard results if the format has them."""
    response = client.make_error_response(error, request_id, ends_stream=ends_stream)
    visible = drop_shadow_results(results)
    if client.add_guard_results is None or not (visible or error.findings):
        return response
    return replace(response, body=client.add_guard_results(response.body, visible, error.findings))


def collect_data_for_response_head(frame: Frame) -> Json:
    """Return a frame's findings of upstream guards, and its usage, for the response head."""
    members: Json = {}
    for event in frame.events:
        if type(event) is Extension:
            members[event.name] = event.value
        elif type(event) is UsageReport and event.tokens is not None:
            members["usage"] = {"prompt_tokens": event.tokens.prompt_total}
    return members


def is_keepalive(frame: Frame) -> bool:
    """Return True if a frame has no event and no document, and is not the last one."""
    return not (frame.last or frame.events) and frame.doc is None


def make_response_writer(
    call: Call, head: ResponseHead, get_guard_results: Callable[[], GuardResults]
) -> FamilyWriter:
    if head.passthrough is not None:
        return PassthroughWriter()
    options = WriteOptions(call, whole=not head.streamed, get_guard_results=get_guard_results)
    return FAMILIES[find_client_family(call)].writer(options)
