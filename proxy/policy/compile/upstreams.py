"""Compiles upstreams."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import urlencode, urlsplit

from proxy.dialects import DIALECTS
from proxy.fields.denied import NOT_THE_CLIENTS
from proxy.policy import schema
from proxy.policy.files.cloud_tokens import is_token
from proxy.policy.files.source import KeyPath
from proxy.policy.schema.upstreams import AZURE, COMPATIBLE
from proxy.types import Breaker, Secret, Timeouts, Upstream
from proxy.types.providers import GATEWAYS, OPENAI, PROVIDERS

OPENAI_URL = re.compile(r"^https://([^/@]*\.)?openai(\.azure)?\.com(:\d+)?(/|$)", re.IGNORECASE)
GATEWAY_WORDS = GATEWAYS | {"gateway", "helicone", "portkey"}
"""Words of host names."""


def compile_upstream(
    name: str, config: schema.UpstreamConfig, secret: Callable[[KeyPath, str], Secret]
) -> Upstream:
    """Return the upstream. ``secret`` returns the secret of a reference at a path."""
    path: KeyPath = ("upstreams", name)
    key = secret((*path, "api_key"), config.api_key) if config.api_key else None
    key_header = "api-key" if config.dialect == AZURE else None
    if key is not None and is_token(config.api_key or ""):
        key, key_header = Secret(f"Bearer {key.reveal()}"), "authorization"
    # Prices of OpenAI hold only at OpenAI, not at every server with its API.
    providers = {AZURE: AZURE, COMPATIBLE: None}
    dialect_provider = DIALECTS[config.spoken].provider
    provider = config.provider or providers.get(config.dialect, dialect_provider)
    traits = PROVIDERS.get(config.provider or "", OPENAI)
    drops, is_gateway = {*config.drop}, gateway_sign(config) is not None
    if is_gateway and "metadata" not in config.accepted:  # gateways read settings in it
        drops.add("metadata")
    headers, breaker = config.headers.items(), config.breaker
    return Upstream(
        name=name,
        dialect=config.spoken,
        base_url=_base_url(config),
        query=urlencode(config.query, safe=":,"),
        key_header=key_header,
        api_key=key,
        headers=tuple((each, secret((*path, "headers", each), ref)) for each, ref in headers),
        timeouts=Timeouts(**config.timeouts.model_dump()),
        provider=provider,
        accepts=frozenset(config.accepted),
        most=tuple((field, most) for field, most in config.accepted.items() if most is not None),
        asks_usage=config.include_usage == "on",
        traits=traits if config.spoken == traits.dialect == OPENAI.dialect else OPENAI,
        is_gateway=is_gateway,
        drops=frozenset(drops),
        refuses=(NOT_THE_CLIENTS | {*config.refuse}) - {*config.drop},
        open_ranges=config.dialect == COMPATIBLE
        or (config.dialect == "openai" and not OPENAI_URL.search(config.base_url)),
        max_answer_bytes=config.max_answer_bytes,
        max_answer_values=config.max_answer_values,
        propagate_trace=config.propagate_trace,
        max_concurrency=config.max_concurrency,
        breaker=None if breaker.off else Breaker(breaker.failures, breaker.rest),
    )


def _base_url(config: schema.UpstreamConfig) -> str:
    """Return the URL before the path of an endpoint.

    Azure has two APIs: with a version, each deployment has a URL; without, it is like OpenAI's.
    """
    base = config.base_url.rstrip("/")
    if config.dialect != AZURE or urlsplit(base).path:
        return config.base_url
    has_version = "api-version" in config.query
    return base + ("/openai/deployments/{model}" if has_version else "/openai/v1")


def gateway_sign(config: schema.UpstreamConfig) -> str | None:
    """Return the setting that makes an upstream a gateway, or None if it is none."""
    if config.gateway is not None:
        return "gateway: true" if config.gateway else None
    if config.provider in GATEWAYS:
        return f"provider: {config.provider}"
    host = urlsplit(config.base_url).hostname or ""
    return None if GATEWAY_WORDS.isdisjoint(re.split("[.-]", host)) else f"host {host}"
