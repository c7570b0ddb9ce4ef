"""Relays a response: each frame is metered, inspected by guards and sent to the client."""

from __future__ import annotations

from collections.abc import Sequence

from proxy.call.record import Record
from proxy.errors import ProxyError, UpstreamError
from proxy.ports import OutputGuards, Sink, UpstreamResponse
from proxy.runtime.turn import LoopTurn, LoopTurns
from proxy.types.events import Frame

TOGETHER = 64  # frames that are sent at a time


async def relay(
    answer: UpstreamResponse, watch: OutputGuards, record: Record, to: Sink, turns: LoopTurns
) -> None:
    """Relay a response frame by frame. Frames that arrive together are sent together. A response
    without a stream has one frame for each model call."""
    turn = LoopTurn(record.now, turns, record.key)
    straight = StraightWay(watch, record, to)
    shown = straight.shown
    try:
        async for frames in answer.frames(straight.hand_on):
            turn.begin()
            try:
                for frame in straight.left_of(frames):
                    record.meter(frame)  # account: sent or not
                    safe = watch.try_inspect(frame)  # inspect output: hold back, mask, or raise
                    shown += await _looked(watch, frame, turn) if safe is None else safe
                    if watch.retry_requested:
                        return
            except ProxyError:  # frames that are clear are sent before the error
                await _show(shown, to, turn)
                raise
            await _show(shown, to, turn)
            shown.clear()
    except UpstreamError:
        await _show(watch.abort(), to, turn)
        raise


class StraightWay:
    """Relays frames as they arrive, without waking the task that waits for them. ``shown`` are the
    frames that are clear and not yet sent."""

    __slots__ = ("_error", "_record", "_rest", "_to", "_watch", "shown")

    def __init__(self, watch: OutputGuards, record: Record, to: Sink) -> None:
        self._watch = watch
        self._record = record
        self._to = to
        self.shown: list[Frame] = []
        self._rest: Sequence[Frame] | None = None
        self._error: ProxyError | None = None

    def hand_on(self, frames: Sequence[Frame]) -> bool:
        """Relay frames. Return False if one needs to wait, or has failed: ``left_of`` returns those
        that are left."""
        shown, watch = self.shown, self._watch
        for place, frame in enumerate(frames):
            try:
                safe = watch.try_inspect(frame)
            except ProxyError as error:
                self._record.meter(frame)
                self._error, self._rest = error, ()
                return False
            if safe is None:
                self._rest = frames[place:]
                return False
            self._record.meter(frame)
            shown += safe
        if shown and not self._to.try_send(shown):
            self._rest = ()
            return False
        shown.clear()
        return True

    def left_of(self, frames: Sequence[Frame]) -> Sequence[Frame]:
        """Return the frames that were not inspected. Raises the error of a guard."""
        if self._error is not None:
            raise self._failure()
        rest, self._rest = self._rest, None
        return frames if rest is None else rest

    def _failure(self) -> ProxyError:
        """Return the error to raise, and drop it: its traceback will refer to this object."""
        error, self._error = self._error, None
        return error or ProxyError("")


async def _looked(watch: OutputGuards, frame: Frame, turn: LoopTurn) -> Sequence[Frame]:
    """Return the frames that guards release, once other calls have had their turn."""
    safe = await watch.inspect(frame)
    if turn.is_over():
        await turn.rest()
    return safe


async def _show(frames: Sequence[Frame], to: Sink, turn: LoopTurn) -> None:
    """Send frames, perhaps none or all that were held back."""
    for at in range(0, len(frames), TOGETHER):
        await to.send(frames[at : at + TOGETHER])
        if turn.is_over():
            await turn.rest()
    if not frames and turn.is_over():
        await turn.rest()
