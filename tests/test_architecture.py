"""Rules of the house that no linter knows: sizes, mirrors, imports, and words that stay out."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[1]
MODULES = sorted((TOP / "proxy").rglob("*.py"))
MAX_FILE, MAX_FUNCTION = 400, 60

UNTESTED = {
    "proxy/__init__.py": "a version",
    "proxy/__main__.py": "every command of tests/test_cli.py goes through it",
    "proxy/app/__init__.py": "composition: every test with a running proxy runs it",
    "proxy/app/libraries.py": "tests/edge/test_encoded.py has a library log what it must not",
    "proxy/app/measuring.py": "tests/emit/test_metrics.py scrapes what it joins",
    "proxy/app/site.py": "composition: every test with a running proxy runs it",
    "proxy/app/stores.py": "composition: every test with a running proxy runs it",
    "proxy/app/telling.py": "composition: every test with a running proxy runs it",
    "proxy/app/vectors.py": "tests/policy/test_compile_cache.py runs it with the real model",
    "proxy/cache/wording.py": "lists; tests/cache/test_gist.py reads questions by them",
    "proxy/demo/examples.py": "tests/demo/test_init.py runs what it prints",
    "proxy/dialects/base.py": "shapes without behaviour",
    "proxy/edge/__init__.py": "tests/edge/test_request.py and test_exchange.py drive it",
    "proxy/edge/headers.py": "tests/edge/test_request.py reads them off the wire",
    "proxy/edge/refusals.py": "values; tests/edge/test_server.py and test_bodies.py are told them",
    "proxy/emit/attributes.py": "tests/emit/test_golden_spans.py draws what it says",
    "proxy/emit/counting.py": "tests/emit/test_metrics.py scrapes what it counts",
    "proxy/emit/declared/__init__.py": "tests/emit/test_metrics.py scrapes what it declares",
    "proxy/emit/declared/axes.py": "tests/emit/test_registry.py bounds series by them",
    "proxy/emit/declared/calls.py": "names",
    "proxy/emit/declared/metric.py": "tests/emit/test_registry.py bounds series by it",
    "proxy/emit/declared/money.py": "names",
    "proxy/emit/declared/policy.py": "names",
    "proxy/emit/declared/process.py": "names",
    "proxy/emit/declared/upstreams.py": "names",
    "proxy/emit/profiles.py": "tests/emit/test_golden_spans.py draws what each adds",
    "proxy/emit/semconv.py": "names",
    "proxy/errors.py": "each error is tested where it is raised",
    "proxy/guardrails/asked.py": "tests/policy/test_compile_guards.py makes every kind",
    "proxy/guardrails/eye.py": "tests/guardrails/test_window.py and test_looking.py look by it",
    "proxy/guardrails/kinds.py": "tests/policy/test_compile_guards.py makes every kind",
    "proxy/policy/compile_capture.py": "tests/guardrails/test_capture.py captures by it",
    "proxy/policy/around.py": "shapes without behaviour",
    "proxy/ledger/reading.py": "tests/ledger/test_spending.py and test_audit.py read by it",
    "proxy/ledger/schema.py": "tests/ledger/test_sqlite.py makes its tables",
    "proxy/ledger/store.py": "shapes without behaviour",
    "proxy/policy/legs.py": "tests/adversary/test_spellings_of_models.py asks in every way",
    "proxy/policy/parts.py": "tests/adversary/test_lists_of_models.py joins them at random",
    "proxy/policy/explanation.py": "tests/policy/test_explain.py reads both of its forms",
    "proxy/policy/schema/__init__.py": "tests/policy/test_load.py has a file for each rule",
    "proxy/policy/schema/cache.py": "tests/policy/test_cache.py reads it",
    "proxy/policy/schema/capture.py": "tests/guardrails/test_capture.py reads it",
    "proxy/policy/schema/deployments.py": "tests/policy/test_load.py has a file for each rule",
    "proxy/policy/schema/guards.py": "tests/policy/test_compile_guards.py reads every kind",
    "proxy/policy/schema/guards_asking.py": "tests/policy/test_compile_guards.py reads every kind",
    "proxy/policy/schema/keys.py": "tests/policy/test_load.py has a file for each rule",
    "proxy/policy/schema/limits.py": "tests/policy/test_load.py has a file for each rule",
    "proxy/policy/schema/prices.py": "tests/policy/test_load.py has a file for each rule",
    "proxy/policy/schema/rules.py": "tests/policy/test_load.py has a file for each rule",
    "proxy/policy/schema/scalars.py": "tests/policy/test_load.py has a file for each rule",
    "proxy/policy/schema/tags.py": "tests/policy/test_load.py has a file for each rule",
    "proxy/policy/schema/upstreams.py": "tests/policy/test_load.py has a file for each rule",
    "proxy/policy/snapshot.py": "values; tests/policy/test_init.py decides by them",
    "proxy/policy/suppose.py": "tests/policy/test_explain.py asks about its calls",
    "proxy/policy/source.py": "tests/policy/test_load.py has a file for each refusal",
    "proxy/ports.py": "shapes without behaviour",
    "proxy/prices/__init__.py": "a word on its files",
    "proxy/rehearsal/answers.py": "tests/rehearsal/test_init.py plays all of them",
    "proxy/rehearsal/cases.py": "tests/rehearsal/test_init.py reads cases, good and wrong",
    "proxy/rehearsal/judging.py": "tests/rehearsal/test_init.py has a case for each difference",
    "proxy/rehearsal/report.py": "tests/rehearsal/test_init.py reads both of its forms",
    "proxy/rehearsal/stage.py": "tests/rehearsal/test_init.py plays on it",
    "proxy/types/budget.py": "a value; tests/ledger/test_budgets.py asks by it",
    "proxy/types/guard.py": "tests/guardrails/test_rule.py tries its rules",
    "proxy/types/__init__.py": "values without behaviour",
    "proxy/types/target.py": "values; tests/policy/test_init.py decides by them",
    "proxy/upstream/errand.py": "tests/upstream/test_retry.py runs out of time by it",
    "proxy/upstream/forwarded.py": "tests/upstream/test_client.py breaks answers in every way",
    "proxy/upstream/listing.py": "tests/sdks/test_drivers.py lists models",
    "proxy/upstream/reply.py": "shapes without behaviour",
    "proxy/upstream/together.py": "tests/upstream/test_init.py asks several models",
    "proxy/upstream/wire/__init__.py": "a word on its files",
}


def shown(path: Path) -> str:
    return path.relative_to(TOP).as_posix()


@pytest.mark.parametrize("path", MODULES, ids=shown)
def test_a_file_and_its_functions_stay_small(path: Path) -> None:
    text = path.read_text()
    functions = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]

    assert len(text.splitlines()) < MAX_FILE
    assert [
        node.name for node in functions if (node.end_lineno or 0) - node.lineno >= MAX_FUNCTION
    ] == []


@pytest.mark.parametrize("path", MODULES, ids=shown)
def test_a_file_has_the_test_of_its_name_or_a_reason(path: Path) -> None:
    inside = path.relative_to(TOP / "proxy")
    name = "init" if inside.stem == "__init__" else inside.stem
    mirror = TOP / "tests" / inside.parent / f"test_{name}.py"

    assert mirror.exists() != (shown(path) in UNTESTED), mirror


def test_no_reason_outlives_its_file() -> None:
    assert UNTESTED.keys() <= {shown(path) for path in MODULES}


@pytest.mark.parametrize("path", MODULES, ids=shown)
def test_a_file_begins_by_saying_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text()))


@pytest.mark.timeout(400)  # a minute, on a machine with nothing else to do
def test_every_module_imports_alone_without_a_warning() -> None:
    names = [
        ".".join(path.relative_to(TOP).with_suffix("").parts).removesuffix(".__init__")
        for path in MODULES
        if path.name != "__main__.py"
    ]
    script = """
import importlib, os, sys
import aiohttp.web, click, jsonschema_rs, orjson, phonenumbers, pydantic, re2, structlog, yaml
import opentelemetry.exporter.otlp.proto.http.trace_exporter, opentelemetry.sdk.trace.export
for name in sys.argv[1:]:
    if os.fork() == 0:
        importlib.import_module(name)
        os._exit(0)
    if os.wait()[1]:
        sys.exit(name)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, *names],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr


def tracked() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=TOP, capture_output=True, text=True, check=True
    )
    return listed.stdout.split()


def test_locks_hold_hashes_and_no_address() -> None:
    for lock in (TOP / "requirements").glob("*.lock"):
        text = lock.read_text()
        assert "--hash=sha256:" in text
        assert not re.search(r"https?://|--index|--find-links|file:", text), lock


@pytest.mark.parametrize("suffix", [".py", ".md", ".yaml", ".toml", "Makefile"])
def test_no_file_names_a_place_of_one_machine(suffix: str) -> None:
    places = re.compile(r"/(?:home|root|Users|work|tmp)/\w|py" + r"pi\.org|pythonh" + "osted")
    for name in tracked():
        if name.endswith(suffix):
            found = places.search((TOP / name).read_text())
            assert found is None, f"{name}: {found}"
