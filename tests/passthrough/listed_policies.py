"""A proxy with passthrough paths, and helpers of its tests."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.conftest import KEY, Proxy, running_proxy

SEARCH_KEY = "hr-search-key"
BEARER = {"authorization": f"Bearer {KEY}"}
POLICY = "{limits: [{name: plenty, requests: 1000 per minute, per: key}]}"
RERANK = {"model": "rerank-1", "query": "capital of France", "documents": ["Paris", "Lyon"]}
RESULT = {"index": 0, "relevance_score": 0.9}
RANKED = {"model": "rerank-1", "results": [RESULT], "usage": {"total_tokens": 7}}


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def policies(upstream: str, *, policy: str = POLICY, retry: str = "", timeouts: str = "60s") -> str:
    """Return policies with two deployments that list paths and one that does not."""
    repeated = f"\n    retry: {retry}" if retry else ""
    every = ", ".join(f"{item}: {timeouts}" for item in ("connect", "first_byte", "idle", "total"))
    return f"""
upstreams:
  openai:
    dialect: openai
    base_url: '{upstream}/v1'
    api_key: '${{UPSTREAM_KEY}}'
    timeouts: {{{every}}}
tags:
  feature: {{pattern: '[a-z-]+', caller: true}}
keys:
  support-widget:
    sha256: {digest(KEY)}
    deployments: [support-chat, search-answers, support-files]
  search-box: {{sha256: {digest(SEARCH_KEY)}, deployments: [support-chat]}}
deployments:
  support-chat:
    targets: [{{upstream: openai, model: gpt-4o-mini, price: {{input: 1, output: 2}}}}]
  search-answers:
    policy: here{repeated}
    targets: [{{upstream: openai, model: rerank-1, price: {{input: 3, output: 0}}}}]
    passthrough:
      - {{path: /v1/rerank, idempotent: true}}
      - {{path: /v1/moderations, methods: [POST]}}
      - {{path: /rank, to: /v2/rank}}
      - '/v1/models/{{model}}'
  support-files:
    policy: here
    targets: [{{upstream: openai, model: files, price: {{input: 0, output: 0}}}}]
    passthrough:
      - {{path: /v1/files, methods: [GET, POST], max_bytes: 100MiB}}
      - {{path: '/v1/files/{{id}}', methods: [GET, DELETE]}}
      - {{path: '/v1/files/{{id}}/content', methods: [GET]}}
      - /v1/audio/speech
      - {{path: '/v1/batches/{{id}}/cancel', methods: [POST]}}
policies:
  here: {policy}
"""


@asynccontextmanager
async def running(folder: Path, upstream: str, **how: Any) -> AsyncIterator[Proxy]:
    async with running_proxy(folder / "policies", policies(upstream, **how)) as proxy:
        yield proxy
