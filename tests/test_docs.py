"""The documentation matches the code: generated parts, examples, names and links."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from proxy import __version__, egress
from proxy.app import GUARD_THREADS, telemetry
from proxy.cache import redis as cache_in_redis
from proxy.cache import semantic
from proxy.demo.examples import DEMO_KEY, format_examples
from proxy.dialects.frames import reader
from proxy.dialects.wire import large_json, strict_json
from proxy.errors import words
from proxy.fields import token_bounds
from proxy.guards import engine
from proxy.guards.kinds import KINDS, evidence, passages
from proxy.guards.services import judge, moderation, presidio, webhook
from proxy.guards.text import base64_text
from proxy.guards.text import documents as guard_documents
from proxy.guards.whole import joined_parts
from proxy.ledger import audit, statements, writer
from proxy.limits import reconcile
from proxy.limits.stores import failover, redis_script
from proxy.limits.stores import redis as limits_in_redis
from proxy.policy import review, schema, store, watch
from proxy.policy.files import load, yaml_reader
from proxy.policy.review import check
from proxy.policy.schema import keys
from proxy.policy.schema.deployments import CacheConfig, SemanticConfig
from proxy.policy.schema.guards import GuardConfig, get_guard_model
from proxy.policytest.cases import Suite, read_cases
from proxy.runtime import fair_queue, spool
from proxy.runtime.otel_settings import BatchBounds
from proxy.server import server
from proxy.telemetry import chain, decisions, lines, log, registry, span_queue, trace
from proxy.types import limit
from proxy.upstream import attempt, client, health
from proxy.upstream.wire import dialing
from tests.for_each import for_each
from tools import docs

TOP = Path(__file__).parents[1]
FOLDERS = ("dashboards", "deploy", "docs", "proxy", "tests", "tools")
PAGES = sorted(
    page
    for page in [
        *TOP.glob("*.md"),
        *(page for name in FOLDERS for page in (TOP / name).rglob("*.md")),
    ]
    if "node_modules" not in page.parts
)
POLICIES = (TOP / "docs" / "policies.md").read_text()
GUARDS = (TOP / "docs" / "guards.md").read_text()
REFERENCE = (TOP / "docs" / "policy-reference.md").read_text()
BLOCKS = re.findall(r"```yaml\n(.*?)```", POLICIES, re.DOTALL)
EXAMPLES = [block for block in BLOCKS if not re.search(r"^tests:", block, re.MULTILINE)]
TESTS = [block for block in BLOCKS if re.search(r"^tests:", block, re.MULTILINE)]


@for_each("page", docs.BLOCKS)
def test_generated_parts_are_up_to_date(page: str) -> None:
    text = (docs.DOCS / page).read_text()

    assert docs.written(text, docs.BLOCKS[page]) == text, "run make docs"


def test_page_without_markers_is_reported() -> None:
    with pytest.raises(ValueError, match="markers of codes"):
        docs.written("nothing", {"codes": docs.codes})


@pytest.mark.parametrize("example", TESTS)
def test_examples_of_policy_tests_are_valid(example: str, tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "example.yaml").write_text(example)

    cases, _ = read_cases(tmp_path)

    assert cases


def kinds(kind: Any) -> Iterator[Any]:
    """Return all models that a type is made of. A guard consists of the models of its kinds."""
    if kind is GuardConfig:
        yield from map(get_guard_model, KINDS)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
        for field in kind.model_fields.values():
            if field.annotation is not kind and "When" not in str(field.annotation):
                yield from kinds(field.annotation)
    for part in get_args(kind):
        yield from kinds(part)


@for_each("section", schema.PoliciesConfig.model_fields)
def test_policy_sections_and_keys_are_documented(section: str) -> None:
    assert re.search(rf"^## {section}:|^{section}:", POLICIES, re.MULTILINE), section
    known_items: list[Any] = [
        *kinds(schema.PoliciesConfig.model_fields[section].annotation),
        schema.WhenConfig,
    ]
    for kind in known_items:
        for name, item in kind.model_fields.items():
            word = rf"\b{item.alias or name}\b"
            page = GUARDS if issubclass(kind, GuardConfig) else REFERENCE
            assert re.search(word, page), f"{kind.__name__}.{name}"


def test_keys_of_policy_tests_are_documented() -> None:
    for kind in kinds(Suite):
        for name in kind.model_fields:
            assert re.search(rf"\b{name}\b", POLICIES), f"{kind.__name__}.{name}"


@for_each("page", PAGES, ids=lambda page: page.name)
def test_links_have_targets(page: Path) -> None:
    for link, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
        if not link.startswith("http"):
            target = page.parent / link if link else page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), f"{link}#{anchor}"


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings}


def test_index_links_every_page() -> None:
    index = (TOP / "docs" / "index.md").read_text()
    listed = {*(TOP / "docs").glob("*.md"), *TOP.glob("*.md")} - {
        TOP / "docs/index.md",
        TOP / "README.md",
    }
    linked = {(TOP / "docs" / link).resolve() for link in re.findall(r"\]\(([^)#]+)\)", index)}

    assert listed - linked == set()
    assert {TOP / "docs/runbooks/README.md", TOP / "docs/decisions"} <= linked


def test_request_page_names_existing_files_and_functions() -> None:
    text = (TOP / "docs" / "request.md").read_text()
    code = "".join(file.read_text() for file in (TOP / "proxy").rglob("*.py"))

    for name in re.findall(r"`([a-z_]+/[a-z_/.]*)`", text):
        assert (TOP / "proxy" / name).exists(), name
    for name in ("read_head", "parse_request_head", "identify", "read_call", "decide"):
        assert f"`{name}`" in text
        assert f"def {name}(" in code


def test_documented_demo_key_is_that_of_shipped_policies() -> None:
    assert DEMO_KEY in format_examples("here", "there")
    assert DEMO_KEY in (TOP / "policies" / "keys.yaml").read_text()


def test_changelog_starts_with_unreleased_and_versions() -> None:
    changelog = (TOP / "CHANGELOG.md").read_text()

    assert re.findall(r"^## (.*)", changelog, re.MULTILINE)[:2] == ["Unreleased", __version__]
    released = changelog.partition(f"## {__version__}\n")[2]
    assert len(released.split()) <= 1200, "a merge may have restored old entries"


def test_changelog_entries_are_whole_and_unique() -> None:
    """Merging two branches keeps the lines of both, which can tear or repeat an entry."""
    changelog = (TOP / "CHANGELOG.md").read_text()
    entries = re.findall(r"^- (.*(?:\n  .*)*)", changelog, re.MULTILINE)

    assert [entry for entry in entries if not entry.endswith(".")] == []
    assert len(set(entries)) == len(entries)


DOCS = Path(__file__).parents[1] / "docs"
KIB, MIB, MINUTE = 1024, 1024 * 1024, 60
CACHE, SEMANTIC = CacheConfig(), SemanticConfig(embeddings="e")
UPSTREAM = schema.UpstreamConfig.model_fields
BREAKER, TIMEOUTS, RETRY = schema.BreakerConfig(), schema.TimeoutsConfig(), schema.RetryConfig()


def default(result: Any, name: str) -> Any:
    """Return the default of a parameter."""
    return inspect.signature(result).parameters[name].default


FIGURES: list[tuple[str, str, object, object]] = [
    ("cache.md", "of one line and at most 1024 characters", 1024, semantic.MAX_CHARACTERS),
    (
        "cache.md",
        "`max_temperature` (1; a call without a temperature counts as 1)",
        1,
        SEMANTIC.max_temperature,
    ),
    (
        "cache.md",
        "at most 512 vectors of up to 8192 numbers",
        (512, 8192),
        (semantic.MAX_VECTORS, semantic.MAX_DIMENSIONS),
    ),
    (
        "policies.md",
        "threshold: 0.95, deadline: 1s",
        (0.95, 1),
        (SEMANTIC.threshold, SEMANTIC.deadline),
    ),
    ("cache.md", "a miss, within a quarter of a second", 0.25, cache_in_redis.TIMEOUT_S),
    (
        "cache.md",
        "then no requests for a second",
        1,
        default(cache_in_redis.RedisAnswerStore, "pause_s"),
    ),
    ("errors.md", "cut to 2000 characters", 2000, words.MAX_TEXT),
    ("guard-services.md", "more than 1 MiB", MIB, egress.MAX_RESPONSE_BYTES),
    ("guard-services.md", "at most 1000 findings", 1000, webhook.MAX_FINDINGS),
    ("guard-services.md", "at most 512 tokens are requested", 512, judge.ANSWER_TOKENS),
    ("guard-services.md", "of the analyzer, four at a time", 4, presidio.MAX_REQUESTS),
    ("guard-services.md", "32 in one request", 32, moderation.MAX_TEXTS),
    ("guards.md", "at most 128 characters without white space", 128, strict_json.MAX_NAME_LENGTH),
    ("guards.md", "from 16 KiB on leave the event loop", 16 * KIB, engine.MAX_LOOP_WEIGHT),
    ("ledger.md", "up to 10 000 calls wait", 10_000, writer.MAX_CALLS),
    ("ledger.md", "five times a second at most", 1 / 5, writer.GATHER_S),
    ("ledger.md", "with the next rows or within a minute", MINUTE, writer.IDLE_S),
    ("ledger.md", "for at most 5 seconds", 5, writer.CLOSE_TIMEOUT_S),
    ("ledger.md", "some 10 seconds after they ended", 10, audit.MAX_POLLS * audit.POLL_INTERVAL_S),
    ("ledger.md", "some 500 calls at a time", 500, statements.PRUNE_BATCH),
    ("ledger.md", "every 5 minutes, or less often", 5 * MINUTE, reconcile.INTERVAL_S),
    ("ledger.md", "more than a twentieth of the time", 20, reconcile.MIN_PAUSE_FACTOR),
    ("limits.md", "of the first 32 KiB of a prompt", 32 * KIB, passages.MAX_PROMPT_CHARS),
    ("limits.md", "for a context of 64 KiB", 64 * KIB, evidence.MAX_CONTEXT_CHARS),
    ("limits.md", "parts of one message beyond 64 KiB", 64 * KIB, joined_parts.MAX_JOINED_CHARS),
    ("guards.md", "the first 256 of the next", 256, joined_parts.BOUNDARY_CHARS),
    ("limits.md", "A text beyond 32 KiB is read in pieces", 32 * KIB, guard_documents.BATCH_CHARS),
    ("limits.md", "the first 4096 characters are decoded", 4096, base64_text.MAX_RUN_CHARS),
    ("limits.md", "process paused longer than 30 seconds", 30, limit.LEASE_S),
    ("limits.md", "1024 without a bound", 1024, token_bounds.ASSUMED_TOKENS),
    ("limits.md", "within 10 seconds", 10, server.HEAD_TIMEOUT_S),
    ("limits.md", "at most 1000", 1000, default(client.HttpClient, "connections")),
    ("limits.md", "At most 64 names are looked up", 64, dialing.MAX_LOOKUPS),
    ("logs.md", "names cut to 64 characters", 64, words.MAX_WORD),
    ("logs.md", "the first 32 models of a list", 32, words.MAX_WORDS),
    ("logs.md", "longer than 32 KiB", 32 * KIB, lines.MAX_LINE_BYTES),
    ("dialects.md", "(32, at most 1000)", 1000, words.MAX_MODELS),
    ("logs.md", "Up to 10,000 lines wait", 10_000, lines.MAX_WAITING_LINES),
    ("logs.md", "or 32 MiB of them", 32 * MIB, spool.MAX_BYTES),
    ("logs.md", "contain twenty at once", 20, log.LINES_PER_BURST),
    ("logs.md", "ten a minute after that", 10, log.REFILL_PER_MINUTE),
    ("logs.md", "every 10,000th line", 10_000, decisions.LINES_PER_HASH_EVENT),
    ("logs.md", "A line has at most 256 KiB", 256 * KIB, chain.MAX_LINE_BYTES),
    ("logs.md", "up to 10,000 decisions", 10_000, decisions.MAX_ENTRIES),
    ("metrics.md", "15 minutes after the object is removed", 15 * MINUTE, registry.RETIRED_S),
    ("policies.md", "may have 4 MiB", 4 * MIB, yaml_reader.MAX_FILE_BYTES),
    ("policies.md", "100,000 values and 32 levels", 100_000, yaml_reader.MAX_NODES),
    ("policies.md", "and 32 levels", 32, yaml_reader.MAX_DEPTH),
    ("policies.md", "a folder 1000 files", 1000, load.MAX_ENTRIES),
    ("policies.md", "{connect: 5s,", 5, TIMEOUTS.connect),
    ("policies.md", "first_byte: 10m,", 10 * MINUTE, TIMEOUTS.first_byte),
    ("policies.md", "idle: 10m,", 10 * MINUTE, TIMEOUTS.idle),
    ("policies.md", "total: 10m}", 10 * MINUTE, TIMEOUTS.total),
    ("policies.md", "max_answer_bytes: 64MiB", 64 * MIB, attempt.MAX_RESPONSE_BYTES),
    ("policies.md", "of embeddings 256MiB", 256 * MIB, attempt.MAX_EMBEDDINGS_BYTES),
    ("policies.md", "max_answer_values: 100000", 100_000, UPSTREAM["max_answer_values"].default),
    ("policies.md", "event of more than 8 MiB", 8 * MIB, reader.MAX_EVENT_BYTES),
    ("policies.md", "deeper than 246", 246, large_json.MAX_DEPTH - len(strict_json.WRITER_LEVELS)),
    ("policies.md", "ten times", 10, strict_json.LOGPROBS_FACTOR),
    ("policies.md", "larger than 64 KiB", 64 * KIB, fair_queue.LARGE_BYTES),
    ("policies.md", "propagate_trace: false", False, UPSTREAM["propagate_trace"].default),
    ("policies.md", "{failures: 5, rest: 10s}", (5, 10), (BREAKER.failures, BREAKER.rest)),
    ("policies.md", "times: 2,", 2, RETRY.times),
    ("policies.md", "wait: 250ms,", 0.25, RETRY.wait),
    ("policies.md", "max_wait: 5s}", 5, RETRY.max_wait),
    ("policies.md", "1000 at most", 1000, words.MAX_MODELS),
    ("policies.md", "default 32,", 32, schema.DeploymentConfig.model_fields["max_models"].default),
    ("policies.md", "at most 20% of the requests to an upstream", 0.2, health.RETRY_SHARE),
    ("policies.md", "plus a burst of 10", 10, health.MAX_SAVED_RETRIES),
    ("policies.md", "its maximum output counts as 1024 tokens", 1024, token_bounds.ASSUMED_TOKENS),
    ("policies.md", "wait up to 5 ms for the next one", 0.005, redis_script.LINGER_S),
    ("policies.md", "three round trips in a row", 3, failover.MAX_FAILURES),
    ("policies.md", "for 2 seconds at most", 2, failover.CLOSE_TIMEOUT_S),
    ("policies.md", "leased for 30 seconds", 30, limit.LEASE_S),
    ("policies.md", "renewed every 10", 10, limit.RENEW_S),
    ("policies.md", "cache: {ttl: 1h,", 3600, CACHE.ttl),
    (
        "policies.md",
        "max_bytes: 1MiB, store: memory,",
        (MIB, "memory"),
        (CACHE.max_bytes, CACHE.store),
    ),
    ("policies.md", "by_user: false,", False, CACHE.by_user),
    ("policies.md", "tool_calls: false}", False, CACHE.tool_calls),
    ("policies.md", "max_temperature: 1.0", 1.0, SEMANTIC.max_temperature),
    ("policies.md", "It knows the last 1000 calls", 1000, review.MAX_CALLS),
    ("policies.md", "and the last 8 revisions", 8, store.MAX_REVISIONS),
    ("policies.md", "with this `status` (403)", 403, schema.RefusalConfig(message="No.").status),
    ("policies.md", "A value is 1 to 64 visible characters", 64, keys.MAX_TAG_CHARS),
    ("policies.md", "above 1000 USD", 1000, check.MAX_PLAUSIBLE_USD),
    ("policies.md", "checked for changes four times a second", 1 / 4, watch.WATCH_INTERVAL_S),
    ("policies.md", "Two reloads start at least a second apart", 1, store.MIN_RELOAD_INTERVAL_S),
    ("settings.md", "after 0.1 s for counters", 0.1, limits_in_redis.TIMEOUT_S),
    ("settings.md", "and 0.25 s for the cache", 0.25, cache_in_redis.TIMEOUT_S),
    ("runbooks/availability.md", "keeps the last 1000 calls", 1000, review.MAX_CALLS),
    ("runbooks/circuit-open.md", "times in a row (default 5)", 5, BREAKER.failures),
    ("runbooks/guard-fails.md", "guards search in two threads", 2, GUARD_THREADS),
    ("runbooks/telemetry-lost.md", "up to 10 000 calls wait", 10_000, writer.MAX_CALLS),
    ("runbooks/writer-fails.md", "once a minute at most", MINUTE, telemetry.LOG_EVERY_S),
    ("traces.md", "At most 2048 spans wait", 2048, BatchBounds().max_spans),
    ("traces.md", "for at most a second", 1000, BatchBounds().delay_ms),
    ("traces.md", "batches are of 512", 512, BatchBounds().max_batch),
    ("traces.md", "no batch begins after 3 seconds", 3, span_queue.CLOSE_TIMEOUT_S),
    ("traces.md", "up to 50 a second", 50, trace.CALLS_PER_S),
    ("traces.md", "1 % of the calls beyond", 0.01, trace.MIN_SHARE),
]


@for_each(
    ("page", "words", "figure", "product"), FIGURES, ids=[f"{row[0]}: {row[1]}" for row in FIGURES]
)
def test_figure_matches_product(page: str, words: str, figure: object, product: object) -> None:
    text = re.sub(r"\s+", " ", (DOCS / page).read_text())

    assert words in text
    assert figure == product
