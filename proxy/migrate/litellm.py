"""Converts LiteLLM's ``config.yaml``: models, router settings and prices.

Sources: LiteLLM's documents on the proxy configuration and on ``model_info``, and its model table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from proxy.migrate.draft import (
    ConfigPart,
    Draft,
    address_at,
    duration,
    listed_price,
    price_provider,
    referred_variables,
    slug,
    whole_weight,
)
from proxy.types.providers import BY_WORD, Provider, variable_of
from proxy.words import MAX_NAME

SERVED = frozenset({"chat", "embedding", "responses", "completion"})
"""Modes that need no passthrough path."""
ENDPOINTS = {"completion": "completions", "responses": "responses"}
"""Modes of targets that support one endpoint only."""
PATHS: dict[str, tuple[str, ...]] = {
    "audio_transcription": ("/v1/audio/transcriptions", "/v1/audio/translations"),
    "audio_speech": ("/v1/audio/speech",),
    "image_generation": ("/v1/images/generations",),
    "image_edit": ("/v1/images/edits",),
    "moderation": ("/v1/moderations",),
    "rerank": ("/v1/rerank",),
}
"""Passthrough paths by mode."""
FORMS = frozenset({"audio_transcription", "image_edit"})
"""Modes whose requests are forms, which are forwarded unchanged."""
COHERES_RERANK = "/v2/rerank"
A_MILLION = 1_000_000
MAX_FAILURES = 10_000  # in policies
PRICES = {
    "input": "input_cost_per_token",
    "cached_input": "cache_read_input_token_cost",
    "cache_write": "cache_creation_input_token_cost",
    "output": "output_cost_per_token",
}
STORES = {"local": "memory", "disk": "sqlite", "redis": "redis"}
NAMING = "a secret of at least 16 characters, for the keys of cache entries"
STORE_SETTINGS = {
    "redis": {
        "HEADRACE_REDIS_URL": "the Redis of the cache: redis://USER:PASSWORD@HOST:PORT",
        "HEADRACE_SECRET": NAMING,
    },
    "sqlite": {
        "HEADRACE_CACHE_FILE": "the file of the cache",
        "HEADRACE_SECRET": NAMING,
    },
}
"""Settings of cache stores outside the process."""
PERIODS = {"1d": "day", "24h": "day", "7d": "week", "30d": "month", "1mo": "month", "1h": "hour"}
ELSEWHERE = {
    "general_settings.master_key": "is not a client key. Create keys with `headrace key`.",
    "general_settings.database_url": "keys are lines in keys.yaml. Use `headrace key`.",
    "general_settings.alerting": "alerts are Prometheus rules. See docs/dashboards.md.",
    "guardrails": "guards are configured in policies.yaml. See docs/guards.md.",
    "litellm_settings.callbacks": "is replaced by environment variables. See docs/traces.md.",
    "litellm_settings.success_callback": "see docs/traces.md for traces, docs/logs.md for logs",
    "litellm_settings.failure_callback": "see docs/traces.md for traces, docs/logs.md for logs",
    "litellm_settings.drop_params": "unsupported parameters are always dropped, with a warning",
    "litellm_settings.set_verbose": "use HEADRACE_LOG_LEVEL",
    "router_settings.redis_host": "use HEADRACE_REDIS_URL",
    "router_settings.redis_port": "use HEADRACE_REDIS_URL",
    "router_settings.redis_password": "use HEADRACE_REDIS_URL",
    "router_settings.redis_url": "use HEADRACE_REDIS_URL",
    "environment_variables": "are not copied. Set them where Headrace runs.",
}


def draft_of(config: Any, name: str, environ: Mapping[str, str]) -> Draft:
    """Return the draft of a configuration. ``name`` is not used, because models have names."""
    top = ConfigPart("", config)
    draft = Draft({*referred_variables(config), *_implicit_variables(top)})
    litellm, router = top.part("litellm_settings"), top.part("router_settings")
    general = top.part("general_settings")
    defaults = _defaults(draft, litellm, router)
    for item in top.parts("model_list"):
        _add_model(draft, item, defaults, environ)
    for deployment in draft.deployments.values():
        if not deployment["targets"]:  # all targets have a later order
            deployment["targets"].append(deployment["fallback"].pop(0))
    draft.fix_weights()
    for settings in (litellm, router):
        for part in settings.parts("fallbacks"):
            _add_fallbacks(draft, part)
    _add_aliases(draft, router.part("model_group_alias"))
    _add_policy(draft, litellm)
    for part in (top, litellm, router, general):
        for place in part.unread():
            draft.note(place, ELSEWHERE.get(place, "has no equivalent and is left out"))
    return draft


def _implicit_variables(top: ConfigPart) -> Iterator[str]:
    """Yield the variables of API keys that LiteLLM reads by default."""
    for item in top.parts("model_list"):
        params = item.part("litellm_params")
        is_converted = "*" not in (params.text("model") or "")
        provider = BY_WORD.get(_provider_name(params))
        if is_converted and provider is not None and params.take("api_key") is None:
            yield provider.variable


def _provider_name(params: ConfigPart) -> str:
    """Return LiteLLM's name of the provider of an item."""
    word, slash, _ = (params.text("model") or "").partition("/")
    return params.text("custom_llm_provider") or (word if slash else "openai")


