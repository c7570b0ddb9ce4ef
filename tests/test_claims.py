"""Pages name only existing metrics, panels, commands, variables, headers and permissions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from dashboards.build import BOARDS
from proxy.cache.redis import RedisAnswerStore
from proxy.cli import main
from proxy.limits.stores.redis import RedisStore
from proxy.runtime.redis import create_client
from proxy.runtime.redis_settings import parse_redis_url
from proxy.server import admin
from proxy.telemetry.catalog.table import METRICS as CATALOG
from tests.cache.stores import Clock, StoreEventLog, flush
from tests.for_each import for_each
from tests.limits.sample_limits import MONTH, PLACES, REQUESTS, TOKENS, claims
from tests.servers import Server, running_server

TOP = Path(__file__).parents[1]
PAGES = sorted(
    [
        *(TOP / name for name in ("README.md", "AGENTS.md", "CONTRIBUTING.md", "SECURITY.md")),
        *(TOP / "docs").rglob("*.md"),
        *(TOP / "deploy").glob("*.md"),
        *(TOP / "dashboards").rglob("README.md"),
    ]
)
RUNBOOKS = sorted((TOP / "docs/runbooks").glob("*.md"))
EXAMPLES = frozenset({"x-region", "x-session"})  # example names of an operator's headers


def text_of(folder: str, *suffixes: str) -> str:
    files = sorted(path for path in (TOP / folder).rglob("*") if path.suffix in suffixes)
    return "\n".join(path.read_text() for path in files)


CODE = text_of("proxy", ".py", ".lua")
OPERATED = CODE + text_of("deploy", ".yaml") + (TOP / "deploy/Dockerfile").read_text()
RULES = TOP / "dashboards/rules"
pages = for_each("page", PAGES, ids=lambda page: page.name)


def rules(kind: str) -> set[str]:
    """Return the names of all rules of a kind, ``alert`` or ``record``."""
    read = [yaml.safe_load(path.read_text()) for path in sorted(RULES.glob("*.yaml"))]
    every = [rule for file in read for group in file["groups"] for rule in group["rules"]]
    return {rule[kind] for rule in every if kind in rule}


METRICS = {
    metric.name + end
    for metric in CATALOG
    for end in ("", *(("_bucket", "_sum", "_count") if metric.kind == "histogram" else ()))
}
PANELS = {panel.title for board in BOARDS.values() for row in board.rows for panel in row.panels}


@pages
def test_metrics_on_pages_are_declared(page: Path) -> None:
    recorded = {part for name in rules("record") for part in name.split(":")}
    for name in re.findall(r"\bheadrace_[a-z0-9_]+[a-z0-9]", page.read_text()):
        package = name in ("headrace_log",)
        assert package or name in METRICS | recorded, name


@pages
def test_alerts_on_pages_are_rules(page: Path) -> None:
    for name in re.findall(r"\bHeadrace[A-Z][A-Za-z]+", page.read_text()):
        assert name in rules("alert"), name


@for_each("page", RUNBOOKS, ids=lambda page: page.name)
def test_panels_and_dashboards_in_runbooks_exist(page: Path) -> None:
    """Bold words are titles of panels: after a dashboard's name, panels of that dashboard."""
    on = {
        board.title: {panel.title for row in board.rows for panel in row.panels}
        for board in BOARDS.values()
    }
    for title in re.findall(r"\*\*([^*\n]+)\*\*", page.read_text()):
        assert title in PANELS or page.name == "README.md", title
    for point in re.split(r"\n(?=\d\. |- |\n)", page.read_text()):
        for title, words in re.findall(
            r"(?<!\*)\*(Headrace: [^*\n]+)\*(?!\*)([^\0]*?)(?=\*Headrace: |\Z)", point
        ):
            assert set(re.findall(r"\*\*([^*\n]+)\*\*", words)) <= on[title], title


@pages
def test_variables_on_pages_are_read(page: Path) -> None:
    for name in re.findall(r"\bHEADRACE_[A-Z_]+[A-Z]", page.read_text()):
        assert re.search(rf"\b{name}\b", OPERATED), name


@pages
def test_headers_on_pages_are_sent_or_read(page: Path) -> None:
    for name in re.findall(r"(?<![\w.-])x-[a-z][a-z0-9-]*[a-z0-9](?!-?\*)", page.read_text()):
        assert name in CODE or name in EXAMPLES, name


def code_of(page: Path) -> str:
    """Return the code of a page: fenced and indented blocks, and spans in backticks."""
    text = page.read_text()
    blocks = re.findall(r"```[a-z ]*\n(.*?)```", text, re.DOTALL)
    lines = re.findall(r"^    (.*)$", text, re.MULTILINE)
    return "\n".join([*blocks, *lines, *re.findall(r"`([^`\n]+)`", text)])


@pages
def test_make_targets_on_pages_exist(page: Path) -> None:
    makefile = (TOP / "Makefile").read_text()
    for name in re.findall(r"^[$ ]*make ([a-z-]+)", code_of(page), re.MULTILINE):
        assert re.search(rf"^{name}:", makefile, re.MULTILINE), name


