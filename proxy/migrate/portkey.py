"""Converts a saved config of Portkey.

Source: Portkey's reference of the config object.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proxy.migrate.draft import (
    ConfigPart,
    Draft,
    format_duration,
    get_price_provider,
    iter_variable_names,
    to_integer_weight,
    to_slug,
)
from proxy.types.providers import BY_LITELLM_NAME, Provider, get_key_variable

NO_EMBEDDINGS_NOTE = (
    "similar prompts are not matched. Add semantic: {embeddings: DEPLOYMENT}. See docs/cache.md."
)
LITELLM_NAME_BY_SLUG = {
    "together-ai": "together_ai", "fireworks-ai": "fireworks_ai", "mistral-ai": "mistral",
    "google": "gemini", "x-ai": "xai", "perplexity-ai": "perplexity",
}  # fmt: skip
"""LiteLLM's names of providers that have another slug at Portkey."""
FAILOVER_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
WEIGHT_SCALE = 1000  # weights are whole numbers in policies


def convert_config(config: Any, name: str, environ: Mapping[str, str]) -> Draft:
    """Return a draft with one deployment called ``name``. ``environ`` is not used."""
    draft = Draft(iter_variable_names(config))
    top = ConfigPart(draft, config)
    strategy = top.read_mapping("strategy")
    mode = strategy.read_as_text("mode") or "single"
    parts = top.read_mappings("targets") or [top]
    weighted = mode == "loadbalance"
    converted = [_convert_target(part, weighted=weighted) for part in parts]
    targets = [target for target in converted if target is not None]
    if mode not in {"single", "fallback", "loadbalance"}:
        strategy.add_note("mode", f"mode {mode} is not supported. The first target is used.")
    first = len(targets) if weighted else 1
    deployment: dict[str, Any] = {"targets": targets[:first]}
    if targets[first:]:
        deployment["fallback"] = targets[first:]
    if strategy.read_value("on_status_codes"):
        note = "is left out: the fallback is used after every failure"
        strategy.add_note("on_status_codes", note)
    _add_retry(deployment, top.read_mapping("retry"))
    _add_cache(deployment, top.read_mapping("cache"))
    total_ms = top.read_number("request_timeout")
    timeouts = {"timeouts": {"total": format_duration(total_ms / 1000)}} if total_ms else {}
    draft.upstreams = {name: upstream | timeouts for name, upstream in draft.upstreams.items()}
    if targets:
        draft.deployments[to_slug(name)] = deployment
        draft.replace_weights_if_all_zero()
    for part in (top, strategy):
        part.add_unread_notes()
    return draft


def _convert_target(part: ConfigPart, *, weighted: bool) -> dict[str, Any] | None:
    """Return a target. If it cannot be converted, report it and return None."""
    draft, overrides = part.draft, part.read_mapping("override_params")
    text = part.read_as_text("provider") or part.read_as_text("virtual_key") or ""
    model = overrides.read_as_text("model") or ""
    if model.startswith("@"):
        text, _, model = model[1:].partition("/")
    provider_name = text.removeprefix("@")
    provider = _find_provider(provider_name)
    base_url = part.read_as_text("custom_host") or (provider.base_url if provider else None)
    if provider is None or base_url is None or not model:
        part.skip_target("must have a known provider and a model")
        return None
    base_url = part.redact_url("custom_host", base_url)
    if base_url is None:
        return None
    weight = part.read_number("weight", allow_zero=True)
    upstream: dict[str, Any] = {"dialect": provider.dialect, "base_url": base_url}
    key = part.read_value("api_key")
    if key is not None or provider.key_variable:
        is_exact = provider_name in provider.litellm_names
        variable = (is_exact and provider.key_variable) or get_key_variable(provider_name)
        path = part.get_member_path("api_key")
        upstream["api_key"] = draft.reference_secret(key, variable, path)
    if provider.name != get_price_provider(provider.dialect):
        upstream["provider"] = provider.name
    name = draft.add_upstream(provider_name, upstream)
    target: dict[str, Any] = {"upstream": name, "model": model}
    if weighted:
        target["weight"] = to_integer_weight(WEIGHT_SCALE * (1 if weight is None else weight))
    if part.path:
        part.add_unread_notes()
    overrides.add_unread_notes("is left out. A rule can set it under `set:`, see docs/policies.md.")
    return target


def _find_provider(slug: str) -> Provider | None:
    """Return the provider of a slug, which may have a suffix: ``openai-prod``."""
    names = {**{name: name for name in BY_LITELLM_NAME}, **LITELLM_NAME_BY_SLUG}
    prefixes = [prefix for prefix in names if f"{slug}-".startswith(f"{prefix}-")]
    return BY_LITELLM_NAME[names[max(prefixes, key=len)]] if prefixes else None


def _add_retry(deployment: dict[str, Any], part: ConfigPart) -> None:
    attempts, codes = part.read_number("attempts"), part.read_value("on_status_codes")
    if attempts is not None:
        deployment["retry"] = {"times": min(10, int(attempts))}
        codes = codes if isinstance(codes, list) else []
        if causes := [c for c in codes if type(c) is int and c in FAILOVER_STATUSES]:
            deployment["retry"]["on"] = causes
    part.add_unread_notes()


def _add_cache(deployment: dict[str, Any], part: ConfigPart) -> None:
    mode, age = part.read_as_text("mode"), part.read_number("max_age")
    if mode is not None:
        deployment["cache"] = {"ttl": format_duration(age) if age else "1h"}
        if mode == "semantic":
            part.add_note("mode", NO_EMBEDDINGS_NOTE)
    part.add_unread_notes()
