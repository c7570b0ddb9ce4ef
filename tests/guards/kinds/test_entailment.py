"""Responses judged by a natural language inference model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from proxy.guards.kinds.evidence import MAX_MODEL_PAIRS, LocalEntailmentDetector
from proxy.guards.kinds.onnx import MAX_TEXT_CHARS, MISSING_EXTRA, REQUIRED_PACKAGES, CannotClassify
from proxy.guards.services.stage import NoGuardClients
from proxy.guards.text.walk import Text
from proxy.types.guard import Finding, PromptContext
from tests.doubles import chat, chat_events, respond, stream
from tests.guards.calls import ask
from tests.guards.conftest import Guard
from tests.guards.networks import classifier

LABELS = ["CONTRADICTION", "neutral", "entailment"]
# The highest weight of any word decides.
WORDS = {"?": (0.0, 1.0, 2.0), "never": (9.0, 0.0, 0.0), "lions": (0.0, 9.0, 0.0)}
CONTEXT = "The weir is open on Sundays. The mill sells flour."


@pytest.fixture
def folder(tmp_path: Path) -> str:
    if any(find_spec(name) is None for name in REQUIRED_PACKAGES):
        assert not os.environ.get("CI"), MISSING_EXTRA
        pytest.skip(MISSING_EXTRA)
    return classifier(tmp_path / "model", WORDS, LABELS)


async def judge(
    guard: LocalEntailmentDetector, text: str, context: str = CONTEXT
) -> Sequence[Finding]:
    question = PromptContext(context=context)
    texts = [Text((), text, "content", "assistant")]
    [finding] = await guard.find_all(texts, question, NoGuardClients())
    return finding


async def test_unsupported_sentences_are_found_with_reason(folder: str) -> None:
    text = "The weir is open. It is never open on Sundays. There are lions at the mill."

    findings = await judge(LocalEntailmentDetector(folder, 0.9), text)

    assert [(text[finding.start : finding.end], finding.kind) for finding in findings] == [
        ("It is never open on Sundays.", "contradicted"),
        ("There are lions at the mill.", "unsupported"),
    ]
    assert all(finding.score > 0.99 for finding in findings)


async def test_too_long_text_is_not_judged(folder: str) -> None:
    guard = LocalEntailmentDetector(folder, 0.9)

    for text, context in (
        ("x" * (MAX_TEXT_CHARS + 1), CONTEXT),
        ("Yes.", "x" * (MAX_TEXT_CHARS + 1)),
        ("It is open. " * MAX_MODEL_PAIRS, CONTEXT),
    ):
        with pytest.raises(CannotClassify):
            await judge(guard, text, context)


def test_model_of_another_task_is_refused(tmp_path: Path, folder: str) -> None:
    unrelated = classifier(tmp_path / "other", {"?": (0.0, 1.0)}, ["fine", "rival"])

    with pytest.raises(ValueError, match="no label that begins with 'entail' or 'contra'"):
        LocalEntailmentDetector(unrelated, 0.5)


async def test_model_with_one_of_two_labels_is_used(tmp_path: Path, folder: str) -> None:
    words = {"?": (0.0, 1.0), "never": (9.0, 0.0), "lions": (9.0, 0.0)}
    bears = {"?": (1.0, 0.0), "never": (0.0, 9.0), "lions": (0.0, 9.0)}
    against = classifier(tmp_path / "against", words, ["contradiction", "other"])
    supports = classifier(tmp_path / "supports", bears, ["entailment", "not_entailment"])
    text = "The weir is open. It is never open on Sundays."

    detectors = [LocalEntailmentDetector(name, 0.9) for name in (against, supports)]
    findings = [await judge(detector, text) for detector in detectors]

    assert [[(text[f.start : f.end], f.kind) for f in spans] for spans in findings] == [
        [("It is never open on Sundays.", "contradicted")],
        [("It is never open on Sundays.", "unsupported")],
    ]


@pytest.mark.parametrize("streamed", [False, True])
async def test_response_that_contradicts_its_context_is_blocked(
    streamed: bool, folder: str, guard: Guard
) -> None:
    parts = ("It is ", "never", " open.")
    rule = f"{{guard: grounded, nli: '{folder}', threshold: 0.9, action: block, deadline: 5s}}"
    script = stream(chat_events(*parts)) if streamed else respond(chat("".join(parts)))
    proxy = await guard(f"output: [{rule}]", script)

    reply = await ask(proxy, "Is it open?", stream=streamed, context=CONTEXT)
    without_context = await ask(proxy, "Is it open?", stream=streamed)

    records = await proxy.sink.wait(2)
    assert reply.error["guard"] == {"name": "grounded", "kind": "contradicted"}
    assert (reply.status, without_context.status) == (400, 200)
    assert [r.list_guard_results()[0][1].verdict for r in records] == ["blocked", "not_applicable"]
