"""Process settings: addresses, variables, secrets, and messages for invalid values."""

from __future__ import annotations

import os
import re
import ssl
from dataclasses import replace
from pathlib import Path

import click
import pytest

from proxy import settings
from proxy.cli import main
from proxy.runtime.redis_settings import RedisLocation, parse_redis_url
from proxy.server.request import BodyMemory, BodyShare
from proxy.settings import (
    Address,
    BadSetting,
    LedgerLocation,
    LogSettings,
    from_environment,
    parse_address,
    suppress_certificate_loading,
)
from proxy.upstream.wire.dialing import load_system_context
from tests.for_each import for_each

FOLDER = Address("127.0.0.1", 8080)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("127.0.0.1:8080", "127.0.0.1", 8080), ("[::1]:0", "::1", 0), ("proxy:1", "proxy", 1)],
)
def test_address_is_host_and_port(text: str, host: str, port: int) -> None:
    assert parse_address(text) == Address(host, port)


@for_each("text", ["", "8080", ":8080", "host:", "host:port", "host:70000"])
def test_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(BadSetting, match="HOST:PORT"):
        parse_address(text)


@for_each(
    ("host", "local_value"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("10.0.0.1", False)],
)
def test_only_loopback_is_local(host: str, local_value: bool) -> None:
    assert Address(host, 1).is_loopback is local_value


@for_each(
    ("environ", "name", "value"),
    [
        ({}, "drain_seconds", 30.0),
        ({}, "body_bytes", 16 * 1024 * 1024),
        ({"TRACE_RATIO": "0.1"}, "trace_ratio", 0.1),
        ({"OTLP_ENDPOINT": "http://c:4318"}, "otlp_endpoint", "http://c:4318"),
        ({"TRACE_PROFILES": "openinference, langfuse"}, "trace_profiles",
            ("openinference", "langfuse")),
        ({"MAX_BODY_BYTES": "4"}, "body_bytes", 4),
        ({"MAX_BODY_VALUES": "7"}, "body_values", 7),
        ({"MAX_BODIES_BYTES": "33554432"}, "bodies_bytes", 2**25),
        ({"MAX_UPSTREAM_CONNECTIONS": "5000"}, "upstream_connections", 5000),
        ({"LEDGER": ""}, "ledger", None),
        ({"LEDGER": "off"}, "ledger", None),
        ({"LEDGER": "sqlite:a:b"}, "ledger", LedgerLocation("sqlite", Path("a:b"))),
        ({"LEDGER": "jsonl:/dev/stdout"}, "ledger", LedgerLocation("jsonl", Path("/dev/stdout"))),
        ({"LEDGER": "sqlite:l.db", "LEDGER_KEEP": "90d"}, "ledger",
            LedgerLocation("sqlite", Path("l.db"), 90)),
        ({}, "log", LogSettings()),
        ({"LOG_SCHEMA": "ecs", "LOG_LEVEL": "warning", "LOG_RATIO": "0.5",
            "DECISION_LOG": "decisions.log"}, "log",
            LogSettings("ecs", "warning", 0.5, Path("decisions.log"))),
    ],
)  # fmt: skip
def test_variable_sets_its_field(environ: dict[str, str], name: str, value: object) -> None:
    environ = {f"HEADRACE_{variable}": text for variable, text in environ.items()}

    assert getattr(from_environment(Path("p"), FOLDER, FOLDER, environ), name) == value


KEEP = "HEADRACE_LEDGER_KEEP must be a number of days"
BODIES = "HEADRACE_MAX_BODY_BYTES .* HEADRACE_MAX_BODIES_BYTES"
BAD_VALUES = {
    "HEADRACE_LEDGER": ["on", "sqlite:", "csv:a"],
    "HEADRACE_TRACE_RATIO": ["2", "most"],
    "HEADRACE_SETTLE_SECONDS": ["0.1", "61"],
    "HEADRACE_TRACE_PROFILES": ["langfuse,phoenix"],
    "HEADRACE_DRAIN_SECONDS": ["-1"],
    "HEADRACE_MAX_BODY_BYTES": ["nan", "inf"],
    "HEADRACE_CACHE_BYTES": ["0.5"],
    "HEADRACE_REPLICAS": ["0", "1.5", "two"],
    "HEADRACE_LOG_SCHEMA": ["loud"],
    "HEADRACE_LOG_LEVEL": ["loud"],
    "HEADRACE_LOG_RATIO": ["loud"],
}


