"""Parses JSON documents of upstreams within bounds of size, values and depth.

Rejects objects with the same name twice. The caller parses a large document in a thread; it is
parsed in pieces, so that other threads can run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import orjson

from proxy.dialects.wire.json_size import count_values, distinct, read_distinct, values_of
from proxy.dialects.wire.large_json import MOST_DEPTH, PieceReader, check_pieces, decode_pieces
from proxy.errors import ResponseTooLarge, UpstreamInvalid
from proxy.runtime.fair_queue import LARGE_BYTES
from proxy.runtime.frozen import frozen
from proxy.types import Json

MOST_VALUES = 100_000
LOGPROBS_TIMES = 10  # times as many values, if the others are in log-probabilities
DEEPER = "abcdefgh"  # one letter for each level that may be put around a response
MOST_SHALLOW = MOST_DEPTH - len(DEEPER)
SHALLOW = 2 * MOST_SHALLOW  # bytes of a document that cannot be too deep

_NOT_A_LEVEL = bytes([code for code in range(256) if code not in b"[{"])
"""All bytes that open no level. Deleting them takes a third of the time of counting the others."""
_LEAST_INT, _MOST_INT = -(2**63), 2**64 - 1

Document = bytes | bytearray


class GatheredDocument:
    """Collects the bytes of one document. Raises ``ResponseTooLarge`` above `limit` bytes."""

    __slots__ = ("_raw", "_remaining")

    def __init__(self, limit: int) -> None:
        self._remaining = limit
        self._raw = bytearray()  # a list of pieces could take many times their bytes

    def feed(self, piece: bytes) -> Sequence[Document]:
        self._remaining -= len(piece)
        if self._remaining < 0:
            raise ResponseTooLarge("The upstream's response exceeds max_answer_bytes.")
        self._raw += piece
        return ()

    def close(self) -> list[bytearray]:
        return [self._raw]

    def taken(self, document: Document) -> bytes:
        """Return the document that ``close`` has returned, without keeping a second copy."""
        raw = bytes(document)
        self._raw.clear()
        return raw


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


def _check_depth(raw: bytes, document: Any) -> None:
    """Raise ``TypeError`` for a document that is too deep to be serialized again."""
    if len(raw.translate(None, _NOT_A_LEVEL)) > MOST_SHALLOW:
        orjson.dumps(deeper(document))


def deeper(document: Any) -> Any:
    """Return a document within as many levels as a writer may put around it."""
    for name in DEEPER:
        document = {name: document}
    return document


_decoder = json.JSONDecoder(
    object_pairs_hook=distinct, parse_constant=_no_constant, parse_float=_finite, parse_int=_number
)


@frozen
class Documents:
    """Parses documents with at most `most_values` values.

    Documents may have ten times as many if the others are in log-probabilities. With `vectors`,
    lists of numbers do not count; in a large document they are kept as text.
    """

    most_values: int = MOST_VALUES
    vectors: bool = False

    def read(self, raw: bytes) -> Json:
        """Return an object. Raises ``ResponseTooLarge`` or ``UpstreamInvalid``."""
        size = len(raw)
        try:
            if size <= LARGE_BYTES and size <= self.most_values:  # a value takes at least a byte
                document = read_distinct(raw)
                if size > SHALLOW:
                    _check_depth(raw, document)
            else:
                document = self._read_many_values(raw)
        except (RecursionError, TypeError):
            raise UpstreamInvalid("The upstream sent JSON that is nested too deeply.") from None
        except ValueError:
            raise UpstreamInvalid("The upstream sent invalid JSON.") from None
        if type(document) is not dict:
            raise UpstreamInvalid("The upstream sent JSON that is not an object.")
        return document

    def read_halves(self, raw: bytes) -> Json | None:
        """Return an object with unpaired surrogates, which ``read`` rejects. None for any other
        document, and above ``LARGE_BYTES``."""
        try:
            document = _decoder.decode(raw.decode()) if len(raw) <= LARGE_BYTES else None
        except (RecursionError, ValueError):
            return None
        return document if type(document) is dict else None

    def _read_many_values(self, raw: bytes) -> Any:
        count, max_values = 0, self.most_values * LOGPROBS_TIMES
        if not self.vectors:
            count = count_values(raw, max_values)  # before the first value is made
            if count > max_values:
                raise _too_many_values()
        if len(raw) <= LARGE_BYTES:
            document = read_distinct(raw)
            _check_depth(raw, document)
        else:
            allowance = ValueAllowance(self.most_values) if self.vectors else None
            document = PieceReader(decode_pieces(raw), _decoder, allowance=allowance).read()
            check_pieces(deeper(document))
        if count > self.most_values:
            logprobs = sum(map(values_of, _logprobs_in(document)))
            if values_of(document) - logprobs > self.most_values:
                raise _too_many_values()
        return document


def _logprobs_in(document: Any) -> list[Any]:
    """Return the log-probabilities in the objects of lists at the top of a document."""
    members = document.values() if isinstance(document, dict) else ()
    items = [item for member in members if isinstance(member, list) for item in member]
    return [item["logprobs"] for item in items if isinstance(item, dict) and "logprobs" in item]


@dataclass(slots=True)
class ValueAllowance:
    """The remaining number of values that a document may have."""

    remaining: int

    def take(self) -> None:
        self.remaining -= 1
        if self.remaining < 0:
            raise _too_many_values()


def _too_many_values() -> ResponseTooLarge:
    return ResponseTooLarge("The upstream's response exceeds max_answer_values.")
