"""Converts LiteLLM's ``config.yaml``: models, router settings and prices.

Sources: LiteLLM's documents on the proxy configuration and on ``model_info``, and its model table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from proxy.errors.words import MAX_NAME
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
from proxy.types.providers import BY_WORD, Provider, key_variable

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
MAX_FAILURES = 10_000  # maximum in policies
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
    "sqlite": {"HEADRACE_CACHE_FILE": "the file of the cache", "HEADRACE_SECRET": NAMING},
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
    return _Converter(config, environ).draft_of_all()


def _provider_name(params: ConfigPart) -> str:
    name, slash, _ = (params.text("model") or "").partition("/")
    return params.text("custom_llm_provider") or (name if slash else "openai")


def passed_paths(mode: str, provider: str | None) -> list[Any]:
    """Return the ``passthrough`` of a deployment, or an empty list."""
    paths: list[Any] = list(PATHS.get(mode, ()))
    if mode == "rerank":
        path: dict[str, Any] = {"path": paths[0], "idempotent": True}
        paths = [{**path, "to": COHERES_RERANK} if provider == "cohere" else path]
    return paths


class _Converter:
    """Converts one configuration. ``environ`` are the variables that may contain URLs."""

    def __init__(self, config: Any, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._top = ConfigPart("", config)
        self._litellm = self._top.part("litellm_settings")
        self._router = self._top.part("router_settings")
        self._draft = Draft({*referred_variables(config), *self._implicit_variables()})
        self._upstream_defaults: dict[str, Any] = {}
        self._deployment_defaults: dict[str, Any] = {}

    def draft_of_all(self) -> Draft:
        draft, general = self._draft, self._top.part("general_settings")
        self._set_defaults()
        for item in self._top.parts("model_list"):
            self._add_model(item)
        for deployment in draft.deployments.values():
            if not deployment["targets"]:  # all targets have a later order
                deployment["targets"].append(deployment["fallback"].pop(0))
        draft.fix_weights()
        for settings in (self._litellm, self._router):
            for part in settings.parts("fallbacks"):
                self._add_fallbacks(part)
        self._add_aliases(self._router.part("model_group_alias"))
        self._add_cache(self._litellm.part("cache_params"))
        self._add_budget()
        for part in (self._top, self._litellm, self._router, general):
            for place in part.unread():
                draft.note(place, ELSEWHERE.get(place, "has no equivalent and is left out"))
        return draft

    def _implicit_variables(self) -> Iterator[str]:
        """Yield the variables of API keys that LiteLLM reads by default."""
        for item in self._top.parts("model_list"):
            params = item.part("litellm_params")
            is_converted = "*" not in (params.text("model") or "")
            provider = BY_WORD.get(_provider_name(params))
            if is_converted and provider is not None and params.take("api_key") is None:
                yield provider.variable

    def _set_defaults(self) -> None:
        litellm, router = self._litellm, self._router
        total = router.number("timeout") or litellm.number("request_timeout")
        timeouts = _durations(first_byte=router.number("stream_timeout"), total=total)
        if timeouts:
            self._upstream_defaults["timeouts"] = timeouts
        failures, rest_s = router.number("allowed_fails"), router.number("cooldown_time")
        breaker: dict[str, Any] = _durations(rest=rest_s)
        if failures:
            breaker = {"failures": min(MAX_FAILURES, max(1, int(failures))), **breaker}
        if breaker:
            self._upstream_defaults["breaker"] = breaker
        retries = router.number("num_retries") or litellm.number("num_retries")
        if retries:
            self._deployment_defaults["retry"] = {"times": min(10, int(retries))}
        strategy = router.text("routing_strategy")
        if strategy == "least-busy":
            self._deployment_defaults["balance"] = "least_loaded"
        elif strategy not in (None, "simple-shuffle"):
            note = f"{strategy} is not supported. Calls are distributed by weight."
            self._draft.note(router.at("routing_strategy"), note)

    def _add_model(self, item: ConfigPart) -> None:
        draft, model_name = self._draft, item.text("model_name")
        params, info = item.part("litellm_params"), item.part("model_info")
        info.take("id")
        mode = info.text("mode") or "chat"
        model = params.text("model")
        if model_name is None or model is None or "*" in model_name + model:
            draft.leave_out(item.place, "must have one model_name and one model, without wildcards")
            return
        provider_name = _provider_name(params)
        provider = BY_WORD.get(provider_name)
        if provider is None:
            draft.leave_out(params.at("model"), f"provider {provider_name} is not supported")
            return
        upstream = self._upstream(params, provider_name, provider)
        if upstream is None:
            return
        target = {"upstream": upstream, "model": model.removeprefix(f"{provider_name}/")}
        name = slug(model_name)
        defaults: dict[str, Any] = {"targets": [], **self._deployment_defaults}
        deployment = draft.deployments.setdefault(name, defaults)
        if name != model_name and not draft.add_alias(deployment, model_name[:MAX_NAME]):
            draft.note(item.at("model_name"), f"{model_name} is renamed to {name}")
        _add_target(params, deployment, target)
        if mode in ENDPOINTS:
            target["endpoint"] = ENDPOINTS[mode]
        for path in passed_paths(mode, provider_name):
            if path not in deployment.setdefault("passthrough", []):
                deployment["passthrough"].append(path)
        self._note_mode(info, mode, target["model"])
        self._add_base_price(info, params, target)
        draft.note_unread((item, params, info))

    def _note_mode(self, info: ConfigPart, mode: str, model: str) -> None:
        if mode in FORMS:
            note = f"form uploads are forwarded unchanged: clients must send the model {model}"
            self._draft.note(info.at("mode"), note)
        if mode not in SERVED and mode not in PATHS:
            note = f'mode {mode} is not supported. See "Other paths" in docs/policies.md.'
            self._draft.note(info.at("mode"), note)

    def _add_base_price(self, info: ConfigPart, params: ConfigPart, target: dict[str, Any]) -> None:
        base_models = info.text("base_model"), params.text("base_model")
        base_model = base_models[0] or base_models[1]
        if base_model is None or "price" in target or base_model == target["model"]:
            return
        listed = listed_price(self._draft.upstreams[target["upstream"]], base_model)
        if listed is None:
            note = f'model {base_model} has no known price. Add "price:" to the target.'
        else:
            target["price"] = listed.price
            note = f"the target gets the price of {base_model} as of {listed.as_of}"
        self._draft.note(info.at("base_model"), note)

    def _upstream(self, params: ConfigPart, name: str, provider: Provider) -> str | None:
        base_url = self._base_url(params, name, provider)
        if base_url is None:
            return None
        upstream: dict[str, Any] = {"dialect": provider.dialect, "base_url": base_url}
        key, place = params.take("api_key"), params.at("api_key")
        variable = provider.variable or key_variable(name)
        if key is not None or provider.variable:
            upstream["api_key"] = self._draft.secret(key, variable, place)
        elif provider.base_url is None:
            note = f"is missing, so no key is sent. To send one, set api_key: ${{{variable}}}"
            self._draft.note(place, note)
        if provider.name != price_provider(provider.dialect):
            upstream["provider"] = provider.name
        upstream |= self._upstream_defaults
        first_byte, total = params.number("stream_timeout"), params.number("timeout")
        if timeouts := _durations(first_byte=first_byte, total=total):
            upstream["timeouts"] = {**upstream.get("timeouts", {}), **timeouts}
        return self._draft.upstream(name.replace("_", "-"), upstream)

    def _base_url(self, params: ConfigPart, name: str, provider: Provider) -> str | None:
        """Return the base URL of a target, or skip the target and return None."""
        place = params.at("api_base")
        configured = params.text("api_base") or params.text("base_url")
        if configured is None:
            if provider.base_url is None:
                self._draft.leave_out(place, "is missing, and the provider has no default base URL")
            return provider.base_url
        text, variable = address_at(configured, self._environ)
        if text is None:
            note = f"{variable} is not set. Set it and run this command again"
            self._draft.leave_out(place, note)
            return None
        url = self._draft.plain_address(place, text, variable)
        if url is not None and variable is not None:
            self._draft.note(place, f"the value of {variable} is written to the policy: {url}")
        if url is not None and name == "azure":
            url = url.rstrip("/").removesuffix("/openai/v1")
            url += "/openai/v1" if urlsplit(url).path else ""
            if params.text("api_version") is not None:
                note = "is not needed, because Azure is called at /openai/v1"
                self._draft.note(params.at("api_version"), note)
        return url

    def _add_fallbacks(self, part: ConfigPart) -> None:
        deployments = self._draft.deployments
        for model_name in list(part.names()):
            fallback_names = part.take(model_name)
            deployment = deployments.get(slug(model_name))
            place = part.at(model_name)
            if deployment is None or not isinstance(fallback_names, list):
                self._draft.note(
                    place, "the fallbacks of a model that is not in model_list are left out"
                )
                continue
            for fallback_name in map(str, fallback_names):
                if slug(fallback_name) not in deployments:
                    self._draft.note(
                        place, f"fallback {fallback_name} is not in model_list and is left out"
                    )
                    continue
                deployment.setdefault("fallback", []).extend(
                    {name: target[name] for name in target if name != "weight"}
                    for target in deployments[slug(fallback_name)]["targets"]
                    if target.get("weight") != 0
                )

    def _add_aliases(self, part: ConfigPart) -> None:
        for alias in part.names():
            model_name = part.take(alias)
            model_name = model_name.get("model") if isinstance(model_name, dict) else model_name
            deployment = self._draft.deployments.get(slug(str(model_name)))
            if deployment is None:
                note = "is an alias of a model that is not in model_list, and is left out"
                self._draft.note(part.at(alias), note)
            elif not self._draft.add_alias(deployment, alias[:MAX_NAME]):
                note = "is also the name of another model. That model receives the calls."
                self._draft.note(part.at(alias), note)

    def _add_cache(self, params: ConfigPart) -> None:
        draft = self._draft
        if self._litellm.take("cache") is True:
            store, ttl = params.text("type"), params.number("ttl")
            if store not in (None, *STORES):
                note = f"store {store} is not supported. The cache is kept in memory."
                draft.note(params.at("type"), note)
            store = STORES.get(store or "local", "memory")
            draft.policy["cache"] = {**_durations(ttl=ttl), "store": store}
            if settings := STORE_SETTINGS.get(store):
                draft.exports |= settings
                note = f"requires {' and '.join(settings)} where Headrace runs"
                draft.note(params.at("type"), note)
        note = "is left out. See docs/cache.md for the settings of the cache."
        draft.note_unread((params,), note)

    def _add_budget(self) -> None:
        litellm = self._litellm
        budget, period = litellm.number("max_budget"), litellm.text("budget_duration")
        if budget is None:
            return
        window = PERIODS.get(period or "30d")
        if window is None:
            self._draft.note(
                litellm.at("budget_duration"),
                f"{period} becomes a calendar month, because budgets have calendar windows",
            )
        usd = f"{budget:.9g} per {window or 'month'}"
        self._draft.policy["limits"] = [{"name": "budget", "usd": usd, "unpriced": "allow"}]
        note = "becomes a budget that does not count models without a known price"
        self._draft.note(litellm.at("max_budget"), note)


def _durations(**seconds: float | None) -> dict[str, str]:
    return {name: duration(value) for name, value in seconds.items() if value}


def _add_target(params: ConfigPart, deployment: dict[str, Any], target: dict[str, Any]) -> None:
    price = {
        name: round(cost * A_MILLION, 9)
        for name, member in PRICES.items()
        if (cost := params.number(member)) is not None
    }
    if price:
        target["price"] = price
    retries = params.number("num_retries") or params.number("max_retries")
    if retries:
        deployment["retry"] = {"times": min(10, int(retries))}
    if (params.number("order") or 1) > 1:
        deployment.setdefault("fallback", []).append(target)
        return
    weight = params.number("weight", or_zero=True)
    if weight is not None and "balance" not in deployment:
        target["weight"] = whole_weight(weight if weight >= 1 else weight * 100)
    targets = deployment["targets"]
    targets.append(target)
    if "balance" not in deployment and (len(targets) > 1 or "weight" in targets[0]):
        for listed_target in targets:
            listed_target.setdefault("weight", 1)