@for_each(
    ("environ", "error"),
    [
        *(({name: value}, name) for name, values in BAD_VALUES.items() for value in values),
        ({"HEADRACE_MAX_UPSTREAM_CONNECTIONS": "0"}, "must be an integer of at least 1, not '0'"),
        *(({"HEADRACE_LEDGER": "sqlite:l.db", "HEADRACE_LEDGER_KEEP": keep}, KEEP)
            for keep in ("90", "d", "0d", "-1d", "1.5d", "3 months")),
        ({"HEADRACE_LEDGER_KEEP": "90"}, KEEP),
        ({"HEADRACE_LEDGER": "jsonl:l", "HEADRACE_LEDGER_KEEP": "90d"}, "requires a sqlite ledger"),
        *(({"HEADRACE_MAX_BODY_BYTES": body, "HEADRACE_MAX_BODIES_BYTES": bodies}, BODIES) for body,
            bodies in (("101", "200"), ("", "1000"), ("134217729", ""))),
    ],
)  # fmt: skip
def test_bad_value_is_refused_by_name(environ: dict[str, str], error: str) -> None:
    with pytest.raises(BadSetting, match=error):
        from_environment(Path("p"), FOLDER, FOLDER, environ)


def test_share_of_one_key_fits_the_largest_body() -> None:
    environ = {"HEADRACE_MAX_BODY_BYTES": "100", "HEADRACE_MAX_BODIES_BYTES": "200"}

    chosen = from_environment(Path("p"), FOLDER, FOLDER, environ)

    share = BodyShare(BodyMemory(chosen.bodies_bytes), "support-widget")
    share.take(chosen.body_bytes)


