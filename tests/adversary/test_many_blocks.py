"""An answer of many blocks, items or calls costs what its parts cost: each is let go once, not each
time that another begins."""

from __future__ import annotations

from itertools import repeat

import pytest

from tests.adversary.test_items_in_turns import CLIENTS, guarded
from tests.adversary.test_turns_of_dialects import ANSWERS, chunks_of
from tests.guardrails.growth import lines

FEW, TIMES, MOST = 4, 10, 9
ARGUMENTS = ['{"a": ', '"b"}']


@pytest.mark.parametrize("form", CLIENTS)
def test_many_calls_are_read_in_time_linear_in_them(form: str) -> None:
    def read(count: int) -> int:
        documents = ANSWERS[form](["Hm."], [ARGUMENTS] * count, repeat(0))
        return lines(lambda: guarded(chunks_of(form, form, documents), "mask"))

    assert read(FEW * TIMES) < MOST * read(FEW)
