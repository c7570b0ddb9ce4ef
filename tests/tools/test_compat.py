"""Which Pythons are found, and what is tried under each."""

from __future__ import annotations

from pathlib import Path

from tools.compat import Trial, least, places, pythons, trials

SCRIPT = "#!/bin/sh\necho {said}\n"


def put(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text(SCRIPT.format(said=text))
    file.chmod(0o755)
    return file


def test_every_python_that_works_is_found_once(tmp_path: Path) -> None:
    first_path = put(tmp_path / "bin", "python3.12", "3 12")
    put(tmp_path / "bin", "python3.13", "no such version is set")
    put(tmp_path / "bin", "python3.9", "3 9")
    put(tmp_path / "bin", "python3.12-config", "3 12")
    put(tmp_path / ".pyenv/versions/3.12.1/bin", "python3.12", "3 12")
    second = put(tmp_path / ".pyenv/versions/3.13.0/bin", "python3.13", "3 13")

    results = pythons(places([str(tmp_path / "bin")], tmp_path), (3, 11))

    assert results == {(3, 12): first_path, (3, 13): second}


def test_the_lowest_versions_are_tried_under_the_lowest_python() -> None:
    results = {(3, 11): Path("one"), (3, 13): Path("two")}

    assert trials(results) == [
        Trial((3, 11), Path("one"), lowest=False),
        Trial((3, 13), Path("two"), lowest=False),
        Trial((3, 11), Path("one"), lowest=True),
    ]
    assert trials({}) == []


def test_the_lowest_python_is_the_one_that_is_declared() -> None:
    assert least() == (3, 11)
