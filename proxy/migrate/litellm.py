"""Converts LiteLLM's ``config.yaml``: models, router settings and prices.

Sources: LiteLLM's documents on the proxy configuration and on ``model_info``, and its model table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from proxy.errors.words import MAX_NAME
from proxy.migrate.draft import (
    ConfigPart,
    Draft,
    find_listed_price,
    format_duration,
    get_price_provider,
    iter_variable_names,
    resolve_url,
    to_integer_weight,
    to_slug,
)
from proxy.types.providers import BY_LITELLM_NAME, Provider, get_key_variable

SUPPORTED_MODES = frozenset({"chat", "embedding", "responses", "completion"})
"""Modes that need no passthrough path."""
ENDPOINT_BY_MODE = {"completion": "completions", "responses": "responses"}
"""Modes of targets that support one endpoint only."""
MODE_PATHS: dict[str, tuple[str, ...]] = {
    "audio_transcription": ("/v1/audio/transcriptions", "/v1/audio/translations"),
    "audio_speech": ("/v1/audio/speech",),
    "image_generation": ("/v1/images/generations",),
    "image_edit": ("/v1/images/edits",),
    "moderation": ("/v1/moderations",),
    "rerank": ("/v1/rerank",),
}
"""Passthrough paths by mode."""
FORM_UPLOAD_MODES = frozenset({"audio_transcription", "image_edit"})
"""Modes whose requests are forms, which are forwarded unchanged."""
COHERE_RERANK_PATH = "/v2/rerank"
TOKENS_PER_MILLION = 1_000_000
MAX_ALLOWED_FAILURES = 10_000  # maximum in policies
PRICE_FIELDS = {
    "input": "input_cost_per_token",
    "cached_input": "cache_read_input_token_cost",
    "cache_write": "cache_creation_input_token_cost",
    "output": "output_cost_per_token",
}
STORE_BY_CACHE_TYPE = {"local": "memory", "disk": "sqlite", "redis": "redis"}
CACHE_KEYS_NOTE = "a secret of at least 16 characters, for the keys of cache entries"
STORE_SETTINGS = {
    "redis": {
        "HEADRACE_REDIS_URL": "the URL of the cache's Redis: redis://USER:PASSWORD@HOST:PORT"
    },
    "sqlite": {"HEADRACE_CACHE_FILE": "the path of the cache file"},
}
"""Settings of cache stores outside the process."""
BUDGET_PERIODS = {
    "1h": "hour", "1d": "day", "24h": "day", "7d": "week", "30d": "month", "1mo": "month",
}  # fmt: skip
NOTES_BY_SETTING = {
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


def convert_config(config: Any, name: str, environ: Mapping[str, str]) -> Draft:
    """Return the draft of a configuration. ``name`` is not used, because models have names."""
    return _Converter(config, environ).convert()


def _read_provider_name(params: ConfigPart) -> str:
    name, slash, _ = (params.read_as_text("model") or "").partition("/")
    return params.read_as_text("custom_llm_provider") or (name if slash else "openai")


def list_passthrough_paths(mode: str, provider: str | None) -> list[Any]:
    """Return the ``passthrough`` of a deployment for a LiteLLM mode, or an empty list."""
    paths: list[Any] = list(MODE_PATHS.get(mode, ()))
    if mode == "rerank":
        path: dict[str, Any] = {"path": paths[0], "idempotent": True}
        paths = [{**path, "to": COHERE_RERANK_PATH} if provider == "cohere" else path]
    return paths


class _Converter:
    """Converts one configuration. ``environ`` are the variables that may contain URLs."""

    def __init__(self, config: Any, environ: Mapping[str, str]) -> None:
        self._environ = environ
        models = ConfigPart(Draft(), config).read_mappings("model_list")
        self._draft = Draft({*iter_variable_names(config), *_iter_default_key_variables(models)})
        self._top = ConfigPart(self._draft, config)
        self._litellm = self._top.read_mapping("litellm_settings")
        self._router = self._top.read_mapping("router_settings")
        self._upstream_defaults: dict[str, Any] = {}
        self._deployment_defaults: dict[str, Any] = {}

    def convert(self) -> Draft:
        draft, general = self._draft, self._top.read_mapping("general_settings")
        self._read_router_settings()
        for item in self._top.read_mappings("model_list"):
            self._add_model(item)
        for deployment in draft.deployments.values():
            if not deployment["targets"]:  # all targets have a later order
                deployment["targets"].append(deployment["fallback"].pop(0))
        draft.replace_weights_if_all_zero()
        for settings in (self._litellm, self._router):
            for part in settings.read_mappings("fallbacks"):
                self._add_fallbacks(part)
        self._add_aliases(self._router.read_mapping("model_group_alias"))
        self._add_cache(self._litellm.read_mapping("cache_params"))
        self._add_budget()
        for part in (self._top, self._litellm, self._router, general):
            part.add_unread_notes(notes=NOTES_BY_SETTING)
        return draft

    def _read_router_settings(self) -> None:
        litellm, router = self._litellm, self._router
        total = router.read_number("timeout") or litellm.read_number("request_timeout")
        timeouts = _format_durations(first_byte=router.read_number("stream_timeout"), total=total)
        if timeouts:
            self._upstream_defaults["timeouts"] = timeouts
        failures, rest_s = router.read_number("allowed_fails"), router.read_number("cooldown_time")
        breaker: dict[str, Any] = _format_durations(rest=rest_s)
        if failures:
            breaker = {"failures": min(MAX_ALLOWED_FAILURES, max(1, int(failures))), **breaker}
        if breaker:
            self._upstream_defaults["breaker"] = breaker
        retries = router.read_number("num_retries") or litellm.read_number("num_retries")
        if retries:
            self._deployment_defaults["retry"] = {"times": min(10, int(retries))}
        strategy = router.read_as_text("routing_strategy")
        if strategy == "least-busy":
            self._deployment_defaults["balance"] = "least_loaded"
        elif strategy not in (None, "simple-shuffle"):
            note = f"{strategy} is not supported. Calls are distributed by weight."
            router.add_note("routing_strategy", note)

    def _add_model(self, item: ConfigPart) -> None:
        draft, model_name = self._draft, item.read_as_text("model_name")
        params, info = item.read_mapping("litellm_params"), item.read_mapping("model_info")
        info.read_value("id")
        model = params.read_as_text("model")
        if model_name is None or model is None or "*" in model_name + model:
            item.skip_target("must have one model_name and one model, without wildcards")
            return
        provider_name = _read_provider_name(params)
        provider = BY_LITELLM_NAME.get(provider_name)
        if provider is None:
            params.skip_target(f"provider {provider_name} is not supported", "model")
            return
        upstream = self._add_upstream(params, provider_name, provider)
        if upstream is None:
            return
        target = {"upstream": upstream, "model": model.removeprefix(f"{provider_name}/")}
        name = to_slug(model_name)
        defaults: dict[str, Any] = {"targets": [], **self._deployment_defaults}
        deployment = draft.deployments.setdefault(name, defaults)
        if name != model_name and not draft.add_alias(deployment, model_name[:MAX_NAME]):
            item.add_note("model_name", f"{model_name} is renamed to {name}")
        _add_target(params, deployment, target)
        _apply_mode(info, provider_name, deployment, target)
        self._add_base_model_price(info, params, target)
        for part in (item, params, info):
            part.add_unread_notes()

    def _add_base_model_price(
        self, info: ConfigPart, params: ConfigPart, target: dict[str, Any]
    ) -> None:
        base_models = info.read_as_text("base_model"), params.read_as_text("base_model")
        base_model = base_models[0] or base_models[1]
        if base_model is None or "price" in target or base_model == target["model"]:
            return
        listed = find_listed_price(self._draft.upstreams[target["upstream"]], base_model)
        if listed is None:
            note = f'model {base_model} has no known price. Add "price:" to the target.'
        else:
            target["price"], as_of = listed
            note = f"the target gets the price of {base_model} as of {as_of}"
        info.add_note("base_model", note)

    def _add_upstream(self, params: ConfigPart, name: str, provider: Provider) -> str | None:
        base_url = self._read_base_url(params, name, provider)
        if base_url is None:
            return None
        upstream: dict[str, Any] = {"dialect": provider.dialect, "base_url": base_url}
        key, path = params.read_value("api_key"), params.get_member_path("api_key")
        variable = provider.key_variable or get_key_variable(name)
        if key is not None or provider.key_variable:
            upstream["api_key"] = self._draft.reference_secret(key, variable, path)
        elif provider.base_url is None:
            note = f"is missing, so no key is sent. To send one, set api_key: ${{{variable}}}"
            params.add_note("api_key", note)
        if provider.name != get_price_provider(provider.dialect):
            upstream["provider"] = provider.name
        upstream |= self._upstream_defaults
        first_byte, total = params.read_number("stream_timeout"), params.read_number("timeout")
        if timeouts := _format_durations(first_byte=first_byte, total=total):
            upstream["timeouts"] = {**upstream.get("timeouts", {}), **timeouts}
        return self._draft.add_upstream(name.replace("_", "-"), upstream)

    def _read_base_url(self, params: ConfigPart, name: str, provider: Provider) -> str | None:
        """Return the base URL of a target. If there is none, report it and return None."""
        configured = params.read_as_text("api_base") or params.read_as_text("base_url")
        if configured is None:
            if provider.base_url is None:
                note = "is missing, and the provider has no default base URL"
                params.skip_target(note, "api_base")
            return provider.base_url
        text, variable = resolve_url(configured, self._environ)
        if text is None:
            note = f"{variable} is not set. Set it and run this command again"
            params.skip_target(note, "api_base")
            return None
        url = params.redact_url("api_base", text, variable)
        if url is not None and variable is not None:
            note = f"the value of {variable} is written to the policy: {url}"
            params.add_note("api_base", note)
        if url is not None and name == "azure":
            url = url.rstrip("/").removesuffix("/openai/v1")
            url += "/openai/v1" if urlsplit(url).path else ""
            if params.read_as_text("api_version") is not None:
                note = "is not needed, because Azure is called at /openai/v1"
                params.add_note("api_version", note)
        return url

    def _add_fallbacks(self, part: ConfigPart) -> None:
        deployments = self._draft.deployments
        for model_name in part.values:
            fallback_names = part.read_value(model_name)
            deployment = deployments.get(to_slug(model_name))
            if deployment is None or not isinstance(fallback_names, list):
                note = "the fallbacks of a model that is not in model_list are left out"
                part.add_note(model_name, note)
                continue
            for fallback_name in map(str, fallback_names):
                if to_slug(fallback_name) not in deployments:
                    note = f"fallback {fallback_name} is not in model_list and is left out"
                    part.add_note(model_name, note)
                    continue
                deployment.setdefault("fallback", []).extend(
                    {name: target[name] for name in target if name != "weight"}
                    for target in deployments[to_slug(fallback_name)]["targets"]
                    if target.get("weight") != 0
                )

    def _add_aliases(self, part: ConfigPart) -> None:
        for alias in part.values:
            model_name = part.read_value(alias)
            model_name = model_name.get("model") if isinstance(model_name, dict) else model_name
            deployment = self._draft.deployments.get(to_slug(str(model_name)))
            if deployment is None:
                note = "is an alias of a model that is not in model_list, and is left out"
                part.add_note(alias, note)
            elif not self._draft.add_alias(deployment, alias[:MAX_NAME]):
                note = "is also the name of another model. That model receives the calls."
                part.add_note(alias, note)

    def _add_cache(self, params: ConfigPart) -> None:
        draft = self._draft
        if self._litellm.read_value("cache") is True:
            store, ttl = params.read_as_text("type"), params.read_number("ttl")
            if store not in (None, *STORE_BY_CACHE_TYPE):
                note = f"store {store} is not supported. The cache is kept in memory."
                params.add_note("type", note)
            store = STORE_BY_CACHE_TYPE.get(store or "local", "memory")
            draft.policy["cache"] = {**_format_durations(ttl=ttl), "store": store}
            if store in STORE_SETTINGS:
                settings = {**STORE_SETTINGS[store], "HEADRACE_SECRET": CACHE_KEYS_NOTE}
                draft.exports |= settings
                params.add_note("type", f"requires {' and '.join(settings)} where Headrace runs")
        params.add_unread_notes("is left out. See docs/cache.md for the settings of the cache.")

    def _add_budget(self) -> None:
        litellm = self._litellm
        budget, period = litellm.read_number("max_budget"), litellm.read_as_text("budget_duration")
        if budget is None:
            return
        window = BUDGET_PERIODS.get(period or "30d")
        if window is None:
            note = f"{period} becomes a calendar month, because budgets have calendar windows"
            litellm.add_note("budget_duration", note)
        usd = f"{budget:.9g} per {window or 'month'}"
        self._draft.policy["limits"] = [{"name": "budget", "usd": usd, "unpriced": "allow"}]
        note = "becomes a budget that does not count models without a known price"
        litellm.add_note("max_budget", note)


def _iter_default_key_variables(models: Iterable[ConfigPart]) -> Iterator[str]:
    """Yield the variables of API keys that LiteLLM reads by default."""
    for item in models:
        params = item.read_mapping("litellm_params")
        is_converted = "*" not in (params.read_as_text("model") or "")
        provider = BY_LITELLM_NAME.get(_read_provider_name(params))
        if is_converted and provider is not None and params.read_value("api_key") is None:
            yield provider.key_variable


def _format_durations(**seconds: float | None) -> dict[str, str]:
    return {name: format_duration(value) for name, value in seconds.items() if value}


def _apply_mode(
    info: ConfigPart, provider_name: str, deployment: dict[str, Any], target: dict[str, Any]
) -> None:
    mode = info.read_as_text("mode") or "chat"
    if mode in ENDPOINT_BY_MODE:
        target["endpoint"] = ENDPOINT_BY_MODE[mode]
    for path in list_passthrough_paths(mode, provider_name):
        if path not in deployment.setdefault("passthrough", []):
            deployment["passthrough"].append(path)
    if mode in FORM_UPLOAD_MODES:
        model = target["model"]
        note = f"form uploads are forwarded unchanged: clients must send the model {model}"
        info.add_note("mode", note)
    if mode not in SUPPORTED_MODES and mode not in MODE_PATHS:
        info.add_note(
            "mode", f'mode {mode} is not supported. See "Other paths" in docs/policies.md.'
        )


def _add_target(params: ConfigPart, deployment: dict[str, Any], target: dict[str, Any]) -> None:
    price = {
        name: round(cost * TOKENS_PER_MILLION, 9)
        for name, member in PRICE_FIELDS.items()
        if (cost := params.read_number(member)) is not None
    }
    if price:
        target["price"] = price
    retries = params.read_number("num_retries") or params.read_number("max_retries")
    if retries:
        deployment["retry"] = {"times": min(10, int(retries))}
    if (params.read_number("order") or 1) > 1:
        deployment.setdefault("fallback", []).append(target)
        return
    weight = params.read_number("weight", allow_zero=True)
    if weight is not None and "balance" not in deployment:
        target["weight"] = to_integer_weight(weight if weight >= 1 else weight * 100)
    targets = deployment["targets"]
    targets.append(target)
    if "balance" not in deployment and (len(targets) > 1 or "weight" in targets[0]):
        for listed_target in targets:
            listed_target.setdefault("weight", 1)
