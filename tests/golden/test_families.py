"""Clients of all families read the same text of recorded frames wherever a stream is cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from proxy.types.events import FamilyName
from tests.golden.pipeline import PAIRS, Pipeline, documents_of, written
from tests.golden.recording import NAMES, Recording, read
from tests.golden.replay import events_of
from tests.golden.texts import Texts, cut_texts, longest_text, texts_of


def received(
    recording: Recording, client: FamilyName, pieces: Sequence[bytes], *, inspect: bool = False
) -> Texts:
    """Return the texts that a client reads."""
    frames = Pipeline(recording.family, client, inspect).frames(documents_of(pieces))
    return texts_of(client, written(client, frames))


def cuts(recording: Recording) -> Iterator[list[bytes]]:
    """Yield the stream with its texts cut after each number of characters."""
    for position in range(1, longest_text(recording.family, recording.upstream)):
        yield cut_texts(recording.family, recording.upstream, position)


@pytest.mark.parametrize("name", NAMES)
def test_cut_bytes_give_the_same_documents(name: str) -> None:
    raw = read(name).upstream
    documents = documents_of([raw])

    for index in range(1, len(raw)):
        assert documents_of([raw[:index], raw[index:]]) == documents, index
    assert documents_of([raw[index : index + 1] for index in range(len(raw))]) == documents


@pytest.mark.parametrize("inspect", [False, True], ids=["pass", "inspect"])
@pytest.mark.parametrize(("name", "client"), PAIRS)
def test_cut_texts_give_the_same_texts(name: str, client: FamilyName, inspect: bool) -> None:
    recording = read(name)
    texts = received(recording, client, events_of(recording.upstream), inspect=inspect)

    for pieces in cuts(recording) if not name.endswith("surrogates") else ():
        assert received(recording, client, pieces, inspect=inspect) == texts
