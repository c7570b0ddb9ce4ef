"""Checks of all API documents: parameters, required fields, responses and streams."""

from __future__ import annotations

import pytest
from aiohttp import ClientSession

from tests.conformance import test_anthropic
from tests.conformance.checking import (
    Document,
    missing_fields,
    streamed_answer,
    whole_answer,
    without_credential,
    wrong_fields,
    wrong_parameters,
    wrong_streams,
)
from tests.conformance.test_vendors import (
    ENKRYPT_DOCUMENT,
    FIREWORKS_DOCUMENT,
    MULTIMODEL_DOCUMENT,
    PORTKEY_DOCUMENT,
    SCALE_DOCUMENT,
)
from tests.doubles import ScriptedUpstream

COMPLETIONS = (ENKRYPT_DOCUMENT, FIREWORKS_DOCUMENT, PORTKEY_DOCUMENT, SCALE_DOCUMENT)
DOCUMENTS = (*COMPLETIONS, MULTIMODEL_DOCUMENT, test_anthropic.DOCUMENT)
of_each_document = pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda document: document.deployment
)


@of_each_document
async def test_parameters_are_bounded_as_documented(
    document: Document, client: ClientSession, upstream: ScriptedUpstream
) -> None:
    assert await wrong_parameters(document, client, upstream) == []


@of_each_document
async def test_required_fields_and_credential_are_enforced(
    document: Document, client: ClientSession
) -> None:
    assert await missing_fields(document, client) == []
    assert await without_credential(document, client) == 401


@pytest.mark.parametrize("document", COMPLETIONS, ids=lambda document: document.deployment)
async def test_completion_has_the_documented_fields(
    document: Document, client: ClientSession, upstream: ScriptedUpstream
) -> None:
    assert wrong_fields(document, await whole_answer(document, client, upstream)) == []


@pytest.mark.parametrize(
    ("document", "is_done"),
    [(ENKRYPT_DOCUMENT, True), (PORTKEY_DOCUMENT, True), (SCALE_DOCUMENT, False)],
    ids=["enkrypt", "portkey", "scale"],
)
async def test_stream_has_the_documented_fields(
    document: Document, is_done: bool, client: ClientSession, upstream: ScriptedUpstream
) -> None:
    _, ended = await streamed_answer(document, client, upstream, is_done=is_done)

    assert ended is is_done
    assert await wrong_streams(document, client, upstream) == []
