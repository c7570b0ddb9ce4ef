from __future__ import annotations

import random

from proxy.guardrails.matching import gitleaks
from proxy.guardrails.matching.key_shapes import KEY_SHAPES, KeyShape
from proxy.guardrails.matching.re2set import Pattern
from tests.for_each import for_each
from tests.guardrails.samples import sample


def test_each_kind_is_one_that_the_file_of_gitleaks_has_not() -> None:
    kinds = [each.kind for each in KEY_SHAPES]

    assert len(set(kinds)) == len(kinds)
    assert not {rule.kind for rule in gitleaks.all_rules()} & {*kinds}


@for_each("shape", KEY_SHAPES, ids=lambda shape: shape.kind)
def test_a_shape_is_found_as_group_1_and_not_within_a_longer_word(shape: KeyShape) -> None:
    key, found = sample(shape.shape, random.Random(3)), Pattern(shape.pattern)

    spans = found.search(f"it is {key}, keep it".encode())
    assert spans is not None
    assert spans[1] == (6, 6 + len(key))
    assert found.search(f"x{key}, keep it".encode()) is None
    assert found.search(f"it is {key}{'a' * 80}".encode()) is None
