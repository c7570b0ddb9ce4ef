"""Hash chain of the decision log: changes are detected, and kills are no changes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from proxy.cli import main
from proxy.telemetry.chain import (
    FIRST_PREV,
    MAX_LINE_BYTES,
    ChainFile,
    InvalidChain,
    seal_entry,
    verify_chain,
)
from tests.for_each import for_each


def write_chain(path: Path, *names: str) -> ChainFile:
    chain = ChainFile(path)
    assert chain.append([{"event": name} for name in names]) == len(names)
    return chain


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "decisions"
    write_chain(path, *"abcde").close()
    return path


def test_unchanged_chain_is_valid(log: Path) -> None:
    verified = verify_chain(log)

    assert (verified.lines, verified.first_invalid, verified.incomplete) == (5, None, 0)
    assert verified.describe().endswith("valid: no line was changed, removed or inserted")


def insert_line(lines: list[bytes]) -> list[bytes]:
    inserted, _ = seal_entry({"event": "x"}, 3, json.loads(lines[1])["hash"])
    return [*lines[:2], inserted, *lines[2:]]


CHANGES: dict[str, tuple[Callable[[list[bytes]], list[bytes]], int]] = {
    "changed": (lambda lines: [line.replace(b'"event":"c"', b'"event":"x"') for line in lines], 3),
    "removed": (lambda lines: [*lines[:2], *lines[3:]], 3),
    "moved": (lambda lines: [*lines[:2], lines[3], lines[2], lines[4]], 3),
    "inserted": (insert_line, 4),
    "repeated": (lambda lines: [*lines[:2], *lines[1:]], 3),
    "written in another way": (lambda lines: [*lines[:2], lines[2].replace(b",", b", ", 1)], 3),
    "overwritten": (lambda lines: [*lines[:2], b"nothing happened\n", *lines[3:]], 4),
}


@for_each("name", CHANGES)
def test_first_changed_line_is_named(name: str, tmp_path: Path) -> None:
    path, (change, number) = tmp_path / name, CHANGES[name]
    write_chain(path, *"abcde").close()
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))

    verified = verify_chain(path)

    assert verified.first_invalid is not None
    assert verified.first_invalid[0] == number


def test_change_of_any_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "decisions"
    write_chain(path, *"abc").close()
    data = path.read_bytes()

    for index in range(len(data)):
        for by in (1, 0x20, 0x80):
            path.write_bytes(data[:index] + bytes([data[index] ^ by]) + data[index + 1 :])
            verified = verify_chain(path)
            assert verified.first_invalid is not None or verified.incomplete, (index, by)


def lines_of(path: Path) -> list[str]:
    """Return the events of all complete lines."""
    lines = [line for line in path.read_text().splitlines() if line.endswith("}")]
    return [json.loads(line)["event"] for line in lines]


@pytest.mark.parametrize("content", [b"", b'{"event":"a","ha'])
def test_log_without_a_complete_line_is_invalid(content: bytes, tmp_path: Path) -> None:
    log = tmp_path / "decisions"
    log.write_bytes(content)

    result = CliRunner().invoke(main, ["verify-log", str(log)])

    assert result.exit_code == 1
    assert (
        "invalid: line 1 does not exist, because the log is empty or was truncated" in result.output
    )


def test_removed_last_lines_are_noticed_by_a_known_hash(log: Path) -> None:
    head = verify_chain(log).last_hash
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:-1]))

    assert verify_chain(log).first_invalid is None
    assert verify_chain(log, [head]).first_invalid is not None


@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_line_cut_by_a_kill_is_no_tampering(cut: int, log: Path) -> None:
    log.write_bytes(log.read_bytes()[:-cut])

    assert (verify_chain(log).first_invalid, verify_chain(log).incomplete) == (None, int(cut > 1))

    write_chain(log, "f", "g").close()
    verified = verify_chain(log)
    assert (verified.first_invalid, verified.incomplete) == (None, int(cut > 1))
    events = [
        json.loads(line).get("event") for line in log.read_text().splitlines() if line[-1] == "}"
    ]
    assert events[-2:] == ["f", "g"]


def test_unexplained_cut_line_is_tampering(log: Path) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    lines.insert(3, lines[3][:20] + b"\n")
    log.write_bytes(b"".join(lines))

    assert verify_chain(log).first_invalid == (
        4,
        "is not a line of a decision log, and the next line does not report a crash",
    )


def test_chain_with_changed_end_is_not_continued(log: Path) -> None:
    log.write_bytes(log.read_bytes().replace(b'"event":"e"', b'"event":"x"'))

    with pytest.raises(InvalidChain, match="was changed"):
        ChainFile(log)


def test_chain_has_one_writing_process(log: Path) -> None:
    first_file = ChainFile(log)

    with pytest.raises(InvalidChain, match="another process"):
        ChainFile(log)

    first_file.close()
    ChainFile(log).close()


def test_first_line_has_no_previous_hash(tmp_path: Path) -> None:
    path = tmp_path / "decisions"
    write_chain(path, "a").close()

    assert json.loads(path.read_text())["prev"] == FIRST_PREV
    assert path.stat().st_mode & 0o777 == 0o600


FILL = """
import resource, signal, sys
from pathlib import Path
from proxy.telemetry.chain import ChainFile
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
chain = ChainFile(Path(sys.argv[1]))
soft = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), soft[1]))
left = [{"event": str(n)} for n in range(10)]
left = left[chain.append(left):]
assert left
assert chain.append(left) == 0
resource.setrlimit(resource.RLIMIT_FSIZE, soft)
assert chain.append(left) == len(left)
"""


@for_each("room", [1, 150, 196, 197, 198, 199, 200, 201, 500, 777])
def test_full_disk_loses_no_line(room: int, tmp_path: Path) -> None:
    """A limit of the file size acts like a full disk, at every position in a line."""
    path = tmp_path / "decisions"

    subprocess.run([sys.executable, "-c", FILL, str(path), str(room)], check=True)

    verified = verify_chain(path)
    assert verified.first_invalid is None, verified.describe()
    assert [e for e in lines_of(path) if e != "resumed"] == [str(n) for n in range(10)]


def test_kill_while_writing_leaves_a_valid_chain(tmp_path: Path) -> None:
    """The process is killed while it writes continuously. Only the last line may be incomplete."""
    path = tmp_path / "decisions"
    script = """
