"""Rules that linters do not check: file sizes, mirrored tests, import cycles, machine paths."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

from tests.for_each import for_each

TOP = Path(__file__).parents[1]
MODULES = sorted((TOP / "proxy").rglob("*.py"))
MAX_FILE, MAX_FUNCTION = 400, 60

UNTESTED = {
    "proxy/guards/stream/frame_texts.py": "test_filter.py reads and edits frames by it",
    "proxy/guards/stream/part_stream.py": "test_filter.py; tests/adversary/test_waiting_frames.py",
    "proxy/guards/text/json_strings.py": "test_arguments.py cuts strings by it",
    "proxy/guards/text/hosts.py": "tests/guards/kinds/test_urls.py finds hosts by it",
    "proxy/guards/text/member_names.py": "tests/guards/text/test_walk.py walks by its tables",
    "proxy/guards/text/link_addresses.py": "tests/guards/stream/test_restored_links.py asks it",
    "proxy/dialects/responses/composer.py": "tests/dialects/responses/test_writer.py writes by it",
    "proxy/dialects/vendors/enkrypt.py": "tests/dialects/vendors/test_vendors.py looks it up",
    "proxy/__main__.py": "every command of tests/cli/test_init.py goes through it",
    "proxy/app/admin.py": "composition: every test with a running proxy runs it",
    "proxy/app/context.py": "composition: every test with a running proxy runs it",
    "proxy/app/stores.py": "composition: every test with a running proxy runs it",
    "proxy/app/tracing.py": "composition: tests/telemetry/test_otlp.py runs it",
    "proxy/call/facts.py": "a value: tests/call/test_record.py",
    "proxy/cli/demo.py": "tests/demo/test_init.py runs its command",
    "proxy/cli/ledger.py": "tests/cli/test_init.py runs its commands",
    "proxy/cli/parameters.py": "tests/cli/test_init.py runs its commands",
    "proxy/cli/policies.py": "tests/cli/test_init.py runs its commands",
    "proxy/console/overview.py": "tests/console/test_pages.py reads the page",
    "proxy/console/policies.py": "tests/console/test_pages.py reads the page",
    "proxy/console/trial.py": "tests/console/test_pages.py tries requests",
    "proxy/demo/examples.py": "tests/demo/test_init.py runs what it prints",
    "proxy/demo/model_server.py": "tests/demo/test_model.py starts it",
    "proxy/dialects/base.py": "protocols without behavior",
    "proxy/dialects/requests/state_request.py": "tests/dialects/responses/test_stored.py",
    "proxy/types/endpoints.py": "a value; tests/dialects/requests/test_upstream_request.py",
    "proxy/telemetry/catalog/__init__.py": "tests/telemetry/test_metrics.py scrapes all of it",
    "proxy/telemetry/catalog/labels.py": "tests/telemetry/test_registry.py bounds series by them",
    "proxy/telemetry/catalog/table.py": "names",
    "proxy/errors/field_problems.py": "messages: tests/dialects",
    "proxy/errors/wire.py": "tests/server/test_request.py sends each of them",
    "proxy/types/partial_matcher.py": "a protocol: tests/guards/matching/test_partial_match.py",
    "proxy/guards/stream/text_filter.py": "protocols without behavior",
    "proxy/limits/kinds/__init__.py": "tests/recipes/test_recipes.py adds one",
    "proxy/limits/kinds/usd.py": "tests/limits/test_claims.py claims every mix of tokens",
    "proxy/policy/compile/context.py": "tests/policy/compile/test_init.py compiles with it",
    "proxy/policy/decide/model_calls.py": "tests/adversary/test_spellings_of_models.py",
    "proxy/policy/schema/deployments.py": "tests/policy/files/test_load.py has a case per rule",
    "proxy/policy/schema/limits.py": "tests/policy/files/test_load.py has a case per rule",
    "proxy/policy/schema/prices.py": "tests/policy/files/test_load.py has a case per rule",
    "proxy/policy/schema/rules.py": "tests/policy/files/test_load.py has a case per rule",
    "proxy/policy/schema/upstreams.py": "tests/policy/files/test_load.py has a case per rule",
    "proxy/policytest/answers.py": "tests/policytest/test_init.py runs all of them",
    "proxy/upstream/__init__.py": "tests/upstream/test_client.py calls upstreams through it",
    "proxy/types/detections.py": "values: tests/dialects/test_findings.py",
}


def relative_path(path: Path) -> str:
    return path.relative_to(TOP).as_posix()


def size_problems(path: Path) -> list[str]:
    """Return the path of a file that is too long, and the names of its functions that are."""
    text = path.read_text()
    long_functions = [
        node.name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= MAX_FUNCTION
    ]
    too_long = ["the file"] if len(text.splitlines()) >= MAX_FILE else []
    return [f"{relative_path(path)}: {name}" for name in too_long + long_functions]


def test_files_and_functions_are_within_size_limits() -> None:
    assert [problem for path in MODULES for problem in size_problems(path)] == []


def has_code(path: Path) -> bool:
    """Return True if a file has more than a docstring."""
    return len(ast.parse(path.read_text()).body) > 1


def path_of_test(path: Path) -> Path:
    """Return the path of the test file that mirrors a module."""
    inside = path.relative_to(TOP / "proxy")
    name = "init" if inside.stem == "__init__" else inside.stem
    return TOP / "tests" / inside.parent / f"test_{name}.py"


@cache
def imported_anywhere(path: Path) -> frozenset[str]:
    """Return the modules that a file may import, at its top or within a function."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            names |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(names)


