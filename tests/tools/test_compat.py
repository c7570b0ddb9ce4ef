"""Pythons and environments of compatibility tests, and failed installations."""

from __future__ import annotations

from pathlib import Path

from tests.for_each import for_each
from tools.compat import Trial, find_pythons, min_version, plan_trials, python_folders
from tools.pip_install import explain


def write_python(folder: Path, name: str, output: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\necho {output}\n")
    file.chmod(0o755)
    return file


def test_working_pythons_are_found_once(tmp_path: Path) -> None:
    on_path = write_python(tmp_path / "bin", "python3.12", "3 12")
    write_python(tmp_path / "bin", "python3.13", "no such version is set")
    write_python(tmp_path / "bin", "python3.9", "3 9")
    write_python(tmp_path / "bin", "python3.12-config", "3 12")
    write_python(tmp_path / ".pyenv/versions/3.12.1/bin", "python3.12", "3 12")
    of_pyenv = write_python(tmp_path / ".pyenv/versions/3.13.0/bin", "python3.13", "3 13")

    folders = python_folders([str(tmp_path / "bin")], tmp_path)

    assert find_pythons(folders, (3, 11)) == {(3, 12): on_path, (3, 13): of_pyenv}


def test_lowest_python_also_gets_lowest_dependencies() -> None:
    assert min_version() == (3, 11)
    assert plan_trials({(3, 11): Path("one"), (3, 13): Path("two")}) == [
        Trial((3, 11), Path("one"), has_lowest=False),
        Trial((3, 13), Path("two"), has_lowest=False),
        Trial((3, 11), Path("one"), has_lowest=True),
    ]
    assert plan_trials({}) == []


@for_each(
    ("output", "reason"),
    [
        ("ERROR: [Errno 28] No space left on device: '/x'", "the disk is full"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM", "a downloaded package is not"),
        ("error: incomplete-download\n\nhint: x", "a download stopped"),
        ("WARNING: x\nERROR: Something else\nhint: x", "Something else"),
        ("", "pip failed"),
    ],
)
def test_reason_is_found_in_output(output: str, reason: str) -> None:
    text, code = explain(output)

    assert text.startswith(reason)
    assert code == 1
