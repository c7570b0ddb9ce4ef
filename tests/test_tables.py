"""Tables and lists on pages match the code."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, get_args

import pytest

from proxy.call.attempts import AttemptReason, CallOutcome, LossReason, SpendUse
from proxy.call.facts import CacheResult
from proxy.cli import COMMANDS
from proxy.dialects import DIALECTS, ROUTES, RequestContext, parse_request_head
from proxy.dialects.vendors.portkey import make_response_headers
from proxy.fields.rules import POLICY_FIELDS
from proxy.ledger.jsonl import JsonlStore
from proxy.ledger.render import FORMATS, list_measures
from proxy.ledger.spending import COLUMN_BY_DIMENSION, SpendingLine
from proxy.ledger.store import Counts
from proxy.money.usage import Source
from proxy.policy.review.check import check_folder
from proxy.policy.review.compare import DIFFERENCE_KINDS
from proxy.policy.schema.deployments import RetryCause
from proxy.runtime.redis_settings import parse_redis_url
from proxy.settings import (
    LOG_LEVELS,
    LOG_SCHEMAS,
    TRACE_PROFILES,
    VARIABLES,
    Settings,
    from_environment,
)
from proxy.types.target import Secret
from tests.for_each import for_each
from tests.ledger.records import PRICED, FakeLog, finished_record, ledger_at
from tests.ledger.test_sqlite import batch, lines
from tests.test_first_pages import SECRETS

TOP = Path(__file__).parents[1]
PAGES = sorted([*TOP.glob("*.md"), *TOP.glob("d*/*.md"), *TOP.glob("docs/*/*.md")])


def page(name: str) -> str:
    return (TOP / "docs" / name).read_text()


def table(name: str, heading: str) -> Iterator[list[str]]:
    """Yield the cells of each row of the table whose first heading starts with ``heading``."""
    match = re.search(rf"^\| {re.escape(heading)}.*\n\|[-|]+\n((?:\|.*\n)+)", page(name), re.M)
    assert match is not None, heading
    for row in match[1].splitlines():
        yield [cell.strip() for cell in row.strip().strip("|").split("|")]


def words(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def first_cells(name: str, heading: str) -> set[str]:
    return {word for row in table(name, heading) for word in words(row[0])}


# Indented blocks are parts of a file. tests/test_first_pages.py tests them.
YAML = [
    (file, block)
    for file in PAGES
    for block in re.findall(r"```yaml\n(.*?)```", file.read_text(), re.DOTALL)
    if not re.search(r"^tests:", block, re.MULTILINE) and not block.startswith(" ")
]
PAGE_VARIABLES = {**SECRETS, "GUARD_SECRET": "s" * 32}


@for_each(("file", "block"), YAML, ids=[f"{file.name}: {block.split()[0]}" for file, block in YAML])
def test_policies_on_pages_pass_check(file: Path, block: str, tmp_path: Path) -> None:
    (tmp_path / "example.yaml").write_text(block)

    assert check_folder(tmp_path, PAGE_VARIABLES).errors == ()


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ledger") / "ledger.db"
    opened = ledger_at(path, FakeLog())
    record = finished_record(PRICED)
    opened.count_begin(record)
    opened.emit(record)
    opened.close()
    return path


@for_each("name", ["calls", "attempts", "runs", "charges", "budgets", "charged_since"])
def test_ledger_columns_match_page(name: str, ledger: Path) -> None:
    with closing(sqlite3.connect(ledger)) as file:
        context = {row[1] for row in file.execute(f"PRAGMA table_xinfo({name})")}
    [events] = [words(row[1]) for row in table("ledger.md", "table") if words(row[0]) == [name]]

    assert set(events) == context


def test_json_ledger_fields_match_page(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    JsonlStore(path, "abc").write(batch(1), Counts(1, 1, 0, 0))
    event = {words(row[0])[0]: set(words(row[1])) for row in table("ledger.md", "table")}
    computed = {"cost_usd", "saved_usd", "tokens_in", "tokens_out"}

    call, attempt, *_ = lines(path)

    assert call.keys() == event["calls"] - computed - {"started_ms"} | {"row", "time", "charges"}
    assert attempt.keys() == event["attempts"] - computed | {"row", "time", "request_id"}


@pytest.mark.parametrize(
    ("heading", "known_value"),
    [("`money`", SpendUse), ("`loss`", LossReason)],
    ids=["money", "loss"],
)
def test_ledger_spend_and_loss_values_match_page(heading: str, known_value: Any) -> None:
    assert first_cells("ledger.md", heading) == set(get_args(known_value))


@for_each(
    ("name", "sentence", "known_value"),
    [
        ("ledger.md", r"`why` is one of (.*?);", get_args(AttemptReason)),
        ("ledger.md", r"`usage_source` one of (.*?)\.", get_args(Source)),
        ("ledger.md", r"may be repeated: `tag.NAME`, (.*?) \(UTC\)", COLUMN_BY_DIMENSION),
        ("ledger.md", r"`--format` is (.*?)\.", FORMATS),
        ("metrics.md", r"`outcome` is one of (.*?)\.", get_args(CallOutcome)),
        ("logs.md", r"`usage_source` \| by type; (.*?) \|", get_args(Source)),
        ("logs.md", r"`cache` \| (.*?) \|", get_args(CacheResult)),
        ("logs.md", r"target and reason: (.*?) \|", get_args(AttemptReason)),
        ("logs.md", r"`HEADRACE_LOG_LEVEL` \| info \| (.*?) \|", LOG_LEVELS),
        ("logs.md", r"field names: (.*?) \|", LOG_SCHEMAS),
        ("policies.md", r"by kind \((.*?)\)", DIFFERENCE_KINDS),
        ("settings.md", r"Adds attributes for trace backends: (.*?)\. \|", TRACE_PROFILES),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_list_on_page_is_complete(name: str, sentence: str, known_value: Any) -> None:
    match = re.search(sentence, " ".join(page(name).split()))

    assert match is not None
    assert set(words(match[1])) == set(known_value)


def test_retry_causes_match_page() -> None:
    text = " ".join(page("policies.md").split())
    match = re.search(r"statuses of the upstream \((.*?)\), (.*?)\. The default", text)

    assert match is not None
    assert {*map(int, match[1].split(", ")), *words(match[2])} == set(get_args(RetryCause))


def test_fields_closed_to_clients_are_refused_by_default() -> None:
    rows = {row[0]: words(row[1]) for row in table("fields.md", "effect")}
    plain = [name for effect in ("model", "address, header", "key") for name in rows[effect]]

    assert {*plain} - {"model"} <= POLICY_FIELDS


def test_usage_columns_match_page() -> None:
    measures = list_measures(SpendingLine((), *[0] * 9))
    output = {name.removesuffix("_usd").replace("_", " ") for name in measures}

    assert first_cells("ledger.md", "column") == output


def test_cache_status_values_match_page() -> None:
    status: Any = "x-portkey-cache-status"
    for ours, portkeys, *_ in table("cache.md", "`x-headrace-cache`"):
        result: Any = words(ours)[0]
        assert result in get_args(CacheResult)
        assert dict(make_response_headers(None, 1, result))[status] == words(portkeys)[0]


DEFAULTS = {
    "HEADRACE_TRACE_RATIO": "trace_ratio",
    "HEADRACE_DRAIN_SECONDS": "drain_seconds",
    "HEADRACE_KEEPALIVE_SECONDS": "keepalive_seconds",
    "HEADRACE_DRAIN_GRACE_SECONDS": "drain_grace_seconds",
    "HEADRACE_MAX_BODY_BYTES": "body_bytes",
    "HEADRACE_MAX_BODY_VALUES": "body_values",
    "HEADRACE_MAX_UPSTREAM_CONNECTIONS": "upstream_connections",
    "HEADRACE_MAX_BODIES_BYTES": "bodies_bytes",
    "HEADRACE_MAX_ANSWERS_BYTES": "answers_bytes",
    "HEADRACE_CACHE_BYTES": "cache_bytes",
    "HEADRACE_REPLICAS": "replicas",
    "HEADRACE_SETTLE_SECONDS": "settle_seconds",
}
OFF = {"HEADRACE_LEDGER": "ledger"}


def test_variable_defaults_match_page() -> None:
    address = Settings(Path()).listen
    chosen = from_environment(Path(), address, address, {})
    rows = [*table("settings.md", "flag or variable"), *table("logs.md", "variable")]
    event = {name: row[1] for row in rows for name in words(row[0])}

    assert {name for name in event if name.startswith("HEADRACE_")} == set(VARIABLES)
    assert {name: float(event[name]) for name in DEFAULTS} == {
        name: getattr(chosen, field) for name, field in DEFAULTS.items()
    }
    assert {event[name] for name in OFF} == {"off"}
    assert [getattr(chosen, field) for field in OFF.values()] == [None]
    log = chosen.log
    assert (event["HEADRACE_LOG_LEVEL"], event["HEADRACE_LOG_SCHEMA"]) == (log.level, log.schema)
    assert float(event["HEADRACE_LOG_RATIO"]) == log.ratio
    empty = set(event) - {*DEFAULTS, *OFF, "--listen", "--admin-listen"}
    assert {event[name] for name in empty if "LOG_" not in name} <= {""}


@pytest.mark.parametrize("flag", ["--listen", "--admin-listen"])
def test_flag_defaults_match_page(flag: str) -> None:
    event = {row[0]: row[1] for row in table("settings.md", "flag or variable")}
    [option] = [param for param in COMMANDS["serve"].params if flag in param.opts]

    assert event[f"`{flag}`"] == option.default


def test_redis_url_forms_on_page_are_accepted() -> None:
    for row in table("settings.md", "form of `HEADRACE_REDIS_URL`"):
        for form in words(row[0]):
            assert parse_redis_url(form.replace("...", "host")).urls


def test_upstream_prefixes_and_credentials_match_page() -> None:
    for name, prefix, credential in table("dialects.md", "dialect | prefix"):
        server = DIALECTS[name].server
        assert words(prefix)[0] == server.prefix
        is_bearer = server.key_header == "authorization"
        assert words(credential)[0] == ("Authorization: Bearer" if is_bearer else server.key_header)


BODILESS = ("models", "stored", "conversations")
ROUTES_OF = {dialect: path for (_, path), (dialect, kind) in ROUTES.items() if kind not in BODILESS}
PLACES = {
    "x-portkey-metadata": '{"team": "support"}',
    "x-headrace-tags": "team=support",
    "x-enkrypt-tags": "team=support",
}


def caller_headers() -> Iterator[tuple[str, str, str]]:
    """Yield dialect, meaning and name of each documented header of callers."""
    for row in table("dialects.md", "dialect | credential"):
        names = list(DIALECTS) if row[0] == "all" else row[0].split(", ")
        for subject, cell in zip(("credential", "deployment", "tags"), row[1:], strict=True):
            for word in words(cell):
                header = word.split(":")[0].lower()
                if header == "authorization" or header.startswith("x-") or header == "apikey":
                    yield from ((name, subject, header) for name in names)


@for_each(("dialect", "description", "header"), sorted(caller_headers()))
def test_caller_header_matches_page(dialect: str, description: str, header: str) -> None:
    value = PLACES.get(header, "Bearer support" if header == "authorization" else "support")
    path = ROUTES_OF["openai" if dialect == "portkey" else dialect]
    headers = {header: value} | ({"x-portkey-mode": "proxy"} if dialect == "portkey" else {})

    head = parse_request_head("POST", path, headers, RequestContext("req_1"))

    assert head.dialect == dialect
    if description == "credential":
        assert head.digest == Secret("support").digest
    elif description == "deployment":
        assert head.deployment == "support"
    else:
        assert head.tags == (("team", "support"),)


def test_span_and_event_names_match_page() -> None:
    code = "\n".join(file.read_text() for file in (TOP / "proxy/telemetry").glob("*.py"))
    for name in re.findall(r"`((?:headrace|gen_ai)\.[a-z_.]+)(?:\.\*)?`", page("traces.md")):
        assert f'"{name}' in code, name
