"""Files of plain text that policies name: which are read, and what is wrong with others."""

from __future__ import annotations

from pathlib import Path

from proxy.config.scalars import referring_keys
from proxy.guards.kinds.table import KINDS
from proxy.policy.files.load import MAX_TEXT_BYTES, TEXT_KEYS, read_texts, text_names
from tests.for_each import for_each


def test_files_are_named_by_the_keys_of_guards_that_refer_to_text() -> None:
    assert {
        key for kind in KINDS.values() for key in referring_keys(kind.Keys, "text")
    } == TEXT_KEYS


def test_files_are_named_at_any_depth() -> None:
    data = {"a": [{"words_from": "w.txt"}, {"b": {"texts_from": ["1.txt", "2.txt", 3]}}]}

    assert list(text_names(data)) == ["w.txt", "1.txt", "2.txt"]


def test_what_a_file_says_is_read_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "w.txt").write_text("größer")

    assert read_texts(tmp_path, {"words_from": "lists/w.txt"}) == {"lists/w.txt": "größer"}


@for_each(
    ("name", "content", "problem"),
    [
        ("none.txt", None, "cannot be read"),
        (".", None, "cannot be read"),
        ("/etc/hostname", None, "must be a relative path inside the policy folder"),
        ("a/../../w.txt", None, "must be a relative path inside the policy folder"),
        ("w.txt", b"\xff\xfe", "is not UTF-8"),
        ("w.txt", b"x" * (MAX_TEXT_BYTES + 1), "is larger than"),
    ],
)
def test_reports_bad_file(name: str, content: bytes | None, problem: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)

    text = read_texts(tmp_path, {"words_from": name})[name]

    assert problem in str(text)
    assert isinstance(text, ValueError)
