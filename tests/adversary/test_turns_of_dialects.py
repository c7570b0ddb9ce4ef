"""Each client gets interleaved texts and calls whole and masked, from any upstream API."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.errors import GuardBlocked
from proxy.types.events import FamilyName
from tests.adversary.answers import (
    ANSWERS,
    ARGUMENTS,
    CARD,
    CLIENTS,
    DRAWS,
    PAIRS,
    SAYS,
    calls_in,
    chunk,
    cut,
    drawn,
    frames_of,
    guarded,
    shown,
    texts_in,
)
from tests.for_each import for_each

CUTS = st.lists(st.integers(0, 60), max_size=4)


@pytest.mark.parametrize(("client", "upstream"), PAIRS, ids=map("-".join, PAIRS))
@settings(max_examples=25, deadline=None)
@given(CUTS, st.lists(CUTS, min_size=2, max_size=3), DRAWS)
def test_calls_are_whole_and_nothing_leaves_in_halves(
    client: FamilyName, upstream: FamilyName, text: list[int], cuts: list[list[int]], draws: Any
) -> None:
    calls = [cut(ARGUMENTS, item) for item in cuts]
    documents = ANSWERS[upstream](cut(SAYS, text), calls, drawn(draws))

    plain = shown(client, frames_of(client, upstream, documents))
    safe = shown(client, guarded(frames_of(client, upstream, documents), "mask")[0])

    assert calls_in(client, plain) == [ARGUMENTS] * len(cuts)
    assert calls_in(client, safe) == [ARGUMENTS.replace(CARD, "[CARD]")] * len(cuts)
    assert "".join(texts_in(client, plain)) == SAYS
    assert CARD not in "".join(texts_in(client, safe))
    with pytest.raises(GuardBlocked):
        guarded(frames_of(client, upstream, documents), "block")


@for_each("client", CLIENTS)
@for_each("mark", [{"start": {"type": "text"}}, {"stop": True}, 1, None])
def test_no_upstream_of_chats_releases_what_is_held(client: FamilyName, mark: Any) -> None:
    marked = [chunk({"content": piece, "block": mark}) for piece in SAYS]
    documents = [*marked, chunk({}, "stop")]

    safe = shown(client, guarded(frames_of(client, "chat", documents), "mask")[0])

    assert "".join(texts_in(client, safe)) == SAYS.replace(CARD, "[CARD]")
