"""An upstream of the policies, from what is written to what calls ask."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import urlencode, urlsplit

from proxy.dialects import DIALECTS
from proxy.fields.denied import NOT_THE_CLIENTS
from proxy.policy import schema
from proxy.policy.files.cloud_tokens import is_token
from proxy.policy.files.source import Path_
from proxy.policy.schema.upstreams import AZURE, COMPATIBLE
from proxy.types import Breaker, Secret, Timeouts, Upstream
from proxy.types.providers import GATEWAYS, OPENAI, PROVIDERS, Provider

OPENAIS_OWN = re.compile(r"^https://([^/@]*\.)?openai(\.azure)?\.com(:\d+)?(/|$)", re.IGNORECASE)
VERSION = "api-version"
ReadSecret = Callable[[Path_, str], Secret]


def compile_upstream(name: str, config: schema.UpstreamConfig, secret: ReadSecret) -> Upstream:
    """Return the upstream; ``secret`` reads what is referred to at a place of the policies."""
    path: Path_ = ("upstreams", name)
    key = secret((*path, "api_key"), config.api_key) if config.api_key else None
    headers = [
        (header, secret((*path, "headers", header), value))
        for header, value in config.headers.items()
    ]
    key_header = "api-key" if config.dialect == AZURE else None
    if key is not None and is_token(config.api_key or ""):  # whichever header has keys
        key, key_header = Secret(f"Bearer {key.reveal()}"), "authorization"
    return Upstream(
        name=name,
        dialect=config.spoken,
        base_url=_base_url(config),
        query=urlencode(config.query, safe=":,"),
        key_header=key_header,
        api_key=key,
        headers=tuple(headers),
        timeouts=Timeouts(**config.timeouts.model_dump()),
        provider=config.provider or _provider(config),
        accepts=frozenset(config.accepted),
        most=tuple((field, most) for field, most in config.accepted.items() if most is not None),
        asks_usage=config.include_usage == "on",
        traits=traits_of(config),
        is_gateway=gateway_sign(config) is not None,
        drops=_dropped(config),
        refuses=_refused(config),
        open_ranges=_has_open_ranges(config),
        max_answer_bytes=config.max_answer_bytes,
        max_answer_values=config.max_answer_values,
        propagate_trace=config.propagate_trace,
        max_concurrency=config.max_concurrency,
        breaker=_breaker(config.breaker),
    )


def _provider(config: schema.UpstreamConfig) -> str | None:
    """Return whose prices count unless the policy says: those of OpenAI are not everybody's who
    speaks as it does."""
    if config.dialect == AZURE:
        return AZURE
    return None if config.dialect == COMPATIBLE else DIALECTS[config.dialect].provider


def traits_of(config: schema.UpstreamConfig) -> Provider:
    """Return how an upstream of OpenAI's dialect differs from OpenAI."""
    known = PROVIDERS.get(config.provider or "", OPENAI)
    return known if config.spoken == known.dialect == OPENAI.dialect else OPENAI


def _base_url(config: schema.UpstreamConfig) -> str:
    """Return the address before the path of an endpoint. Azure has two where the policy says no
    path: one for each deployment of its own, whose form a version tells, and one like OpenAI's."""
    base = config.base_url.rstrip("/")
    if config.dialect != AZURE or urlsplit(base).path:
        return config.base_url
    return base + ("/openai/deployments/{model}" if VERSION in config.query else "/openai/v1")


def _has_open_ranges(config: schema.UpstreamConfig) -> bool:
    """True if an upstream judges by itself how large a value may be."""
    if config.dialect in (AZURE, COMPATIBLE):
        return config.dialect == COMPATIBLE
    return config.dialect == "openai" and not OPENAIS_OWN.search(config.base_url)


def _refused(config: schema.UpstreamConfig) -> frozenset[str]:
    if not config.refuse and not config.drop:
        return NOT_THE_CLIENTS
    return (NOT_THE_CLIENTS | {*config.refuse}) - {*config.drop}


GATEWAY_HOSTS = GATEWAYS | {"gateway", "helicone", "portkey"}
"""Words of host names."""


def gateway_sign(config: schema.UpstreamConfig) -> str | None:
    """Return the setting by which an upstream is a gateway, None if it is none."""
    if config.gateway is not None:
        return "gateway: true" if config.gateway else None
    if config.provider in GATEWAYS:
        return f"provider: {config.provider}"
    host = urlsplit(config.base_url).hostname or ""
    return None if GATEWAY_HOSTS.isdisjoint(re.split("[.-]", host)) else f"host {host}"


def _dropped(config: schema.UpstreamConfig) -> frozenset[str]:
    """Return the fields to drop. Gateways read settings in ``metadata``."""
    read = {"metadata"} if gateway_sign(config) and "metadata" not in config.accepted else ()
    return frozenset({*config.drop, *read})


def _breaker(config: schema.BreakerConfig) -> Breaker | None:
    return None if config.off else Breaker(config.failures, config.rest)
