"""Documents of upstreams as JSON: read as leniently as the parser in C does, but for names that
occur twice, and within bounds of their values and their depth. A large one is read in pieces, by
who calls this beside the loop."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import orjson

from proxy.dialects.counting import count_values, distinct, read_distinct, values_of
from proxy.dialects.pieces import MOST_DEPTH, PieceReader, check_pieces, decode_pieces
from proxy.errors import ResponseTooLarge, UpstreamInvalid
from proxy.runtime.frozen import frozen
from proxy.runtime.offload import LARGE_BYTES
from proxy.types import Json

MOST_VALUES = 100_000
LOGPROBS_TIMES = 10  # as many values, if they are of log-probabilities
DEEPER = "abcdefgh"  # so many levels may be put around an answer on its way to a client
MOST_SHALLOW = MOST_DEPTH - len(DEEPER)
SHALLOW = 2 * MOST_SHALLOW  # bytes of what cannot be too deep

_BESIDE = bytes([code for code in range(256) if code not in b"[{"])
"""What opens no level: to leave it out takes a third of what it takes to count what does."""
_LEAST_INT, _MOST_INT = -(2**63), 2**64 - 1

Document = bytes | bytearray


class GatheredDocument:
    """The bytes of one document, ``limit`` of them at most: more raise ``ResponseTooLarge``."""

    __slots__ = ("_left", "_raw")

    def __init__(self, limit: int) -> None:
        self._left = limit
        self._raw = bytearray()  # a list of pieces could take many times their bytes

    def feed(self, piece: bytes) -> Sequence[Document]:
        """Take the next piece, which completes nothing."""
        self._left -= len(piece)
        if self._left < 0:
            raise ResponseTooLarge("The upstream's response exceeds max_answer_bytes.")
        self._raw += piece
        return ()

    def close(self) -> list[bytearray]:
        """Return the document: no more comes."""
        return [self._raw]

    def taken(self, document: Document) -> bytes:
        """Return the document that ``close`` has returned, and keep no second copy of it."""
        whole = bytes(document)
        self._raw.clear()
        return whole


def _no_constant(word: str) -> NoReturn:
    raise ValueError(word)


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError("out of range")
    return number


def _number(text: str) -> float:
    if len(text) < len(str(_LEAST_INT)) or _LEAST_INT <= int(text) <= _MOST_INT:
        return int(text)
    return _finite(text)


def _check_depth(raw: bytes, whole: Any) -> None:
    """Raise ``TypeError`` for a document that is too deep to be written again."""
    if len(raw.translate(None, _BESIDE)) > MOST_SHALLOW:
        orjson.dumps(deeper(whole))


def deeper(whole: Any) -> Any:
    """Return a document as deep as it may become: no deeper one could be written again."""
    for name in DEEPER:
        whole = {name: whole}
    return whole


_decoder = json.JSONDecoder(
    object_pairs_hook=distinct, parse_constant=_no_constant, parse_float=_finite, parse_int=_number
)


@frozen
class Documents:
    """Reads documents of ``most_values`` at the most, or ten times as many where the others are of
    log-probabilities.

    Where there are ``vectors``, lists of numbers do not count: those of a large document are not
    made, but written again as they came.
    """

    most_values: int = MOST_VALUES
    vectors: bool = False

    def read(self, raw: bytes) -> Json:
        """Return an object. Raises ``ResponseTooLarge``, and ``UpstreamInvalid`` for what is
        none."""
        size = len(raw)
        try:
            if size <= LARGE_BYTES and size <= self.most_values:  # a value has a byte at least
                whole = read_distinct(raw)
                if size > SHALLOW:
                    _check_depth(raw, whole)
            else:
                whole = self._read(raw)
        except (RecursionError, TypeError):
            raise UpstreamInvalid("The upstream sent JSON that is nested too deeply.") from None
        except ValueError:
            raise UpstreamInvalid("The upstream sent invalid JSON.") from None
        if type(whole) is not dict:
            raise UpstreamInvalid("The upstream sent JSON that is not an object.")
        return whole

    def read_halves(self, raw: bytes) -> Json | None:
        """Return an object that ``read`` has found invalid, if unpaired surrogates were the reason.
        None for any other document, and for more than ``LARGE_BYTES``."""
        try:
            whole = _decoder.decode(raw.decode()) if len(raw) <= LARGE_BYTES else None
        except (RecursionError, ValueError):
            return None
        return whole if type(whole) is dict else None

    def _read(self, raw: bytes) -> Any:
        beyond = not self.vectors and self._is_beyond(raw)
        if len(raw) <= LARGE_BYTES:
            whole = read_distinct(raw)
            _check_depth(raw, whole)
        else:
            allowance = ValueAllowance(self.most_values) if self.vectors else None
            whole = PieceReader(decode_pieces(raw), _decoder, allowance=allowance).read()
            check_pieces(deeper(whole))
        if beyond:
            self._check_beside_logprobs(whole)
        return whole

    def _is_beyond(self, raw: bytes) -> bool:
        """True if a document has more values than it may have without log-probabilities. They are
        counted before the first of them is made. Raises ``ResponseTooLarge``."""
        most = self.most_values * LOGPROBS_TIMES
        count = count_values(raw, most)
        if count > most:
            raise too_many_values()
        return count > self.most_values

    def _check_beside_logprobs(self, whole: Any) -> None:
        choices = whole.get("choices") if isinstance(whole, dict) else None
        listed = choices if isinstance(choices, list) else []
        theirs = [choice["logprobs"] for choice in listed if _has_logprobs(choice)]
        if values_of(whole) - sum(map(values_of, theirs)) > self.most_values:
            raise too_many_values()


@dataclass(slots=True)
class ValueAllowance:
    """How many more values a document may have."""

    left: int

    def take(self) -> None:
        """Take one. Raises ``ResponseTooLarge``."""
        self.left -= 1
        if self.left < 0:
            raise too_many_values()


def too_many_values() -> ResponseTooLarge:
    return ResponseTooLarge("The upstream's response exceeds max_answer_values.")


def _has_logprobs(choice: Any) -> bool:
    return isinstance(choice, dict) and "logprobs" in choice
