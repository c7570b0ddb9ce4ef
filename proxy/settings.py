"""Settings of the process, from flags and environment variables. Flags have precedence."""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from math import inf
from pathlib import Path
from typing import Any

from proxy.runtime.frozen import frozen
from proxy.runtime.otel_settings import OtelSettings, read_otel_settings
from proxy.runtime.redis_settings import RedisLocation, parse_redis_url

MIN_SECRET_CHARS = 16
KEY_SHARE = 2  # divisor: one key may use half of the memory for request bodies
LEDGER_KINDS = ("sqlite", "jsonl")
LOG_SCHEMAS = ("native", "ecs", "otel")
LOG_LEVELS = ("info", "debug", "warning", "error")
TRACE_PROFILES = ("openinference", "langfuse")
TRACE_ID = "{trace_id}"
VARIABLE_PREFIX = "HEADRACE_"
KUBERNETES_VARIABLE = re.compile(
    r"HEADRACE_(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP)(_\w+)?)?)"
)
"""Variables that Kubernetes sets in each container for a service named ``headrace``."""


class BadSetting(ValueError):
    """A flag or variable is invalid. The message names it."""


@frozen
class Address:
    """Listening address. Port 0 asks the system for a free port."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can reach the address."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@frozen
class LedgerLocation:
    """Kind and file of the ledger, and its retention in days (None: unlimited)."""

    kind: str
    path: Path
    keep_days: int | None = None


@frozen
class LogSettings:
    """Log settings: ``ratio`` of successful calls to log, file of the decision log, if any."""

    schema: str = "native"
    level: str = "info"
    ratio: float = 1.0
    decisions: Path | None = None


@frozen
class Settings:
    """Settings of the process, apart from its policies.

    - ``candidate``: a second policy folder, evaluated without effect.
    - ``otlp_endpoint``: base URL of a collector. Without it exporters read their own variables.
    - ``trace_ratio``: traced share of successful calls. ``trace_profiles`` add attributes.
    - ``admin_token``: required if the admin listener is reachable from other machines.
    - ``admin_hosts``: accepted host names of the admin listener, besides addresses and localhost.
    - ``drain_seconds``, ``drain_grace_seconds``: time for calls in progress after a stop signal,
      and the first part of it in which new calls are accepted.
    - ``body_bytes``, ``body_values``: bounds of one request. ``bodies_bytes`` bounds all active
      ones, ``answers_bytes`` all buffered responses, ``cache_bytes`` each cache store.
    - ``cache_secret``: derives cache keys. Required for stores in a file or Redis.
    - ``replicas``: number of processes that share ``redis``. Each enforces its share of the limits
      while Redis is unavailable.
    - ``id_secrets``: decrypt ids of provider state. The first one also encrypts them.
    - ``settle_seconds``: a changed policy folder is read after this time without another change.
    - ``keepalive_seconds``: maximum silence of a stream; 0 disables keepalives.
    - ``has_console``: serve the console on the admin listener. ``trace_url`` is the address of a
      trace in a tracing system, with ``{trace_id}`` in it.
    """

    policies: Path
    listen: Address = Address("127.0.0.1", 8080)
    admin: Address = Address("127.0.0.1", 8081)
    environ: Mapping[str, str] = field(default_factory=dict)
    otlp_endpoint: str | None = None
    otel: OtelSettings = OtelSettings()  # it is frozen
    trace_ratio: float = 1.0
    trace_profiles: tuple[str, ...] = ()
    drain_seconds: float = 30.0
    drain_grace_seconds: float = 2.0
    body_bytes: int = 16 * 1024 * 1024
    body_values: int = 100_000
    bodies_bytes: int = 256 * 1024 * 1024
    answers_bytes: int = 512 * 1024 * 1024
    upstream_connections: int = 1000
    admin_token: str | None = field(default=None, repr=False)
    admin_hosts: tuple[str, ...] = ()
    candidate: Path | None = None
    cache_bytes: int = 64 * 1024 * 1024
    cache_file: Path | None = None
    redis: RedisLocation | None = None
    cache_secret: str | None = field(default=None, repr=False)
    id_secrets: tuple[str, ...] = field(default=(), repr=False)
    replicas: int = 1
    ledger: LedgerLocation | None = None
    log: LogSettings = LogSettings()  # it is frozen
    settle_seconds: float = 0.5
    keepalive_seconds: float = 15.0
    has_console: bool = True
    trace_url: str | None = None


NUMBER_SETTINGS: Mapping[str, tuple[str, float, float]] = {
    "trace_ratio": ("HEADRACE_TRACE_RATIO", 0, 1),
    "drain_seconds": ("HEADRACE_DRAIN_SECONDS", 0, inf),
    "drain_grace_seconds": ("HEADRACE_DRAIN_GRACE_SECONDS", 0, inf),
    "body_bytes": ("HEADRACE_MAX_BODY_BYTES", 0, inf),
    "body_values": ("HEADRACE_MAX_BODY_VALUES", 0, inf),
    "bodies_bytes": ("HEADRACE_MAX_BODIES_BYTES", 0, inf),
    "answers_bytes": ("HEADRACE_MAX_ANSWERS_BYTES", 0, inf),
    "upstream_connections": ("HEADRACE_MAX_UPSTREAM_CONNECTIONS", 1, inf),
    "cache_bytes": ("HEADRACE_CACHE_BYTES", 0, inf),
    "replicas": ("HEADRACE_REPLICAS", 1, inf),
    "settle_seconds": ("HEADRACE_SETTLE_SECONDS", 0.25, 60),
    "keepalive_seconds": ("HEADRACE_KEEPALIVE_SECONDS", 0, inf),
}
"""Variable, minimum and maximum of each number, by the field of ``Settings``."""
VARIABLES = (
    *(name for name, _, _ in NUMBER_SETTINGS.values()),
    *("HEADRACE_ADMIN_HOSTS", "HEADRACE_ADMIN_TOKEN", "HEADRACE_CONSOLE"),
    *("HEADRACE_CACHE_FILE", "HEADRACE_CACHE_SECRET", "HEADRACE_DECISION_LOG"),
    *("HEADRACE_ID_SECRET", "HEADRACE_ID_SECRET_OLD", "HEADRACE_LEDGER", "HEADRACE_LEDGER_KEEP"),
    *("HEADRACE_LOG_LEVEL", "HEADRACE_LOG_RATIO", "HEADRACE_LOG_SCHEMA", "HEADRACE_OTLP_ENDPOINT"),
    *("HEADRACE_REDIS_URL", "HEADRACE_SECRET", "HEADRACE_SECRETS_ACCEPTED"),
    *("HEADRACE_TRACE_PROFILES", "HEADRACE_TRACE_URL"),
)


def parse_address(text: str) -> Address:
    """Read ``HOST:PORT`` or ``[IPV6]:PORT``. Raises ``BadSetting``."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise BadSetting(f"{text!r} must be HOST:PORT")
    return Address(host, int(port))


