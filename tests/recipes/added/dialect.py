"""Acme: OpenAI's form on paths of its own, with a key of its own and one field more.

The dialect that ``tests/recipes/test_recipes.py`` adds. No provider speaks it.
"""

from __future__ import annotations

from proxy.dialects import request_headers
from proxy.dialects.base import ClientDialect, Dialect, Headers, TableCells, UpstreamDialect
from proxy.dialects.vendors import openai
from proxy.fields.checks import string
from proxy.fields.field_table import fields_of
from proxy.types import Endpoint, Secret

PATHS: dict[Endpoint, str] = {"completions": "/completions", "chat": "/chat/completions"}


def credential(headers: Headers) -> Secret | None:
    return request_headers.plain("x-acme-key", headers)


def authorize(key: str) -> tuple[str, str]:
    return ("x-acme-key", key)


ACME = Dialect(
    name="acme",
    provider="acme",
    fields={
        "completions": {**fields_of("completions"), "acme_mood": string()},
        "chat": fields_of("chat"),
    },
    client=ClientDialect(
        routes={("POST", f"/acme{path}"): endpoint for endpoint, path in PATHS.items()},
        credential=credential,
        header_prefix="x-acme-",
        read_headers=lambda headers, head: head,
        refuse=openai.refuse,
        to_chat=openai.to_chat,
    ),
    server=UpstreamDialect(
        prefix="/acme", paths=PATHS, authorize=authorize, required_headers=("x-acme-team",)
    ),
    cells=TableCells(credential="`x-acme-key`"),
)
