"""An error that is kept keeps nothing of where it was raised."""

from __future__ import annotations

import pytest

from proxy.frames import let_frames_go


def failing(error: Exception, cause: Exception | None = None) -> None:
    if cause is not None:
        try:
            failing(cause)
        except Exception as first:
            raise error from first
    raise error


def test_neither_its_own_frames_nor_those_of_what_it_came_of_are_kept() -> None:
    kept, cause = ValueError("second"), KeyError("first")
    with pytest.raises(ValueError, match="second"):
        failing(kept, cause)
    assert kept.__cause__ is cause

    let_frames_go(kept)

    for each in (kept, cause):
        assert (each.__traceback__, each.__context__, each.__cause__) == (None, None, None)