def has_test(path: Path) -> bool:
    """Return True if a test has the name of a file, or a test of its package imports it."""
    folder = path_of_test(path).parent
    tests = folder.glob("*.py") if folder == TOP / "tests" else folder.rglob("*.py")
    return path_of_test(path).exists() or any(
        NAMES[path] in imported_anywhere(test) for test in tests
    )


def test_every_module_has_a_test_or_an_exemption() -> None:
    untested = {relative_path(path) for path in MODULES if has_code(path) and not has_test(path)}

    assert untested == UNTESTED.keys()


def test_every_file_has_a_module_docstring() -> None:
    assert [
        relative_path(path)
        for path in MODULES
        if not ast.get_docstring(ast.parse(path.read_text()))
    ] == []


def imported_objects(room: str, path: Path) -> Iterator[object]:
    """Yield the objects that a file imports from a package."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(room):
            module = importlib.import_module(node.module or "")
            yield from (getattr(module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.startswith(room)]
            yield from map(importlib.import_module, names)


def test_policy_review_takes_only_decide_from_decisions() -> None:
    files = (TOP / "proxy/policy/review").glob("*.py")
    taken_items = [item for path in files for item in imported_objects("proxy.policy.decide", path)]
    deciding = [item for item in taken_items if inspect.isroutine(item) or inspect.ismodule(item)]

    assert {item.__name__ for item in deciding} == {"decide"}


NAMES = {
    path: ".".join(path.relative_to(TOP).with_suffix("").parts).removesuffix(".__init__")
    for path in MODULES
}


def module_and_packages(name: str) -> set[str]:
    """Return a module and its parent packages, all of which Python runs to import it."""
    parts = name.split(".")
    return {".".join(parts[:end]) for end in range(1, len(parts) + 1)}


def imports_of(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports at its top, without its own parent packages."""
    known_names = set(NAMES.values())
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        expected: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            expected = [name if name in known_names else node.module for name in inside]
        elif isinstance(node, ast.Import):
            expected = [alias.name for alias in node.names]
        for name in known_names.intersection(expected):
            yield from {name} | module_and_packages(name) - module_and_packages(NAMES[path])


def test_imports_have_no_cycles() -> None:
    graph = {name: set(imports_of(path)) - {name} for path, name in NAMES.items()}

    assert len(list(TopologicalSorter(graph).static_order())) == len(MODULES)


def test_every_module_imports_without_warnings() -> None:
    script = "import importlib, sys\nfor name in sys.argv[1:]:\n    importlib.import_module(name)"
    names = [name for name in NAMES.values() if not name.endswith("__main__")]
    process = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, *names],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=False,
    )

    assert process.returncode == 0, process.stderr


def tracked_files() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=TOP, capture_output=True, text=True, check=True
    )
    return listed.stdout.split()


def test_locks_contain_hashes_and_no_urls() -> None:
    for lock in (TOP / "requirements").glob("*.lock"):
        text = lock.read_text()
        assert "--hash=sha256:" in text
        assert not re.search(r"https?://|--index|--find-links|file:", text), lock


@for_each("suffix", [".py", ".md", ".yaml", ".toml", "Makefile"])
def test_no_file_contains_a_path_of_one_machine(suffix: str) -> None:
    places = re.compile(r"/(?:home|root|Users|work|tmp)/\w|py" + r"pi\.org|pythonh" + "osted")
    for name in tracked_files():
        if name.endswith(suffix):
            match = places.search((TOP / name).read_text())
            assert match is None, f"{name}: {match}"
