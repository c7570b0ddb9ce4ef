"""What an error that is kept must not keep."""

from __future__ import annotations


def let_frames_go(error: BaseException) -> None:
    """Take from an error that is kept its traceback, and what it came of with theirs. Their frames
    hold the call, which holds the error: a cycle that would keep every byte of it for long."""
    chain: list[BaseException | None] = [error]
    while chain:
        each = chain.pop()
        if each is not None and (each.__traceback__ or each.__context__ or each.__cause__):
            chain += [each.__context__, each.__cause__]
            each.__traceback__ = each.__context__ = each.__cause__ = None
