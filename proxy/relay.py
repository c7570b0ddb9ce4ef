"""An answer on its way to whoever asked: every frame accounted, looked at by guards, and shown."""

from __future__ import annotations

from collections.abc import Sequence

from proxy.errors import ProxyError, UpstreamError
from proxy.ports import Answer, Shown, Watch
from proxy.record import Record
from proxy.turn import LoopTurn, LoopTurns
from proxy.types.events import Frame

TOGETHER = 64  # frames that are handed on in one go


async def relay(answer: Answer, watch: Watch, record: Record, to: Shown, turns: LoopTurns) -> None:
    """Hand an answer on, frame by frame; one that is not streamed is one frame per leg. What has
    come together is looked at frame by frame, and leaves together."""
    turn = LoopTurn(record.now, turns, record.key)
    straight = StraightWay(watch, record, to)
    shown = straight.shown
    try:
        async for frames in answer.frames(straight.hand_on):
            turn.begin()
            try:
                for frame in straight.left_of(frames):
                    record.account(frame)  # account: all that was said, shown or not
                    safe = watch.feed_at_once(frame)  # inspect output: hold back, mask, or raise
                    shown += await _looked(watch, frame, turn) if safe is None else safe
                    if watch.again:
                        return
            except ProxyError:  # what was clear before it is shown
                await _show(shown, to, turn)
                raise
            await _show(shown, to, turn)
            shown.clear()
    except UpstreamError:
        await _show(watch.cut(), to, turn)
        raise


class StraightWay:
    """The way of frames on which nobody waits: they are accounted, looked at and sent as they come,
    without waking the task that waits for them. ``shown`` are those that are clear, and not sent.
    """

    __slots__ = ("_error", "_record", "_rest", "_to", "_watch", "shown")

    def __init__(self, watch: Watch, record: Record, to: Shown) -> None:
        self._watch = watch
        self._record = record
        self._to = to
        self.shown: list[Frame] = []
        self._rest: Sequence[Frame] | None = None
        self._error: ProxyError | None = None

    def hand_on(self, frames: Sequence[Frame]) -> bool:
        """Take frames of an answer. False if something has to be waited for, or has gone wrong:
        ``left_of`` tells what is left."""
        shown, watch = self.shown, self._watch
        for place, frame in enumerate(frames):
            try:
                safe = watch.feed_at_once(frame)
            except ProxyError as error:
                self._record.account(frame)
                self._error, self._rest = error, ()
                return False
            if safe is None:
                self._rest = frames[place:]
                return False
            self._record.account(frame)
            shown += safe
        if shown and not self._to.send_at_once(shown):
            self._rest = ()
            return False
        shown.clear()
        return True

    def left_of(self, frames: Sequence[Frame]) -> Sequence[Frame]:
        """Return those of the frames that nobody has looked at. Raise what a guard has said."""
        if self._error is not None:
            raise self._failure()
        rest, self._rest = self._rest, None
        return frames if rest is None else rest

    def _failure(self) -> ProxyError:
        """Return what is raised now, and kept by nobody: it will hold the frame that raises it."""
        error, self._error = self._error, None
        return error or ProxyError("")


async def _looked(watch: Watch, frame: Frame, turn: LoopTurn) -> Sequence[Frame]:
    """Return what may be shown once guards have looked, and others have had their turn."""
    safe = await watch.feed(frame)
    if turn.is_over():
        await turn.rest()
    return safe


async def _show(frames: Sequence[Frame], to: Shown, turn: LoopTurn) -> None:
    """Send what may be shown, be it nothing or all that was held back."""
    for at in range(0, len(frames), TOGETHER):
        await to.send(frames[at : at + TOGETHER])
        if turn.is_over():
            await turn.rest()
    if not frames and turn.is_over():
        await turn.rest()
