"""What holds for all documents: each parameter, and what a request must have."""

from __future__ import annotations

import pytest
from aiohttp import ClientSession

from tests.conformance import (
    test_anthropic,
    test_enkrypt,
    test_fireworks,
    test_multimodel,
    test_portkey,
    test_scale,
)
from tests.conformance.checking import (
    Document,
    missing_fields,
    without_credential,
    wrong_parameters,
)
from tests.doubles import ScriptedUpstream

MODULES = (
    *(test_enkrypt, test_fireworks, test_multimodel, test_portkey, test_scale),
    test_anthropic,
)
of_each_document = pytest.mark.parametrize(
    "document", [each.DOCUMENT for each in MODULES], ids=lambda document: document.deployment
)


@of_each_document
async def test_each_parameter_at_its_bounds_and_just_outside(
    document: Document, client: ClientSession, upstream: ScriptedUpstream
) -> None:
    assert await wrong_parameters(document, client, upstream) == []


@of_each_document
async def test_what_the_document_requires(document: Document, client: ClientSession) -> None:
    assert await missing_fields(document, client) == []
    assert await without_credential(document, client) == 401
