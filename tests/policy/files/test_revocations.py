"""Revocations apply despite any defect of the folder, or are reported as unread."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from proxy.policy.files import load
from proxy.policy.files.load import read_revocations
from proxy.policy.files.yaml_reader import MAX_DEPTH, MAX_FILE_BYTES, MAX_NODES
from tests.cache.stores import until
from tests.conftest import policies_for, running_proxy
from tests.doubles import ScriptedUpstream
from tests.for_each import for_each
from tests.policy.test_store import StoreOverFolder
from tests.test_pipeline import ROUTES

ALICE = f"{'a' * 64}"
GOOD = f"""\
upstreams: {{up: {{dialect: openai, base_url: 'https://api.example.test'}}}}
deployments: {{chat: {{targets: [{{upstream: up, model: m}}]}}}}
keys: {{alice: {{sha256: {ALICE}, deployments: [chat]}}}}
"""
TEXTS = {
    "unparsable": b"policies: [",
    "half a mapping": b"policies: {default: {match: all\n",
    "a tab": b"policies:\n\tdefault: {}\n",
    "two documents": b"tags: {}\n---\ntags: {}\n",
    "binary": b"\0\1\2",
    "Latin-1": "tags: {team: [Köln]}\n".encode("latin-1"),
    "UTF-16": "tags: {team: [support]}\n".encode("utf-16"),
    "empty": b"",
    "a list": b"[a, b]\n",
    "aliases": b"limits: &a {}\nmore: *a\n",
    "unknown section": b"upstream: {}\n",
    "too deep": b"tags: " + b"[" * (MAX_DEPTH + 1) + b"\n",
    "a bomb of brackets": b"[" * 100_000,
    "too many values": b"tags: [" + b"a," * MAX_NODES + b"]\n",
    "too large": b"# " + b"x" * MAX_FILE_BYTES + b"\n",
    "a drained target": b"deployments: {d: {targets: [{upstream: up, model: b, weight: 0}]}}\n",
    "a chain of extends": b"policies:\n"
    + b"".join(b"  p%d: {extends: p%d}\n" % (n, n + 1) for n in range(5000)),
    "a wrong revocation": b"revoked: [box, 'no name', 7, [a], {b: c}]\n",
    "a mapping of revocations": b"revoked: {box: true}\n",
}


def non_utf8_name(folder: Path) -> None:
    (folder / os.fsdecode(b"\xff.yaml")).write_text("tags: {}\n")


def many_files(folder: Path) -> None:
    for number in range(load.MAX_ENTRIES + 1):
        (folder / f"note-{number}.txt").touch()


def many_policies(folder: Path) -> None:
    for number in range(load.MAX_ENTRIES + 1):
        (folder / f"p{number}.yaml").write_text("tags: {}\n")


def dangling_link(folder: Path) -> None:
    (folder / "mid.yaml").symlink_to("gone.yaml")


def link_loop(folder: Path) -> None:
    (folder / "mid.yaml").symlink_to("mid.yaml")
    (folder / "again").symlink_to(".")
    (folder / "once-more").symlink_to(".")


def named_pipe(folder: Path) -> None:
    os.mkfifo(folder / "mid.yaml")


def folder_for_a_file(folder: Path) -> None:
    (folder / "mid.yaml").mkdir()


def folder_with(content: bytes) -> Callable[[Path], None]:
    return lambda folder: [(folder / "mid.yaml").write_bytes(content)].clear()


DEFECTS: dict[str, Callable[[Path], None]] = {
    **{name: folder_with(content) for name, content in TEXTS.items()},
    **{
        make.__name__: make
        for make in (
            non_utf8_name,
            many_files,
            many_policies,
            dangling_link,
            link_loop,
            named_pipe,
            folder_for_a_file,
        )
    },
}
PLACES = ("0.yaml", "zz.yml", "sub/folder/list.yaml")


def serves_alice(stored: StoreOverFolder) -> bool:
    return bytes.fromhex(ALICE) in stored.store.current.credentials


def logged(stored: StoreOverFolder, event: str) -> list[dict[str, object]]:
    return [fields for name, fields in stored.log.entries if name == event]


@pytest.mark.parametrize("place", PLACES)
@for_each("defect", DEFECTS)
async def test_revocation_survives_any_defect(defect: str, place: str, tmp_path: Path) -> None:
    reload, revoke = tmp_path / defect / "reload", tmp_path / defect / "revoke"
    for folder in (reload, revoke):
        folder.mkdir(parents=True)
        served = StoreOverFolder(folder, GOOD)
        assert serves_alice(served)
        DEFECTS[defect](folder)
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text("revoked: [alice]\n")

        await (served.store.refresh if folder is reload else served.store.apply_revocations)()

        assert not serves_alice(served)
        assert logged(served, "policy.revoked")[0]["keys"] == ["alice"]


LISTS = (
    b"revoked: [alice]\n",
    b"revoked:\n- alice\n",
    b"revoked:\r\n  # since Monday\r\n\r\n  - alice\r\n",
    b"revoked: [\n  box,\n  alice,\n]\n",
)


@for_each(
    ("defect", "written", "is_first"),
    [
        (name, written, is_first)
        for name in TEXTS
        for written in LISTS
        for is_first in (True, False)
        if name not in ("UTF-16", "too large")
    ],
)
def test_revocations_are_read_from_defective_file(
    defect: str, written: bytes, is_first: bool, tmp_path: Path
) -> None:
    content = written + TEXTS[defect] if is_first else TEXTS[defect] + b"\n" + written
    (tmp_path / "one.yaml").write_bytes(content)

    assert "alice" in read_revocations(tmp_path).names_and_digests


@for_each(
    ("content", "message"),
    [
        (b'{"tags": {, "revoked": ["alice"]}', "is not valid YAML"),
        (b"revoked: [alice", "is not valid YAML"),
        (b"revoked:\n  - box\noops\n  - alice\n", "is not valid YAML"),
        (b"revoked:\n  - box\n<<<<<<< ours\n  - alice\n", "is not valid YAML"),
        (b"revoked:\n  - box\n=======\n  - alice\n", "is not valid YAML"),
        (b"revoked:\n  - box\n@@ -1 +1: @@\n  - alice\n", "is not valid YAML"),
        (b"revoked: alice\n", "must be a list"),
        (b"revoked: {alice: true}\n", "must be a list"),
        (b"revoked: ['no name']\n", "must be the name of a key"),
        (b"revoked: [7]\n", "must be the name of a key"),
        (b"revoked: !names [alice]\n", "the YAML tag"),
        (b"revoked: *names\n", "YAML"),
        ("revoked: [alice]\n".encode("utf-16"), "is not UTF-8 text"),
        (b"revoked: [\xff]\n", "is not UTF-8 text"),
        (b"[" * 100_000 + b"\nrevoked:\n  alice\n", "nested"),
        (b'"revo\\u006bed": [alice\n', "is not valid YAML"),
        (b"# " + b"x" * MAX_FILE_BYTES + b"\nrevoked: [alice]\n", "is larger than"),
    ],
)
def test_list_that_cannot_be_read_is_reported(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "list.yaml").write_bytes(content)

    problems = read_revocations(tmp_path).problems

    assert len(problems) == 1
    assert problems[0].startswith("list.yaml:")
    assert message in problems[0]


@for_each("defect", DEFECTS)
def test_report_names_only_what_may_revoke(defect: str, tmp_path: Path) -> None:
    """A defective file that cannot contain revocations raises no alert."""
    folder = tmp_path / defect
    folder.mkdir()
    DEFECTS[defect](folder)

    problems = read_revocations(folder).problems

    unknown = ("dangling_link", "link_loop", "named_pipe")
    wrong = ("a wrong revocation", "a mapping of revocations")
    may_hide = ("binary", "UTF-16", "too large")
    assert bool(problems) == (defect in (*unknown, *wrong, *may_hide))


def test_too_many_entries_are_reported(tmp_path: Path) -> None:
    os.mkdir(tmp_path / "sub")
    for number in range(20):
        (tmp_path / "sub" / str(number)).touch()
    (tmp_path / "list.yaml").write_text("revoked: [alice]\n")

    revocations = read_revocations(tmp_path, max_entries=10)

    assert revocations.names_and_digests == {"alice"}
    assert revocations.problems == (f"{tmp_path.name}:1:1: contains more than 10 files",)
    assert load.MAX_WALKED_ENTRIES > load.MAX_ENTRIES


async def test_unread_revocations_are_logged_once_for_each_state(tmp_path: Path) -> None:
    served = StoreOverFolder(tmp_path, GOOD)
    file = tmp_path / os.fsdecode(b"\xff.yaml")
    states = ["revoked: [", "revoked: [", "revoked: x\n", "revoked: [alice]\n", "revoked: ["]

    counts = []
    for text in states:
        file.write_text(text)
        await served.store.apply_revocations()
        counts.append(len(served.store.revocation_problems))

    assert counts == [1, 1, 1, 0, 1]
    events = logged(served, "policy.revocations_unread")
    assert len(events) == 3
    assert b"\\\\xff.yaml:" in orjson.dumps(events)


async def test_unexpected_error_is_reported_and_keeps_earlier_revocations(tmp_path: Path) -> None:
    class BrokenPath(type(tmp_path)):  # type: ignore[misc]
        def absolute(self) -> Path:
            raise LookupError("secret")

    [message] = read_revocations(BrokenPath(tmp_path)).problems

    assert "cannot be read: unexpected LookupError" in message
    assert "secret" not in message


async def test_broken_folder_keeps_revocations(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    """The proxy notices the list by itself, and its metrics name the parts that it cannot read."""
    route = ROUTES["openai"]
    async with running_proxy(tmp_path / "p", policies_for(upstream.url)) as proxy:

        async def status() -> int:
            return (await proxy.send(route.path, route.body(streamed=False))).status

        async def is_refused() -> bool:
            return await status() == 401

        async def is_rejected() -> bool:
            return "headrace_policy_last_reload_success 0.0" in await proxy.metrics()

        assert await status() == 200
        for defect in (non_utf8_name, many_files, named_pipe):
            defect(proxy.policies)
        (proxy.policies / "broken.yaml").write_bytes(TEXTS["unparsable"])
        await until(is_rejected)
        assert await status() == 200
        (proxy.policies / "zz.yaml").write_text("revoked: [support-widget]\n")
        await until(is_refused)

        assert "headrace_policy_revocations_unread 1.0" in await proxy.metrics()