def test_otlp_endpoint_is_ignored_if_sdk_is_disabled() -> None:
    environ = {"HEADRACE_OTLP_ENDPOINT": "http://a", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://b"}

    on = from_environment(Path("p"), FOLDER, FOLDER, environ)
    off = from_environment(Path("p"), FOLDER, FOLDER, environ | {"OTEL_SDK_DISABLED": "true"})

    assert (on.otlp_endpoint, on.otel.exporters) == ("http://a", ("otlp_proto_http",))
    assert (off.otlp_endpoint, off.otel.exporters) == (None, ())


def test_unknown_variable_is_refused_with_suggestion() -> None:
    environ = {"HEADRACE_LEDGR": "off", "HEADRACE_COLOUR": "blue", "SECOND": "1"}

    with pytest.raises(BadSetting) as info:
        from_environment(Path("p"), FOLDER, FOLDER, environ)

    assert "HEADRACE_LEDGR is not a known variable (did you mean HEADRACE_LEDGER?)" in str(
        info.value
    )
    assert "HEADRACE_COLOUR is not a known variable;" in str(info.value)
    assert "SECOND" not in str(info.value)


@for_each(
    "name",
    [
        *("HEADRACE_SERVICE_HOST", "HEADRACE_SERVICE_PORT", "HEADRACE_SERVICE_PORT_METRICS"),
        *("HEADRACE_PORT", "HEADRACE_PORT_8080_TCP", "HEADRACE_PORT_8080_TCP_ADDR"),
        "HEADRACE_ADMIN_SERVICE_HOST",
    ],
)
def test_kubernetes_service_variables_are_ignored(name: str) -> None:
    from_environment(Path("p"), FOLDER, FOLDER, {name: "10.0.0.1"})


def test_variables_in_code_are_known_and_documented() -> None:
    source = Path(settings.__file__).read_text()
    top = Path(__file__).parents[1]
    documents = "".join(path.read_text() for path in (top / "docs").glob("*.md"))

    assert set(re.findall(r"HEADRACE_[A-Z_]*[A-Z]", source)) == set(settings.VARIABLES)
    assert [name for name in settings.VARIABLES if f"`{name}`" not in documents] == []


def test_cli_page_lists_every_command() -> None:
    page = (Path(__file__).parents[1] / "docs/settings.md").read_text()
    listed = re.findall(r"`headrace ([a-z-]+)[ a-z]*`", page.partition("\n## Commands\n")[2])

    assert set(listed) == set(main.list_commands(click.Context(main)))


@for_each(
    ("text", "position"),
    [
        ("redis://host", RedisLocation(("redis://host",))),
        ("rediss://user:p%2Fw@[::1]:6380/2?ssl_ca_certs=/etc/ca.pem",
            RedisLocation(("rediss://user:p%2Fw@[::1]:6380/2?ssl_ca_certs=/etc/ca.pem",))),
        ("unix:///run/redis.sock", RedisLocation(("unix:///run/redis.sock",))),
        ("redis+cluster://:pw@a:7000", RedisLocation(("redis://:pw@a:7000",), cluster=True)),
        ("rediss+cluster://u:p,w@a,b:7001/0?ssl_check_hostname=no",
            RedisLocation(("rediss://u:p,w@a/0?ssl_check_hostname=no",
            "rediss://u:p,w@b:7001/0?ssl_check_hostname=no"), cluster=True)),
    ],
)  # fmt: skip
def test_redis_url_names_a_server_or_a_cluster(text: str, position: RedisLocation) -> None:
    assert parse_redis_url(text) == position


@for_each(
    ("text", "why"),
    [
        ("hr-word@host:6379", "must be redis://"),
        ("http://u:hr-word@host", "must be redis://"),
        ("unix+cluster://u:hr-word@host", "must be redis://"),
        ("redis://u:hr-word/or@host", "must have HOST"),
        ("redis://u:hr-word@", "must have HOST"),
        ("redis://u:hr-word@host:port", "must have HOST"),
        ("redis://u:hr-word@a,b", "requires redis[+]cluster://"),
        ("rediss+cluster://u:hr-word@a,b/1", "have only 0"),
        ("redis+cluster://u:hr-word@a,", "must have HOST"),
    ],
)
def test_redis_url_error_hides_password(text: str, why: str) -> None:
    environ = {"HEADRACE_REDIS_URL": text, "HEADRACE_CACHE_SECRET": "0123456789abcdef"}

    with pytest.raises(BadSetting, match=why) as info:
        from_environment(Path("p"), FOLDER, FOLDER, environ)

    assert "hr-word" not in str(info.value)
    assert "HEADRACE_REDIS_URL" in str(info.value)


def test_repr_of_redis_address_hides_password() -> None:
    assert "hr-word" not in repr(parse_redis_url("redis://u:hr-word@host"))


@pytest.mark.parametrize("text_before", [None, "/nowhere/certificates.pem"])
def test_openssl_paths_are_restored(
    text_before: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if text_before is None:
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    else:
        monkeypatch.setenv("SSL_CERT_FILE", text_before)
    names = ("SSL_CERT_FILE", "SSL_CERT_DIR")
    environ = {name: os.environ.get(name) for name in names}

    with pytest.raises(ImportError), suppress_certificate_loading():
        meanwhile = ssl.create_default_context().cert_store_stats()["x509"]
        raise ImportError

    assert meanwhile == 0
    assert {name: os.environ.get(name) for name in names} == environ
    assert load_system_context().verify_mode is ssl.CERT_REQUIRED


def test_missing_certificate_file_prevents_start(tmp_path: Path) -> None:
    """OpenSSL ignores such a file, and would trust no upstream."""
    file = tmp_path / "ca.pem"

    with pytest.raises(BadSetting, match=rf"^SSL_CERT_FILE: {file} is not a file$"):
        from_environment(Path("p"), FOLDER, FOLDER, {"SSL_CERT_FILE": str(file)})
    file.touch()
    from_environment(Path("p"), FOLDER, FOLDER, {"SSL_CERT_FILE": str(file)})


SECRET, SECOND, THIRD = "a secret of 16..", "the-other-secret", "the-third-secret"


@for_each(
    ("environ", "cache", "ids"),
    [
        ({}, None, ()),
        ({"SECRET": SECRET}, SECRET, (SECRET,)),
        ({"ID_SECRET": SECRET}, None, (SECRET,)),
        ({"CACHE_SECRET": SECRET}, SECRET, ()),
        ({"SECRET": SECRET, "ID_SECRET": SECOND}, SECRET, (SECOND,)),
        ({"SECRET": SECRET, "CACHE_SECRET": SECOND}, SECOND, (SECRET,)),
        ({"SECRET": SECRET, "SECRETS_ACCEPTED": f"{SECOND},{THIRD},{SECRET}"}, SECRET,
            (SECRET, SECOND, THIRD)),
        ({"ID_SECRET": SECRET, "ID_SECRET_OLD": THIRD, "SECRETS_ACCEPTED": SECOND}, None,
            (SECRET, SECOND, THIRD)),
    ],
)  # fmt: skip
def test_secrets_of_cache_and_ids_are_selected(
    environ: dict[str, str], cache: str | None, ids: tuple[str, ...]
) -> None:
    by_name = {f"HEADRACE_{name}": value for name, value in environ.items()}

    settings = from_environment(Path("p"), FOLDER, FOLDER, by_name)

    assert (settings.cache_secret, settings.id_secrets) == (cache, ids)
    assert all(secret not in repr(replace(settings, environ={})) for secret in environ.values())


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({"HEADRACE_ID_SECRET": "too short"}, "16 characters"),
        ({"HEADRACE_ID_SECRET": "0123456789abcdef", "HEADRACE_ID_SECRET_OLD": "x"}, "older names"),
        ({"HEADRACE_ID_SECRET_OLD": "0123456789abcdef"}, "requires HEADRACE_SECRET"),
        ({"HEADRACE_SECRETS_ACCEPTED": "0123456789abcdef"}, "requires HEADRACE_SECRET"),
        ({"HEADRACE_SECRET": "too short"}, "16 characters"),
        ({"HEADRACE_CACHE_SECRET": "too short"}, "16 characters"),
        ({"HEADRACE_SECRET": "0123456789abcdef", "HEADRACE_SECRETS_ACCEPTED": "x"}, "ACCEPTED"),
    ],
)
def test_invalid_id_secret_is_not_printed(environ: dict[str, str], name: str) -> None:
    with pytest.raises(BadSetting, match=name) as refused:
        from_environment(Path("p"), FOLDER, FOLDER, environ)

    assert not any(value in str(refused.value) for value in environ.values() if len(value) > 1)
