"""JSON as a request may be written: strictly, so that no two readers can read it differently."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

import orjson

from proxy.errors import BadRequest
from proxy.types import Json


def _no_constant(word: str) -> NoReturn:
    raise BadRequest(f"The body is not valid JSON: {word} is no number.")


def _distinct(pairs: list[tuple[str, Any]]) -> Json:
    whole = dict(pairs)
    if len(whole) < len(pairs):
        raise BadRequest("The body names a field twice in one object.")
    return whole


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise BadRequest("The body holds a number that is out of range.")
    return number


_decode = json.JSONDecoder(
    object_pairs_hook=_distinct, parse_constant=_no_constant, parse_float=_finite
).decode


def read_json(raw: bytes) -> Json:
    """Read one JSON object in UTF-8. Raises ``BadRequest``.

    Refused are duplicate names, NaN and infinities, lone surrogates, other encodings, integers
    beyond 64 bits, and nesting so deep that it could not be written again.
    """
    try:
        whole = _decode(raw.decode("utf-8"))
        orjson.dumps(whole)  # what cannot be written as JSON again cannot be forwarded
    except (ValueError, RecursionError, TypeError):
        raise BadRequest("The body is not valid JSON in UTF-8.") from None
    if not isinstance(whole, dict):
        raise BadRequest("The body must be a JSON object.")
    return whole
