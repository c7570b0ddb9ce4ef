"""The chain: whatever is done to its lines afterwards shows, and what a kill leaves does not pass
for that."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from proxy.cli import main
from proxy.telemetry.chain import FIRST, MAX_LINE, BadChain, ChainFile, sealed, verify
from tests.for_each import for_each


def written(path: Path, *names: str) -> ChainFile:
    chain = ChainFile(path)
    assert chain.append([{"event": name} for name in names]) == len(names)
    return chain


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "decisions"
    written(path, *"abcde").close()
    return path


def test_a_chain_that_nobody_touched_is_good(log: Path) -> None:
    verified = verify(log)

    assert (verified.lines, verified.broken, verified.torn) == (5, None, 0)
    assert verified.text().endswith("valid: no line was changed, removed or inserted")


def change(lines: list[bytes]) -> None:
    lines[2] = lines[2].replace(b'"event":"c"', b'"event":"x"')


def take_out(lines: list[bytes]) -> None:
    del lines[2]


def move(lines: list[bytes]) -> None:
    lines[2], lines[3] = lines[3], lines[2]


def put_in(lines: list[bytes]) -> None:
    lines.insert(2, sealed({"event": "x"}, 3, json.loads(lines[1])["hash"])[0])


def twice(lines: list[bytes]) -> None:
    lines.insert(2, lines[1])


def respell(lines: list[bytes]) -> None:
    lines[2] = lines[2].replace(b",", b", ", 1)


def write_over(lines: list[bytes]) -> None:
    lines[2] = b"nothing happened\n"


@pytest.mark.parametrize(
    ("do", "line"),
    [(change, 3), (take_out, 3), (move, 3), (put_in, 4), (twice, 3), (respell, 3), (write_over, 3)],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_the_first_line_that_is_not_as_it_was_is_named(do: object, line: int, log: Path) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    do(lines)  # type: ignore[operator]  # one of the above
    log.write_bytes(b"".join(lines))

    verified = verify(log)

    assert verified.broken is not None
    assert verified.broken[0] == line or (do is write_over and verified.broken[0] in (3, 4))


def test_no_byte_can_be_changed_without_notice(tmp_path: Path) -> None:
    path = tmp_path / "decisions"
    written(path, *"abc").close()
    data = path.read_bytes()

    for index in range(len(data)):
        for by in (1, 0x20, 0x80):
            path.write_bytes(data[:index] + bytes([data[index] ^ by]) + data[index + 1 :])
            verified = verify(path)
            assert verified.broken is not None or verified.torn, (index, by)


def lines_of(path: Path) -> list[str]:
    """Give the events of all lines but torn ones."""
    lines = [line for line in path.read_text().splitlines() if line.endswith("}")]
    return [json.loads(line)["event"] for line in lines]


@pytest.mark.parametrize("content", [b"", b'{"event":"a","ha'])
def test_log_without_a_complete_line_is_invalid(content: bytes, tmp_path: Path) -> None:
    log = tmp_path / "decisions"
    log.write_bytes(content)

    result = CliRunner().invoke(main, ["verify-log", str(log)])

    assert result.exit_code == 1
    assert "invalid: line 1 is missing: the log is empty or was truncated" in result.output


def test_lines_that_were_cut_off_show_only_to_who_knows_a_hash(log: Path) -> None:
    head = verify(log).head
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:-1]))

    assert verify(log).broken is None
    assert verify(log, [head]).broken is not None


@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_a_line_that_a_kill_tore_is_told_and_is_no_tampering(cut: int, log: Path) -> None:
    log.write_bytes(log.read_bytes()[:-cut])

    assert (verify(log).broken, verify(log).torn) == (None, int(cut > 1))

    written(log, "f", "g").close()
    verified = verify(log)
    assert (verified.broken, verified.torn) == (None, int(cut > 1))
    events = [
        json.loads(line).get("event") for line in log.read_text().splitlines() if line[-1] == "}"
    ]
    assert events[-2:] == ["f", "g"]


def test_a_torn_line_that_nobody_accounts_for_is_broken(log: Path) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    lines.insert(3, lines[3][:20] + b"\n")
    log.write_bytes(b"".join(lines))

    assert verify(log).broken == (
        4,
        "is not a line of a decision log, and the next line does not report a crash",
    )


def test_a_chain_that_was_changed_at_its_end_is_not_continued(log: Path) -> None:
    log.write_bytes(log.read_bytes().replace(b'"event":"e"', b'"event":"x"'))

    with pytest.raises(BadChain, match="was changed"):
        ChainFile(log)


def test_one_process_alone_writes_it(log: Path) -> None:
    first_file = ChainFile(log)

    with pytest.raises(BadChain, match="another process"):
        ChainFile(log)

    first_file.close()
    ChainFile(log).close()


def test_it_begins_with_no_hash(tmp_path: Path) -> None:
    path = tmp_path / "decisions"
    written(path, "a").close()

    assert json.loads(path.read_text())["prev"] == FIRST
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
    """A file may grow to so many bytes: what a full disk does, at every place in a line."""
    path = tmp_path / "decisions"

    subprocess.run([sys.executable, "-c", FILL, str(path), str(room)], check=True)

    verified = verify(path)
    assert verified.broken is None, verified.text()
    assert [e for e in lines_of(path) if e != "resumed"] == [str(n) for n in range(10)]


def test_a_kill_in_the_middle_leaves_a_good_chain(tmp_path: Path) -> None:
    """Killed while it writes as fast as it can; what is there then is whole but for its end."""
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

    assert verify(path).broken is None
    assert verify(path).lines >= 450


LONG_ENTRIES = st.fixed_dictionaries(
    {name: st.tuples(st.integers(0, 6000), st.integers(1, 64)) for name in ("guards", "limits")}
)


@given(entries=st.lists(LONG_ENTRIES, min_size=1, max_size=3), share=st.floats(0, 1))
def test_no_line_is_longer_than_the_reader_takes(
    entries: list[dict[str, tuple[int, int]]], share: float, tmp_path_factory: Any
) -> None:
    """A kill at any byte of the last line leaves a chain that can be continued."""
    path = tmp_path_factory.mktemp("chain") / "decisions"
    written_entries = [
        {name: [{"name": "é" * size}] * count for name, (count, size) in entry.items()}
        for entry in entries
    ]
    chain = ChainFile(path)
    assert chain.append(written_entries) == len(entries)
    chain.close()
    lines = path.read_bytes().splitlines(keepends=True)

    assert verify(path).broken is None
    for line, entry in zip(lines, written_entries, strict=True):
        stored = json.loads(line)
        cut = stored.get("cut", {})
        assert len(line) <= MAX_LINE
        assert not cut or len(line) > MAX_LINE // 4
        for name, items in entry.items():
            assert stored[name] == items[: len(stored[name])]
            assert len(stored[name]) + cut.get(name, 0) == len(items)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - int(share * len(lines[-1])))
    written(path, "next").close()
    assert verify(path).broken is None