@pages
def test_modules_run_on_pages_exist(page: Path) -> None:
    for name in re.findall(r"python -m ((?:bench|dashboards|tools)[a-z_.]*)", code_of(page)):
        path = TOP / name.replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), name


@pages
def test_admin_paths_on_pages_are_served(page: Path) -> None:
    served = {path.split("/")[1] for path in admin.LISTED_PATHS}
    ports = r"(?:\$ADMIN|http://ADMIN|(?:localhost|127\.0\.0\.1):80[89]1)"
    for name in re.findall(rf"{ports}/([a-z]+)", code_of(page)):
        assert name in served, name


@pages
def test_files_on_pages_exist(page: Path) -> None:
    places = "proxy|docs|deploy|tests|dashboards|policies|bench|tools"
    names = re.findall(rf"`((?:{places})/[^`\s*{{]+)`", page.read_text())
    suffixes = "py|json|lua|sh"
    names += re.findall(rf"(?<![\w/.])((?:{places})/[\w./-]+\.(?:{suffixes}))", code_of(page))
    for name in names:
        assert (TOP / name).exists() or "NAME" in name, name


TROUBLES = re.findall(r"^### `(.*)`$", (TOP / "docs/troubleshooting.md").read_text(), re.MULTILINE)
MESSAGES = re.sub(r"['\"]\s*f?['\"]", "", CODE).replace('\\"', '"')


@for_each("title", TROUBLES)
def test_messages_of_troubleshooting_are_in_the_code(title: str) -> None:
    """The page writes inserted values as `...`. A summary and its subject may be two literals."""
    for part in title.split(" ... "):
        assert part.removeprefix("Previous response ") in MESSAGES, part


def commands(command: click.Command, name: str = "") -> Iterator[tuple[str, set[str]]]:
    """Yield each command with its flags."""
    yield name, {flag for param in command.params for flag in (*param.opts, *param.secondary_opts)}
    if not isinstance(command, click.Group):
        return
    context = click.Context(command)
    for word in command.list_commands(context):
        inner = command.get_command(context, word)
        assert inner is not None
        assert inner.name == word
        yield from commands(inner, f"{name} {word}".strip())


COMMANDS = dict(commands(main))


def commands_on(page: Path) -> Iterator[list[str]]:
    """Yield the arguments of each `headrace` command on a page."""
    text = page.read_text()
    for span in [*re.findall(r"`([^`\n]+)`", text), *text.splitlines()]:
        if match := re.match(r"(?:[$ ]*(?:[A-Z_]+=\S+ +)*)headrace +([a-z].*)", span):
            yield match[1].split()


@pages
def test_commands_and_flags_on_pages_exist(page: Path) -> None:
    for words in commands_on(page):
        name = ""
        while words and f"{name} {words[0]}".strip() in COMMANDS:
            name = f"{name} {words.pop(0)}".strip()
        assert name, words
        for flag in words:
            if re.fullmatch(r"--?[a-z][a-z-]*", flag):
                assert flag in COMMANDS[name] | {"--help"}, f"{name} {flag}"


SETTINGS = (TOP / "docs/settings.md").read_text()


def documented_acls() -> tuple[list[str], list[str]]:
    """Return the documented ACL rules for the cache alone, and for the cache and limits."""
    match = re.search(
        r"ACL's user needs `([^`]+)` for the cache, for limits `([^`]+)` too",
        " ".join(SETTINGS.split()),
    )
    assert match is not None
    return match[1].split(), [*match[1].split(), *match[2].split()]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with running_server(tmp_path / "redis") as running:
        yield running


def url_of_user(server: Server, rights: list[str]) -> str:
    """Create a Redis user with these ACL rules and return its URL."""
    server.command("ACL", "SETUSER", "headrace", "reset", "on", f">{server.port}", *rights)
    return f"redis://headrace:{server.port}@127.0.0.1:{server.port}/0"


async def test_documented_acl_suffices_for_the_cache(server: Server) -> None:
    event = StoreEventLog()
    url = url_of_user(server, documented_acls()[0])

    async with RedisAnswerStore(
        create_client(parse_redis_url(url).urls, 1.0), Clock(), event
    ) as store:
        store.save(b"k" * 32, b"value", 60)
        await flush(store)
        assert await store.get(b"k" * 32) == b"value"


async def test_documented_acl_suffices_for_limits(server: Server) -> None:
    url = url_of_user(server, documented_acls()[1])

    async with RedisStore(create_client(parse_redis_url(url).urls, 5.0), Clock()) as store:
        requests = claims((REQUESTS, 1), (TOKENS, 5), (PLACES, 1), (MONTH, 7))
        assert (await store.admit("one", requests)).admitted
        await store.settle("one", [1, 4, 0, 6])
        remaining = await store.admit("two", requests)
        await store.renew()
        await store.ping()
        assert [await store.claim_bill("a", item) for item in ("one", "two")] == [True, False]
    assert [standing.used for standing in remaining.counter_states][-1] == 13


def test_documented_acl_allows_commands_of_the_script() -> None:
    calls = re.findall(r"call\('([A-Z]+)'", (TOP / "proxy/limits/stores/counters.lua").read_text())

    assert {f"+{name.lower()}" for name in calls} <= set(documented_acls()[1])
