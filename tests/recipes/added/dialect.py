"""Acme: OpenAI's form on paths of its own, with a key of its own and one field more.

The dialect that ``tests/recipes/test_recipes.py`` adds. No provider speaks it.
"""

from __future__ import annotations

from proxy.dialects.base import ClientDialect, Dialect, UpstreamDialect
from proxy.dialects.vendors import openai
from proxy.fields.checks import string
from proxy.fields.field_table import get_fields
from proxy.types import Endpoint

PATHS: dict[Endpoint, str] = {"completions": "/completions", "chat": "/chat/completions"}


ACME = Dialect(
    name="acme",
    provider="acme",
    fields={
        "completions": {**get_fields("completions"), "acme_mood": string()},
        "chat": get_fields("chat"),
    },
    client=ClientDialect(
        routes={("POST", f"/acme{path}"): endpoint for endpoint, path in PATHS.items()},
        key_headers=("x-acme-key",),
        header_prefix="x-acme-",
        read_headers=lambda headers, head: head,
        make_error_response=openai.make_error_response,
    ),
    server=UpstreamDialect(
        prefix="/acme", paths=PATHS, key_header="x-acme-key", required_headers=("x-acme-team",)
    ),
)