def _defaults(
    draft: Draft, litellm: ConfigPart, router: ConfigPart
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of all upstreams, and those of all deployments."""
    upstream: dict[str, Any] = {}
    deployment: dict[str, Any] = {}
    total = router.number("timeout") or litellm.number("request_timeout")
    times = {"first_byte": router.number("stream_timeout"), "total": total}
    if allowed := {each: duration(seconds) for each, seconds in times.items() if seconds}:
        upstream["timeouts"] = allowed
    failures, rest = router.number("allowed_fails"), router.number("cooldown_time")
    breaker = {
        **({"failures": min(MAX_FAILURES, max(1, int(failures)))} if failures else {}),
        **({"rest": duration(rest)} if rest else {}),
    }
    if breaker:
        upstream["breaker"] = breaker
    tries = router.number("num_retries") or litellm.number("num_retries")
    if tries:
        deployment["retry"] = {"times": min(10, int(tries))}
    strategy = router.text("routing_strategy")
    if strategy == "least-busy":
        deployment["balance"] = "least_loaded"
    elif strategy not in (None, "simple-shuffle"):
        draft.note(
            router.at("routing_strategy"),
            f"{strategy} is not supported. Calls are distributed by weight.",
        )
    return upstream, deployment


def _add_model(
    draft: Draft,
    item: ConfigPart,
    defaults: tuple[dict[str, Any], dict[str, Any]],
    environ: Mapping[str, str],
) -> None:
    """Add the target of an item to the deployment of its name."""
    upstream, deployment = defaults
    called, params, info = (
        item.text("model_name"),
        item.part("litellm_params"),
        item.part("model_info"),
    )
    info.take("id")
    mode = info.text("mode") or "chat"
    model = params.text("model")
    if called is None or model is None or "*" in called + model:
        draft.leave_out(item.place, "must have one model_name and one model, without wildcards")
        return
    word = _provider_name(params)
    provider = BY_WORD.get(word)
    if provider is None:
        draft.leave_out(params.at("model"), f"provider {word} is not supported")
        return
    target = _target(draft, params, word, provider, upstream, environ)
    if target is None:
        return
    own = slug(called)
    found = draft.deployments.setdefault(own, {"targets": [], **deployment})
    if own != called and not draft.add_alias(found, called[:MAX_NAME]):
        draft.note(item.at("model_name"), f"{called} is renamed to {own}")
    target["model"] = model.removeprefix(f"{word}/")
    _add_target(draft, params, found, target)
    _add_mode(draft, info, mode, found, target, word)
    _add_price_of_base(draft, info, params, target)
    draft.note_unread((item, params, info))


def _add_price_of_base(
    draft: Draft, info: ConfigPart, params: ConfigPart, target: dict[str, Any]
) -> None:
    """Add the price of the ``base_model`` of a target."""
    written = info.text("base_model"), params.text("base_model")
    base_model = written[0] or written[1]
    if base_model is None or "price" in target or base_model == target["model"]:
        return
    found = listed_price(draft.upstreams[target["upstream"]], base_model)
    if found is None:
        why = f'model {base_model} has no known price. Add "price:" to the target.'
    else:
        target["price"] = found.price
        why = f"the target gets the price of {base_model} as of {found.as_of}"
    draft.note(info.at("base_model"), why)


def _add_mode(
    draft: Draft,
    info: ConfigPart,
    mode: str,
    found: dict[str, Any],
    target: dict[str, Any],
    word: str,
) -> None:
    """Add the endpoint or the passthrough paths of a model."""
    if mode in ENDPOINTS:
        target["endpoint"] = ENDPOINTS[mode]
    for path in passed_paths(mode, word):
        if path not in found.setdefault("passthrough", []):
            found["passthrough"].append(path)
    if mode in FORMS:
        model = target["model"]
        why = f"form uploads are forwarded unchanged: clients must send the model {model}"
        draft.note(info.at("mode"), why)
    if mode not in SERVED and mode not in PATHS:
        why = f'mode {mode} is not supported. See "Other paths" in docs/policies.md.'
        draft.note(info.at("mode"), why)


def passed_paths(mode: str, provider: str | None) -> list[Any]:
    """Return the ``passthrough`` of a deployment, or an empty list."""
    found: list[Any] = list(PATHS.get(mode, ()))
    if mode == "rerank":
        path: dict[str, Any] = {"path": found[0], "idempotent": True}
        found = [{**path, "to": COHERES_RERANK} if provider == "cohere" else path]
    return found


def _target(
    draft: Draft,
    params: ConfigPart,
    word: str,
    provider: Provider,
    upstream: dict[str, Any],
    environ: Mapping[str, str],
) -> dict[str, Any] | None:
    """Return the target without its model, or None if it has no URL."""
    base_url = _base_url(draft, params, word, provider, environ)
    if base_url is None:
        return None
    made: dict[str, Any] = {"dialect": provider.dialect, "base_url": base_url}
    given = params.take("api_key")
    wanted = provider.variable or variable_of(word)
    if given is not None or provider.variable:
        made["api_key"] = draft.secret(given, wanted, params.at("api_key"))
    elif provider.base_url is None:
        why = f"is missing, so no key is sent. To send one, set api_key: ${{{wanted}}}"
        draft.note(params.at("api_key"), why)
    if provider.name != price_provider(provider.dialect):
        made["provider"] = provider.name
    made.update(upstream)
    times = {"first_byte": params.number("stream_timeout"), "total": params.number("timeout")}
    if allowed := {name: duration(seconds) for name, seconds in times.items() if seconds}:
        made["timeouts"] = {**upstream.get("timeouts", {}), **allowed}
    return {"upstream": draft.upstream(word.replace("_", "-"), made)}


def _base_url(
    draft: Draft, params: ConfigPart, word: str, provider: Provider, environ: Mapping[str, str]
) -> str | None:
    """Return the base URL of a target, or skip the target and return None."""
    given, place = params.text("api_base") or params.text("base_url"), params.at("api_base")
    if given is None:
        if provider.base_url is None:
            draft.leave_out(place, "must be set")
        return provider.base_url
    found = _given_address(draft, place, given, environ)
    if found is not None and word == "azure":
        found = found.rstrip("/").removesuffix("/openai/v1")
        found += "/openai/v1" if urlsplit(found).path else ""
        if params.text("api_version") is not None:
            draft.note(
                params.at("api_version"), "is not needed, because Azure is called at /openai/v1"
            )
    return found


def _given_address(draft: Draft, place: str, given: str, environ: Mapping[str, str]) -> str | None:
    """Return the URL of an item, or skip the target and return None."""
    text, variable = address_at(given, environ)
    if text is None:
        draft.leave_out(place, f"{variable} is not set. Set it and run this command again")
        return None
    found = draft.plain_address(place, text, variable)
    if found is not None and variable is not None:
        draft.note(place, f"the value of {variable} is written to the policy: {found}")
    return found


def _add_target(
    draft: Draft, params: ConfigPart, found: dict[str, Any], target: dict[str, Any]
) -> None:
    """Add a target to a deployment with its price, order and weight."""
    price = {
        name: round(cost * A_MILLION, 9)
        for name, member in PRICES.items()
        if (cost := params.number(member)) is not None
    }
    if price:
        target["price"] = price
    tries = params.number("num_retries") or params.number("max_retries")
    if tries:
        found["retry"] = {"times": min(10, int(tries))}
    if (params.number("order") or 1) > 1:
        found.setdefault("fallback", []).append(target)
        return
    weight = params.number("weight", or_zero=True)
    if weight is not None and "balance" not in found:
        target["weight"] = whole_weight(weight if weight >= 1 else weight * 100)
    targets = found["targets"]
    targets.append(target)
    if "balance" not in found and (len(targets) > 1 or "weight" in targets[0]):
        for each in targets:
            each.setdefault("weight", 1)


def _add_fallbacks(draft: Draft, part: ConfigPart) -> None:
    """Add the targets of other deployments as the fallback of one."""
    names = list(part.names())
    for called in names:
        others = part.take(called)
        found = draft.deployments.get(slug(called))
        if found is None or not isinstance(others, list):
            draft.note(part.at(called), "refers to a model that is not in the model list")
            continue
        for other in map(str, others):
            there = draft.deployments.get(slug(other))
            if there is None:
                draft.note(part.at(called), f"{other} is not in the model list")
                continue
            found.setdefault("fallback", []).extend(
                {name: target[name] for name in target if name != "weight"}
                for target in there["targets"]
                if target.get("weight") != 0
            )


def _add_aliases(draft: Draft, part: ConfigPart) -> None:
    """Add other names of deployments."""
    for alias in part.names():
        called = part.take(alias)
        called = called.get("model") if isinstance(called, dict) else called
        found = draft.deployments.get(slug(str(called)))
        if found is None:
            draft.note(part.at(alias), "is an alias of a model that is not in the model list")
        elif not draft.add_alias(found, alias[:MAX_NAME]):
            draft.note(
                part.at(alias), "is also the name of another model, which receives its calls"
            )


def _add_policy(draft: Draft, litellm: ConfigPart) -> None:
    """Add the cache and the budget of all calls."""
    params = litellm.part("cache_params")
    if litellm.take("cache") is True:
        store, ttl = params.text("type"), params.number("ttl")
        if store not in (None, *STORES):
            draft.note(
                params.at("type"), f"store {store} is not supported. The cache is kept in memory."
            )
        kept = {"ttl": duration(ttl)} if ttl else {}
        store = STORES.get(store or "local", "memory")
        draft.policy["cache"] = {**kept, "store": store}
        if needed := STORE_SETTINGS.get(store):
            draft.exports |= needed
            draft.note(params.at("type"), f"requires {' and '.join(needed)} where Headrace runs")
    draft.note_unread((params,), "is left out. See docs/cache.md for the settings of the cache.")
    budget, period = litellm.number("max_budget"), litellm.text("budget_duration")
    if budget is not None:
        window = PERIODS.get(period or "30d")
        if window is None:
            draft.note(litellm.at("budget_duration"), f"{period} is converted to a month")
        usd = f"{budget:.9g} per {window or 'month'}"
        draft.policy["limits"] = [{"name": "budget", "usd": usd, "unpriced": "allow"}]
        draft.note(
            litellm.at("max_budget"),
            "becomes a budget that does not count models without a known price",
        )