import sys
from pathlib import Path
from proxy.telemetry.chain import ChainFile
chain = ChainFile(Path(sys.argv[1]))
while True:
    chain.append([{"event": "x" * 1000} for _ in range(50)])
    print("more", flush=True)
"""
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE
        ) as run:
            assert run.stdout is not None
            for _ in range(3):
                run.stdout.readline()
            run.send_signal(signal.SIGKILL)

    assert verify_chain(path).first_invalid is None
    assert verify_chain(path).lines >= 450


LONG_ENTRIES = st.fixed_dictionaries(
    {name: st.tuples(st.integers(0, 6000), st.integers(1, 64)) for name in ("guards", "limits")}
)


@given(entries=st.lists(LONG_ENTRIES, min_size=1, max_size=3), share=st.floats(0, 1))
def test_no_line_is_longer_than_the_reader_takes(
    entries: list[dict[str, tuple[int, int]]], share: float, tmp_path_factory: Any
) -> None:
    """A chain can be continued after a kill at any byte of its last line."""
    path = tmp_path_factory.mktemp("chain") / "decisions"
    written_entries = [
        {name: [{"name": "é" * size}] * count for name, (count, size) in entry.items()}
        for entry in entries
    ]
    chain = ChainFile(path)
    assert chain.append(written_entries) == len(entries)
    chain.close()
    lines = path.read_bytes().splitlines(keepends=True)

    assert verify_chain(path).first_invalid is None
    for line, entry in zip(lines, written_entries, strict=True):
        stored = json.loads(line)
        cut = stored.get("cut", {})
        assert len(line) <= MAX_LINE_BYTES
        assert not cut or len(line) > MAX_LINE_BYTES // 4
        for name, items in entry.items():
            assert stored[name] == items[: len(stored[name])]
            assert len(stored[name]) + cut.get(name, 0) == len(items)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - int(share * len(lines[-1])))
    write_chain(path, "next").close()
    assert verify_chain(path).first_invalid is None
