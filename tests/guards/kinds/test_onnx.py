"""Custom classifiers: labels with thresholds, windows, and errors of a model folder."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from proxy.guards.kinds.onnx import (
    MAX_TEXT_CHARS,
    MISSING_EXTRA,
    REQUIRED_PACKAGES,
    WINDOW_TOKENS,
    CannotClassify,
    Onnx,
)
from proxy.guards.services.stage import NoGuardClients
from proxy.guards.text.walk import Text
from proxy.types.guard import Busy, Finding, PromptContext
from tests.doubles import ScriptedUpstream, chat, chat_events, respond, stream
from tests.guards.calls import ask
from tests.guards.conftest import Guard
from tests.guards.networks import classifier

WORDS = {"?": (4.0, -4.0), "hippo": (4.0, 9.0), "lion": (4.0, 4.5)}


@pytest.fixture
def folder(tmp_path: Path) -> str:
    if any(find_spec(name) is None for name in REQUIRED_PACKAGES):
        assert not os.environ.get("CI"), MISSING_EXTRA
        pytest.skip(MISSING_EXTRA)
    return classifier(tmp_path / "model", WORDS, ["fine", "rival"])


async def classify(guard: Onnx, *texts: str) -> Sequence[Sequence[Finding]]:
    parts = [Text((), text, "content", "user") for text in texts]
    return await guard.find_all(parts, PromptContext(), NoGuardClients())


async def test_threshold_of_a_label_decides_findings(folder: str) -> None:
    sure, unsure = Onnx(folder, {"rival": 0.9}), Onnx(folder, {"rival": 0.6})

    findings = await classify(sure, "where is the hippo", "where is it", "a lion")
    assert findings == [[Finding(0, 18, "rival", 0.993)], [], []]
    assert await classify(unsure, "a lion") == [[Finding(0, 6, "rival", 0.622)]]


async def test_long_text_is_judged_in_windows(folder: str) -> None:
    text = "word " * 900 + "hippo" + " word" * 900

    [findings] = await classify(Onnx(folder, {"rival": 0.9}), text)

    position = text.index("hippo")
    assert [finding for finding in findings if finding.start <= position < finding.end]
    assert all(finding.end - finding.start <= 5 * WINDOW_TOKENS + 5 for finding in findings)
    assert all(a.end <= b.start for a, b in itertools.pairwise(findings))


async def test_multilabel_model_finds_several_labels(tmp_path: Path) -> None:
    words = {"?": (-5.0, -5.0), "hippo": (5.0, 4.0)}
    kind: dict[str, Any] = {"problem_type": "multi_label_classification"}
    guard = Onnx(classifier(tmp_path / "m", words, ["a", "b"], **kind), {"a": 0.9, "b": 0.99})

    [[finding]] = await classify(guard, "hippo")

    assert (finding.kind, finding.score) == ("a", 0.993)


async def test_fixed_length_model_gets_padded_tokens(tmp_path: Path) -> None:
    words = {"?": (4.0, -4.0), "hippo": (4.0, 9.0)}
    guard = Onnx(classifier(tmp_path / "m", words, ["fine", "rival"], tokens=100), {"rival": 0.9})

    short, long = await classify(guard, "where is the hippo", "word " * 250 + "hippo")

    assert short == [Finding(0, 18, "rival", 0.993)]
    assert long[-1].end == len("word " * 250 + "hippo")


@pytest.mark.parametrize("text", ["", " ", "\ud800 hippo"])
async def test_unusual_texts_are_judged(text: str, folder: str) -> None:
    [findings] = await classify(Onnx(folder, {"rival": 0.9}), text)

    assert len(findings) == ("hippo" in text)


async def test_too_long_text_or_nan_is_not_classified(folder: str, tmp_path: Path) -> None:
    odd = classifier(tmp_path / "odd", {"?": (float("nan"), 1.0)}, ["fine", "rival"])
    two_labels = classifier(tmp_path / "few", WORDS, ["fine", "rival", "third"])

    for guard, text in (
        (Onnx(folder, {"rival": 0.9}), "x" * (MAX_TEXT_CHARS + 1)),
        (Onnx(odd, {"rival": 0.9}), "x"),
        (Onnx(two_labels, {"rival": 0.9}), "x"),
    ):
        with pytest.raises(CannotClassify):
            await classify(guard, text)


async def test_wait_for_a_model_is_bounded(folder: str) -> None:
    guard = Onnx(folder, {"rival": 0.9})

    calls = (classify(guard, "hippo") for _ in range(40))
    results = await asyncio.gather(*calls, return_exceptions=True)

    assert sum(isinstance(result, Busy) for result in results) == 8
    assert await classify(guard, "word") == [[]]


def test_invalid_model_folder_is_reported(folder: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no label 'rude'; its labels are fine, rival"):
        Onnx(folder, {"rude": 0.5})
    with pytest.raises(ValueError, match=r"/none/model.onnx does not exist"):
        Onnx(str(tmp_path / "none"), {"rival": 0.5})
    (Path(folder) / "model.onnx").write_bytes(b"no model")
    with pytest.raises(ValueError, match="cannot be loaded"):
        Onnx(folder, {"rival": 0.5})


async def test_own_model_inspects_both_sides(
    folder: str, guard: Guard, upstream: ScriptedUpstream
) -> None:
    rule = f"{{guard: onnx, folder: {folder}, labels: {{rival: 0.9}}, name: rivals}}"
    streamed = stream(chat_events("A hip", "po ."))
    upstream.then(respond(chat("A hippo .")), streamed, respond(chat("Fine.")))
    proxy = await guard(f"input: [{rule}], output: [{rule}]")

    blocked = await ask(proxy, "where is the hippo ?")
    replies = [await ask(proxy, "Hi", stream=stream) for stream in (False, True, False)]

    assert blocked.error["guard"] == {"name": "rivals", "kind": "rival"}
    assert [b"guardrail_blocked" in reply.raw for reply in replies] == [True, True, False]
    assert not any(b"hip" in reply.raw for reply in replies)
    assert replies[-1].status == 200
