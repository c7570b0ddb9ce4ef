"""JSON as a request may be written: strictly, so that no two readers can read it differently."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any, NoReturn

import orjson

from proxy.dialects.wire.json_size import count_values
from proxy.dialects.wire.large_json import MOST_DEPTH, PieceReader, check_pieces, decode_pieces
from proxy.errors import BadRequest
from proxy.errors.words import ascii_word
from proxy.runtime.fair_queue import LARGE_BYTES
from proxy.types import Json

_NOT_A_VALUE = bytes([code for code in range(256) if code not in b",[{"])
"""Of JSON, what begins no value but the first: all that is left begins one, or is in a text."""
SMALL = 4 * 1024  # bytes, which hold so few values that nobody needs to know how many
TOO_DEEP = f"The body must not be nested more than {MOST_DEPTH} levels deep."
UNWRITABLE = {
    "Integer exceeds 64-bit range": "The body contains an integer that does not fit in 64 bits.",
    "Recursion limit reached": TOO_DEEP,
    "str is not valid UTF-8: surrogates not allowed": "The body contains an unpaired surrogate.",
    "too deep": TOO_DEEP,
}
"""What a client is told of JSON that cannot be written again, by the words of the writers."""


def _unwritable(error: Exception) -> str:
    return UNWRITABLE.get(str(error), "The body contains a value that JSON cannot represent.")


def _place(error: ValueError, raw: bytes) -> str:
    """Return where a body stops being JSON, where that is known: a large one is read in pieces."""
    if isinstance(error, json.JSONDecodeError) and len(raw) <= LARGE_BYTES:
        return f" (line {error.lineno}, column {error.colno})"
    return ""


def _no_constant(word: str) -> NoReturn:
    raise BadRequest(f"The body is not valid JSON: {word} is not a number.")


def _repeated(pairs: list[tuple[str, Any]]) -> str:
    [(name, _)] = Counter(name for name, _ in pairs).most_common(1)
    return ascii_word(name)


def _distinct(pairs: list[tuple[str, Any]]) -> Json:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise BadRequest(f'The body contains the field "{_repeated(pairs)}" twice in one object.')
    return result


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise BadRequest("The body contains a number that does not fit in a 64-bit float.")
    return number


_decoder = json.JSONDecoder(
    object_pairs_hook=_distinct, parse_constant=_no_constant, parse_float=_finite
)


def _read_small(raw: bytes) -> Any:
    try:
        document = orjson.loads(raw)
        if (
            orjson.dumps(document) == raw
        ):  # no name twice: what is written has none, and is the same
            return document
    except (ValueError, TypeError):  # the other reader says what of it is at fault
        pass
    document = _decoder.decode(raw.decode("utf-8"))
    orjson.dumps(document)  # what cannot be written as JSON again cannot be forwarded
    return document


def _read_large(raw: bytes) -> Any:
    document = PieceReader(decode_pieces(raw), _decoder).read()
    check_pieces(document)
    return document


def counted(raw: bytes, max_values: int) -> int:
    """Return the number of values of a body, for a small one an upper bound.

    Raises ``BadRequest`` for more than ``most``.
    """
    if len(raw) <= SMALL:
        values = 1 + len(raw.translate(None, _NOT_A_VALUE))
        if values <= max_values:
            return values
    values = count_values(raw, max_values)
    if values > max_values:
        raise BadRequest(f"The body must not contain more than {max_values} JSON values.")
    return values


def read_json(raw: bytes, most_values: int | None = None) -> Json:
    """Parse one JSON object in UTF-8. Raises ``BadRequest``.

    Rejected are duplicate names, NaN and infinities, lone surrogates, other encodings, integers
    beyond 64 bits, nesting that cannot be serialized again, and more than ``most_values`` values,
    which are counted before parsing. Large bodies are parsed in pieces; ``_read_small`` is faster
    for others.
    """
    if most_values is not None:
        counted(raw, most_values)
    try:
        document = _read_large(raw) if len(raw) > LARGE_BYTES else _read_small(raw)
    except ValueError as error:
        raise BadRequest(f"The body is not valid JSON in UTF-8{_place(error, raw)}.") from None
    except RecursionError:
        raise BadRequest(TOO_DEEP) from None
    except TypeError as error:
        raise BadRequest(_unwritable(error)) from None
    if not isinstance(document, dict):
        raise BadRequest("The body must be a JSON object.")
    return document
