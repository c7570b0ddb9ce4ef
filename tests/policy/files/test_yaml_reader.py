"""Strict YAML: scalars stay text, parts have locations, and no input crashes the reader."""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.policy.files.source import Document
from proxy.policy.files.yaml_reader import MAX_FILE_BYTES, read_file, read_one_past_limit
from tests.for_each import for_each

WORDS = st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), max_size=8)
SCALARS = st.none() | st.booleans() | st.integers(-(10**17), 10**17) | WORDS
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)
SECTIONS = st.dictionaries(WORDS, st.dictionaries(WORDS, VALUES, max_size=4), max_size=4)


def read(text: str | bytes, folder: Path, name: str = "p.yaml", target: Any = None) -> Document:
    document = Document() if target is None else target
    (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    read_file(folder / name, name, document)
    return document


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reading")


@for_each(
    ("written", "expected"),
    [
        ("true", True),
        ("null", None),
        ("", None),
        ("7", 7),
        ("-0.25", -0.25),
        ("'true'", "true"),
        ('"7"', "7"),
        *((word, word) for word in ("no", "Yes", "True", "on", "012", "1e3", "0x1f", "1_000")),
        *((word, word) for word in ("2026-01-31", "1:30", ".5", "+1", ".inf", "9" * 40)),
    ],
)
def test_parses_plain_scalars_only(written: str, expected: object, folder: Path) -> None:
    document = read(f"s: {{name: {written}}}", folder)

    assert document.problems == []
    assert document.data == {"s": {"name": expected}}
    assert type(document.data["s"]["name"]) is type(expected)


def test_each_key_and_item_has_a_location(folder: Path) -> None:
    document = read("tags:\n  team: [support,\n    search]\n", folder)

    assert str(document.get_location(("tags",))) == "p.yaml:1:1"
    assert str(document.get_location(("tags", "team"))) == "p.yaml:2:3"
    assert str(document.get_location(("tags", "team", 1))) == "p.yaml:3:5"
    assert str(document.get_location(("tags", "team", 7, "x"))) == "p.yaml:2:3"


def test_paths_are_printed_as_in_yaml(folder: Path) -> None:
    document = read("d: {x: {price: {input: 1}}}", folder)

    written = document.get_written_path(("d", "x", "price", 0, "input"))
    assert written == ("d", "x", "price", "input")


@pytest.mark.parametrize(
    ("first_item", "second"), [("tags:", "tags: {a: [b]}"), ("tags: {a: [b]}", "tags:")]
)
def test_empty_section_keeps_the_other(first_item: str, second: str, folder: Path) -> None:
    document = read(second, folder, target=read(first_item, folder))

    assert document.problems == []
    assert document.data == {"tags": {"a": ["b"]}}


@for_each("other_item", ["[a]", "5", "word", "!x {}", "*a"])
def test_invalid_section_keeps_those_of_other_files(other_item: str, folder: Path) -> None:
    document = read("tags: {a: [b]}", folder, target=read(f"tags: {other_item}", folder))

    assert document.data == {"tags": {"a": ["b"]}}
    assert document.problems != []


@for_each(
    "text",
    [
        "tags: " + "[" * 100_000,
        "tags: " + "{a: " * 100_000,
        "- " * 100_000,
        "? " * 100_000,
        "\n".join(" " * depth + "a:" for depth in range(1500)),
        "tags: [" + "[]," * 1_000_000,
        "a: &a [x, x]\n" + "".join(f"k{i}: &k{i} [*a, *a]\n" for i in range(1000)),
    ],
    ids=["brackets", "braces", "dashes", "questions", "indents", "items", "aliases"],
)
def test_hostile_yaml_is_refused(text: str, folder: Path) -> None:
    document = read(text, folder)

    assert document.problems != []


@for_each("raw", [b"a: \x00", b"a: \xff", "a: {}".encode("utf-16"), b"%YAML 9.9\n--- a"])
def test_binary_file_is_refused(raw: bytes, folder: Path) -> None:
    document = read(raw, folder)

    assert len(document.problems) == 1
    assert not document.is_complete


def test_byte_order_mark_is_accepted(folder: Path) -> None:
    assert read(b"\xef\xbb\xbftags: {a: [b]}", folder).data == {"tags": {"a": ["b"]}}


def test_too_large_file_is_read_only_to_the_bound(tmp_path: Path) -> None:
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(2**40)

    assert len(read_one_past_limit(large, 1000)) == 1001
    assert len(read_file(large, "large", Document())) == MAX_FILE_BYTES + 1


def test_named_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    document = Document()

    read_file(tmp_path / "pipe.yaml", "pipe.yaml", document)

    assert [problem.message for problem in document.problems] == [
        "cannot be read: not a regular file"
    ]


def test_file_that_becomes_a_pipe_does_not_block_the_reader(tmp_path: Path) -> None:
    file, finished = tmp_path / "p.yaml", threading.Event()
    file.write_text("tags: {}\n")

    def swap() -> None:
        while not finished.is_set():
            os.mkfifo(tmp_path / "pipe")
            os.replace(tmp_path / "pipe", file)
            (tmp_path / "text").write_text("tags: {}\n")
            os.replace(tmp_path / "text", file)

    swapping = threading.Thread(target=swap)
    swapping.start()
    read: set[bytes] = set()
    for attempt in range(1_000_000):  # until the other thread has swapped the file
        if read and attempt >= 2000:
            break
        with suppress(OSError):
            read.add(read_one_past_limit(file, 100))
    finished.set()
    swapping.join()

    assert read == {b"tags: {}\n"}


@given(text=st.text() | st.text(alphabet="ab:-?[]{}&*!|>'\"%@,# \n\t~<"))
def test_any_text_is_read_or_refused(text: str, folder: Path) -> None:
    document = read(text.encode("utf-8", "replace"), folder)

    assert all(str(problem).startswith("p.yaml:") for problem in document.problems)
    assert document.problems or all(isinstance(s, dict) for s in document.data.values())


@given(raw=st.binary())
def test_any_bytes_are_read_or_refused(raw: bytes, folder: Path) -> None:
    assert isinstance(read(raw, folder), Document)


@given(data=SECTIONS)
def test_written_yaml_is_read_back(data: dict[str, Any], folder: Path) -> None:
    document = read(json.dumps(data, ensure_ascii=False), folder)

    assert document.problems == []
    assert document.data == data
