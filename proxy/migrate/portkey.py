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
    "together-ai": "together_ai",
    "fireworks-ai": "fireworks_ai",
    "mistral-ai": "mistral",
}
LITELLM_NAME_BY_SLUG |= {"google": "gemini", "x-ai": "xai", "perplexity-ai": "perplexity"}
"""LiteLLM's names of providers that have another slug at Portkey."""
FAILOVER_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
WEIGHT_SCALE = 1000  # weights are whole numbers in policies


def convert_config(config: Any, name: str, environ: Mapping[str, str]) -> Draft:
    """Return a draft with one deployment called ``name``. ``environ`` is not used."""
    top, draft = ConfigPart("", config), Draft(iter_variable_names(config))
    deployment: dict[str, Any] = {"targets": []}
    strategy = top.read_mapping("strategy")
    mode = strategy.read_as_text("mode") or "single"
    parts = top.read_mappings("targets") or [top]
    targets = [target for part in parts if (target := _convert_target(draft, part)) is not None]
    if mode == "loadbalance" and targets:
        deployment["targets"] = [{"weight": WEIGHT_SCALE, **target} for target in targets]
    else:
        if mode not in {"single", "fallback"}:
            note = f"mode {mode} is not supported. The first target is used."
            draft.add_note(strategy.get_member_path("mode"), note)
        deployment["targets"] = targets[:1]
        if targets[1:]:
            deployment["fallback"] = targets[1:]
    for target in targets if mode != "loadbalance" else ():
        target.pop("weight", None)
    if strategy.read_value("on_status_codes"):
        draft.add_note(
            strategy.get_member_path("on_status_codes"),
            "is left out: the fallback is used after every failure",
        )
    _add_retry(draft, deployment, top.read_mapping("retry"))
    _add_cache(draft, deployment, top.read_mapping("cache"))
    _add_timeout(draft, top)
    if targets:
        draft.deployments[to_slug(name)] = deployment
        draft.replace_weights_if_all_zero()
    draft.add_unread_notes((top, strategy))
    return draft


def _convert_target(draft: Draft, part: ConfigPart) -> dict[str, Any] | None:
    """Return a target. If it cannot be converted, report it and return None."""
    overrides = part.read_mapping("override_params")
    text = part.read_as_text("provider") or part.read_as_text("virtual_key") or ""
    model = overrides.read_as_text("model") or ""
    if model.startswith("@"):
        text, _, model = model[1:].partition("/")
    provider_name = text.removeprefix("@")
    provider = _find_provider(provider_name)
    base_url = part.read_as_text("custom_host") or (provider.base_url if provider else None)
    if provider is None or base_url is None or not model:
        draft.report_skipped_target(part.path or "config", "must have a known provider and a model")
        return None
    base_url = draft.redact_url_or_skip(part.get_member_path("custom_host"), base_url)
    if base_url is None:
        return None
    weight = part.read_number("weight", allow_zero=True)
    upstream: dict[str, Any] = {"dialect": provider.dialect, "base_url": base_url}
    text = part.read_value("api_key")
    if text is not None or provider.key_variable:
        variable = (
            provider.key_variable
            if provider_name in provider.litellm_names and provider.key_variable
            else get_key_variable(provider_name)
        )
        upstream["api_key"] = draft.reference_secret(
            text, variable, part.get_member_path("api_key")
        )
    if provider.name != get_price_provider(provider.dialect):
        upstream["provider"] = provider.name
    target: dict[str, Any] = {
        "upstream": draft.add_upstream(provider_name, upstream),
        "model": model,
    }
    if weight is not None:
        target["weight"] = to_integer_weight(weight * WEIGHT_SCALE)
    if part.path:
        draft.add_unread_notes((part,))
    note = "is left out. A rule can set it under `set:`, see docs/policies.md."
    draft.add_unread_notes((overrides,), note)
    return target


def _find_provider(slug: str) -> Provider | None:
    """Return the provider of a slug, which may have a suffix: ``openai-prod``."""
    names = {**{name: name for name in BY_LITELLM_NAME}, **LITELLM_NAME_BY_SLUG}
    prefixes = [prefix for prefix in names if f"{slug}-".startswith(f"{prefix}-")]
    return BY_LITELLM_NAME[names[max(prefixes, key=len)]] if prefixes else None


def _add_retry(draft: Draft, deployment: dict[str, Any], part: ConfigPart) -> None:
    attempts, codes = part.read_number("attempts"), part.read_value("on_status_codes")
    if attempts is not None:
        retry: dict[str, Any] = {"times": min(10, int(attempts))}
        status_codes = codes if isinstance(codes, list) else []
        causes = [code for code in status_codes if type(code) is int and code in FAILOVER_STATUSES]
        if causes:
            retry["on"] = causes
        deployment["retry"] = retry
    draft.add_unread_notes((part,))


def _add_cache(draft: Draft, deployment: dict[str, Any], part: ConfigPart) -> None:
    mode, age = part.read_as_text("mode"), part.read_number("max_age")
    if mode is not None:
        deployment["cache"] = {"ttl": format_duration(age) if age else "1h"}
        if mode == "semantic":
            draft.add_note(part.get_member_path("mode"), NO_EMBEDDINGS_NOTE)
    draft.add_unread_notes((part,))


def _add_timeout(draft: Draft, top: ConfigPart) -> None:
    allowed = top.read_number("request_timeout")
    if allowed is not None:
        for upstream in draft.upstreams.values():
            upstream["timeouts"] = {"total": format_duration(allowed / 1000)}
