"""Clients read the same texts and events wherever bytes or texts of a stream are cut."""

from __future__ import annotations

from random import Random

import pytest

from tests.golden.recording import GUARDS, NAMES, Recording, read
from tests.golden.replay import Replay, clients
from tests.golden.texts import Texts, cut_texts, longest_text, shapes_of, texts_of

pytestmark = pytest.mark.asyncio(loop_scope="module")
BYTE_CUTS = 9


def _cut_bytes(recording: Recording, label: str) -> list[bytes]:
    """Cut a stream at positions that depend on the recording and the client only."""
    raw, random = recording.upstream, Random(f"{recording.name} {label}")  # noqa: S311
    cuts = sorted(random.sample(range(1, len(raw)), BYTE_CUTS))
    return [raw[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(raw)], strict=True)]


@pytest.mark.parametrize("name", NAMES)
async def test_cut_bytes_give_the_recorded_output(name: str, replay: Replay) -> None:
    recording = read(name)
    labels = [f"{client} {guard}" for client in clients(recording) for guard in GUARDS[:2]]

    outputs = await replay.sent(recording, [(item, _cut_bytes(recording, item)) for item in labels])

    for label, output in zip(labels, outputs, strict=True):
        assert output == recording.outputs[label], label


@pytest.mark.parametrize("name", NAMES)
async def test_cut_texts_give_the_same_texts(name: str, replay: Replay) -> None:
    recording = read(name)
    family, raw = recording.family, recording.upstream
    positions = range(1, longest_text(family, raw))
    calls = [(f"{client} masked", at) for client in clients(recording) for at in positions]

    cut = [(label, cut_texts(family, raw, position)) for label, position in calls]
    outputs = await replay.sent(recording, cut)

    for (label, position), output in zip(calls, outputs, strict=True):
        client, full_value = label.split()[0], recording.outputs[label]
        assert output.call["outcome"] == full_value.call["outcome"], (label, position)
        texts, expected = (texts_of(client, item.body) for item in (output, full_value))
        if full_value.call["outcome"] != "success":
            texts, expected = _common(texts, expected)
        elif client in ("messages", "responses"):  # a chunk of a chat that is cut has other members
            shapes = shapes_of(client, output.body)
            assert shapes == shapes_of(client, full_value.body), (label, position)
        assert texts == expected, (label, position)


def _common(texts: Texts, other_texts: Texts) -> tuple[Texts, Texts]:
    """Shorten texts to what both have: how much of a failed stream a guard clears may differ."""
    results: tuple[Texts, Texts] = {}, {}
    for place in texts.keys() & other_texts:
        length = min(len(texts[place]), len(other_texts[place]))
        results[0][place], results[1][place] = texts[place][:length], other_texts[place][:length]
    return results
