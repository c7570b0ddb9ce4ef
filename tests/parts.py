"""Assigns markers to tests by the parts that they need, and starts the longest tests first.

The markers are in pyproject.toml. ``make test-fast`` excludes tests with one, except ``core``. If
tests are selected by markers, one that starts a program without a marker fails.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping
from inspect import unwrap
from types import CodeType, FunctionType

import pytest

FIXTURES: Mapping[str, str] = {
    "drive": "sdks",
    "examples": "heavy",
    "history": "prometheus",
    "model": "model",
}
NAMES: Mapping[str, str] = {
    "Popen": "process",
    "aiohttp_raw_server": "sockets",
    "create_subprocess_exec": "process",
    "forked": "process",
    "getfixturevalue": "redis",  # fixtures selected by parameters
    "grown": "heavy",
    "growth": "heavy",
    "perf_counter": "heavy",
    "ratio": "heavy",
    "running_cluster": "redis",
    "running_proxy": "sockets",
    "running_server": "redis",
    "scripted_upstream": "sockets",
    "settrace": "heavy",
    "subprocess": "process",
    "thread_time": "heavy",
    "tracemalloc": "heavy",
}
"""Markers by names in the code of a test, of its fixtures and of functions that they call."""
NODE_IDS: tuple[tuple[str, str], ...] = (
    ("tests/adversary/", "heavy"),
    ("tests/adversary/", "process"),
    ("tests/dialects/chat/test_merging.py::test_many_pieces_are_joined", "heavy"),
    ("tests/guards/matching/test_partial_match.py::test_match_of_a_rule", "heavy"),
    ("tests/guards/stream/test_word_scanner.py::test_each_kind_of_secret_is_masked", "heavy"),
    ("tests/guards/text/test_documents.py::test_plain_reader_agrees", "heavy"),
    ("tests/dashboards/test_boards.py::test_expressions_use_declared_metrics", "heavy"),
    ("tests/dashboards/test_rules.py", "prometheus"),
    ("tests/dashboards/test_live.py", "prometheus"),
    ("tests/demo/", "process"),
    ("tests/server/test_trailers.py", "sockets"),
    ("tests/telemetry/test_registry.py::test_random_labels", "heavy"),
    ("tests/guards/test_coverage.py", "heavy"),
    ("tests/guards/test_engine.py::test_body_of_many_small_texts", "heavy"),
    ("tests/guards/text/test_walk.py::test_depth_is_unbounded", "heavy"),
    ("tests/guards/whole/test_text_batches.py::test_every_guard_finds", "heavy"),
    ("tests/guards/whole/test_text_batches.py::test_readings_take_bounded_memory", "heavy"),
    ("tests/guards/whole/test_text_batches.py::test_small_texts_share_a_batch", "heavy"),
    ("tests/guards/whole/test_threads.py", "heavy"),
    ("tests/policy/files/test_validation.py::test_part_of_wrong_type", "heavy"),
    ("tests/policy/files/test_validation.py::test_schema_errors_of_all_files", "heavy"),
    ("tests/policy/files/test_yaml_reader.py::test_hostile_yaml", "heavy"),
    ("tests/policy/schema/test_init.py::test_files_valid_for_editors", "heavy"),
    ("tests/policy/test_store.py::test_reloads_disturb", "heavy"),
    ("tests/prices/test_source.py", "heavy"),
    ("tests/recipes/", "process"),
    ("tests/sdks/", "sdks"),
    ("tests/test_claims.py", "heavy"),
    ("tests/test_pipeline.py::test_disconnect_before_response", "core"),
    ("tests/test_pipeline.py::test_invalid_field", "core"),
    ("tests/test_pipeline.py::test_success_leaves_one", "core"),
    ("tests/test_vocabulary.py", "heavy"),
    ("tests/tools/test_compat.py", "process"),
    ("tests/fields/test_field_table.py::test_all_forms_of_ascii_are_folded", "heavy"),
    ("tests/upstream/test_health.py::test_state_of", "heavy"),
)
"""Markers by the start of the ids of tests."""
LONGEST = (
    "tests/sdks/",
    "tests/demo/test_messages.py",
    "tests/adversary/test_growth.py",
    "tests/adversary/test_stream_latency.py",
    "tests/adversary/test_large_responses.py",
    "tests/policy/test_cold_starts.py",
    "tests/test_call_budget.py",
    "tests/adversary/test_stored_data.py",
    "tests/adversary/test_combined_features.py",
    "tests/recipes/test_recipes.py",
    "tests/dashboards/test_live.py",
    "tests/policy/test_reload_under_load.py",
    "tests/adversary/test_large_bodies.py",
    "tests/demo/test_init.py",
)
"""Files with tests of ten seconds or more, which start first so that no worker ends with one.

Tests of SDKs are first, because each worker that runs one imports all SDKs.
"""
PROGRAMS = frozenset({"model", "process", "prometheus", "redis", "sdks"})
"""The markers of tests that may start programs."""


def get_position(name: str) -> int:
    """Return the position of a test by its id. The longest ones run first."""
    matches = (index for index, start in enumerate(LONGEST) if name.startswith(start))
    return next(matches, len(LONGEST))


def list_markers(name: str, fixtures: Collection[str], used: Collection[str]) -> Iterator[str]:
    """Yield the markers of a test by its id, its fixtures and the names in its code."""
    yield from {FIXTURES[fixture] for fixture in fixtures if fixture in FIXTURES}
    yield from {NAMES[item] for item in used if item in NAMES}
    yield from (marker for start, marker in NODE_IDS if name.startswith(start))


class CodeNames:
    """Finds the names in the code of test functions, each once."""

    def __init__(self) -> None:
        self._known: dict[FunctionType, frozenset[str]] = {}

    def find(self, function: object) -> frozenset[str]:
        """Return the names in a function and in the functions of ``tests`` that it calls."""
        function = unwrap(function) if callable(function) else function
        if not isinstance(function, FunctionType) or not function.__module__.startswith("tests."):
            return frozenset()
        if function not in self._known:
            self._known[function] = frozenset()  # for recursion
            names = set(_names(function.__code__))
            calls = [function.__globals__.get(name) for name in names]
            self._known[function] = frozenset(names).union(*map(self.find, calls))
        return self._known[function]


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names in code, including nested functions."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


class RunningTest:
    """Plugin of pytest that marks and sorts tests, and checks the programs that a test starts."""

    def __init__(self) -> None:
        self._item: pytest.Item | None = None
        self._code_names = CodeNames()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            for marker in self._markers(item):
                item.add_marker(marker)
        items.sort(key=lambda item: get_position(item.nodeid))

    def _markers(self, item: pytest.Item) -> Iterator[str]:
        if not isinstance(item, pytest.Function):
            return
        drawn = getattr(item.function, "hypothesis", None)
        if drawn is not None:
            yield "heavy"
        fixtures = item._fixtureinfo.name2fixturedefs
        functions = [item.function if drawn is None else drawn.inner_test]
        functions += [def_item.func for fixture in fixtures.values() for def_item in fixture]
        used = frozenset[str]().union(*map(self._code_names.find, functions))
        yield from list_markers(item.nodeid, fixtures, used)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._item = item
        try:
            return (yield)
        finally:
            self._item = None

    def check_program(self, event: str, arguments: tuple[object, ...]) -> None:
        """Raise ``AssertionError`` if the running test starts a program without a marker."""
        if event != "subprocess.Popen" or self._item is None:
            return
        if PROGRAMS.isdisjoint(mark.name for mark in self._item.iter_markers()):
            raise AssertionError(f"starts {arguments[0]} without a marker: see tests/parts.py")
