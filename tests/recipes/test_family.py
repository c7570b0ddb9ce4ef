"""The recipe for an API family, followed in a copy: a reader, a writer and a record are all."""

from __future__ import annotations

from pathlib import Path

from tests.recipes.copies import ADDED, copied

MAX_LINES = 150


def test_an_api_family_is_one_file_and_two_lines(tmp_path: Path) -> None:
    assert len((ADDED / "family.py").read_text().splitlines()) <= MAX_LINES
    copy = copied(tmp_path / "copy", "An API family", "notes")
    copy.add("proxy/dialects/notes.py", "family.py")
    for path, table, item in (
        ("proxy/dialects/families.py", "FAMILIES", "notes.NOTES"),
        ("proxy/dialects/__init__.py", "DIALECTS", '"notes": notes.DIALECT'),
    ):
        copy.add_import(path, "from proxy.dialects import notes")
        copy.add_item(path, table, item)

    copy.test("tests/recipes/added/check_family.py")