def get_environ() -> Mapping[str, str]:
    """Return all environment variables, because secrets in policies may refer to any."""
    return os.environ


@contextmanager
def suppress_certificate_loading() -> Iterator[None]:
    """Hide the system's certificates while aiohttp is imported.

    Loading them takes time, and aiohttp's client is not used.
    """
    hidden = {name: os.environ.get(name) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR")}
    os.environ.update(dict.fromkeys(hidden, os.devnull))
    try:
        yield
    finally:
        for name, value in hidden.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def load_suppressed_certificates() -> None:
    """Restore the system's certificates for plugins that use aiohttp's client."""
    connector = sys.modules.get("aiohttp.connector")
    context = getattr(connector, "_SSL_CONTEXT_VERIFIED", None)
    if context is not None and not context.cert_store_stats()["x509"]:
        context.load_default_certs()


def from_environment(
    policies: Path, listen: Address, admin: Address, environ: Mapping[str, str]
) -> Settings:
    """Return settings from flags, ``HEADRACE_*`` and ``OTEL_*``. Raises ``BadSetting``."""
    _check_variable_names(environ)
    defaults = Settings(policies)
    otel = read_otel_settings(environ)
    file, redis = environ.get("HEADRACE_CACHE_FILE"), environ.get("HEADRACE_REDIS_URL")
    cache_secret, id_secrets = _read_cache_and_id_secrets(environ)
    if (file or redis) and not cache_secret:
        raise BadSetting("HEADRACE_CACHE_FILE and HEADRACE_REDIS_URL require HEADRACE_SECRET")
    if (trusted := environ.get("SSL_CERT_FILE")) and not Path(trusted).is_file():
        raise BadSetting(f"SSL_CERT_FILE: {trusted} is not a file")
    hosts = environ.get("HEADRACE_ADMIN_HOSTS", "").split(",")
    numbers: dict[str, Any] = {
        field: _read_number(environ, name, getattr(defaults, field), low, high)
        for field, (name, low, high) in NUMBER_SETTINGS.items()
    }
    _check_body_bytes(numbers["body_bytes"], numbers["bodies_bytes"])
    return Settings(
        **numbers,
        admin_token=_check_admin_token(admin, environ.get("HEADRACE_ADMIN_TOKEN") or None),
        admin_hosts=tuple(host.strip().lower() for host in hosts if host.strip()),
        policies=policies,
        listen=listen,
        admin=admin,
        environ=environ,
        otlp_endpoint=(otel.has_any_exporter and environ.get("HEADRACE_OTLP_ENDPOINT")) or None,
        otel=otel,
        trace_profiles=_parse_trace_profiles(environ.get("HEADRACE_TRACE_PROFILES", "")),
        cache_file=Path(file) if file else None,
        redis=_parse_redis(redis),
        cache_secret=cache_secret,
        id_secrets=id_secrets,
        ledger=_parse_ledger(
            environ.get("HEADRACE_LEDGER") or "off", environ.get("HEADRACE_LEDGER_KEEP") or ""
        ),
        log=_read_log_settings(environ),
        has_console=_read_choice(environ, "HEADRACE_CONSOLE", ("on", "off")) == "on",
        trace_url=_check_trace_url(environ.get("HEADRACE_TRACE_URL") or None),
    )


def _check_variable_names(environ: Mapping[str, str]) -> None:
    """Raise ``BadSetting`` for an unknown ``HEADRACE_*`` variable."""
    unknown = []
    for name in sorted(environ):
        if (
            name.startswith(VARIABLE_PREFIX)
            and name not in VARIABLES
            and not KUBERNETES_VARIABLE.fullmatch(name)
        ):
            names = [variable.removeprefix(VARIABLE_PREFIX) for variable in VARIABLES]
            similar = difflib.get_close_matches(name.removeprefix(VARIABLE_PREFIX), names, n=1)
            suggestions = f" (did you mean {VARIABLE_PREFIX}{similar[0]}?)" if similar else ""
            unknown.append(f"{name} is not a known variable{suggestions}")
    if unknown:
        ours = f"the prefix {VARIABLE_PREFIX} is reserved for Headrace"
        raise BadSetting("; ".join((*unknown, ours)))


def _check_body_bytes(body_bytes: int, bodies_bytes: int) -> None:
    """Raise ``BadSetting`` if one body may use more memory than a key has."""
    if body_bytes > bodies_bytes // KEY_SHARE:
        raise BadSetting(
            f"HEADRACE_MAX_BODY_BYTES ({body_bytes}) must be at most half of"
            f" HEADRACE_MAX_BODIES_BYTES ({bodies_bytes}), the share of one key"
        )


def _check_admin_token(admin: Address, token: str | None) -> str | None:
    if token is None and not admin.is_loopback:
        raise BadSetting(
            f"--admin-listen {admin} is reachable from other machines."
            " Set HEADRACE_ADMIN_TOKEN, or listen on 127.0.0.1."
        )
    if token is not None and len(token) < MIN_SECRET_CHARS:
        raise BadSetting(f"HEADRACE_ADMIN_TOKEN must have at least {MIN_SECRET_CHARS} characters")
    return token


def _read_cache_and_id_secrets(environ: Mapping[str, str]) -> tuple[str | None, tuple[str, ...]]:
    """Return the cache secret, and the id secrets: the first one encrypts, all decrypt.

    A variable with an older name takes precedence for its purpose. Raises ``BadSetting``.
    """
    shared = environ.get("HEADRACE_SECRET") or None
    cache = environ.get("HEADRACE_CACHE_SECRET") or shared
    current = environ.get("HEADRACE_ID_SECRET") or shared
    other_secrets = (
        environ.get(f"HEADRACE_{end}", "") for end in ("SECRETS_ACCEPTED", "ID_SECRET_OLD")
    )
    accepted = [secret for text in other_secrets for secret in text.split(",") if secret]
    if accepted and not current:
        raise BadSetting("HEADRACE_SECRETS_ACCEPTED requires HEADRACE_SECRET")
    ids = tuple(dict.fromkeys([current, *accepted])) if current else ()
    if any(len(secret) < MIN_SECRET_CHARS for secret in (shared, cache, *ids) if secret):
        names = "HEADRACE_SECRET, its older names and each of HEADRACE_SECRETS_ACCEPTED"
        raise BadSetting(f"{names} must have at least {MIN_SECRET_CHARS} characters")
    return cache, ids


def _parse_redis(url: str | None) -> RedisLocation | None:
    try:
        return parse_redis_url(url) if url else None
    except ValueError as error:
        raise BadSetting(str(error)) from None


def _parse_ledger(text: str, retention: str) -> LedgerLocation | None:
    days = retention.removesuffix("d")
    if retention and (days == retention or not days.isdecimal() or not int(days)):
        raise BadSetting(
            f"HEADRACE_LEDGER_KEEP must be a number of days such as 90d, not {retention!r}"
        )
    if text == "off":
        return None
    kind, _, path = text.partition(":")
    if kind not in LEDGER_KINDS or not path:
        forms = " or ".join(f"{value}:PATH" for value in LEDGER_KINDS)
        raise BadSetting(f"HEADRACE_LEDGER must be off, {forms}, not {text!r}")
    if not retention:
        return LedgerLocation(kind, Path(path))
    if kind != "sqlite":
        raise BadSetting("HEADRACE_LEDGER_KEEP requires a sqlite ledger (rotate jsonl files)")
    return LedgerLocation(kind, Path(path), int(days))


def _read_log_settings(environ: Mapping[str, str]) -> LogSettings:
    decisions = environ.get("HEADRACE_DECISION_LOG")
    return LogSettings(
        schema=_read_choice(environ, "HEADRACE_LOG_SCHEMA", LOG_SCHEMAS),
        level=_read_choice(environ, "HEADRACE_LOG_LEVEL", LOG_LEVELS),
        ratio=_read_number(environ, "HEADRACE_LOG_RATIO", 1.0, 0, 1),
        decisions=Path(decisions) if decisions else None,
    )


def _read_choice(environ: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    """Return the value of a variable, the first of ``choices`` if it is not set."""
    word = environ.get(name) or choices[0]
    if word not in choices:
        raise BadSetting(f"{name} must be {', '.join(choices[:-1])} or {choices[-1]}, not {word!r}")
    return word


def _parse_trace_profiles(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in TRACE_PROFILES:
            choices = ", ".join(TRACE_PROFILES)
            raise BadSetting(
                f"HEADRACE_TRACE_PROFILES must be a list of {choices}; {name!r} is unknown"
            )
    return names


def _check_trace_url(text: str | None) -> str | None:
    if text is not None and not (text.startswith(("http://", "https://")) and TRACE_ID in text):
        raise BadSetting(f"HEADRACE_TRACE_URL must be an http or https URL with {TRACE_ID} in it")
    return text


def _read_number(
    environ: Mapping[str, str], name: str, default: float, low: float, high: float
) -> float:
    """Return a number, which must be whole if the default is. Raise ``BadSetting``."""
    text, is_whole = environ.get(name), isinstance(default, int)
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not low <= value <= high or (is_whole and not value.is_integer()):
        kind = "an integer" if is_whole else "a number"
        bounds = f"of at least {low:g}" if high == inf else f"between {low:g} and {high:g}"
        raise BadSetting(f"{name} must be {kind} {bounds}, not {text!r}")
    return int(value) if is_whole else value
