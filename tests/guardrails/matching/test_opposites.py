"""Of two opposites each knows the other."""

from __future__ import annotations

from proxy.guardrails.matching.opposites import SIDES
from proxy.guardrails.matching.word_overlap import stem


def test_every_side_has_an_opposite_that_knows_it() -> None:
    assert stem("closed") in SIDES["open"]
    assert all(side in SIDES[other] for side, others in SIDES.items() for other in others)
    assert all(side not in others for side, others in SIDES.items())
