"""What is kept of the patterns of the code is what the code works out of them."""

from __future__ import annotations

import orjson

from proxy.guardrails.matching.worked_out import FILE
from tools.worked_out import work_out, written


def test_what_is_kept_is_what_the_code_works_out() -> None:
    made, kept = written(work_out()), FILE.read_bytes()

    assert orjson.loads(made).keys() == orjson.loads(kept).keys()
    assert made == kept, "python -m tools.worked_out writes it anew"
