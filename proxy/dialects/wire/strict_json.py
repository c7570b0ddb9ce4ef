"""Parses and writes JSON of clients and upstreams.

Parsing is strict, so that no other parser can read a document differently: duplicate names are
rejected, and the number of values and the depth are bounded. The caller parses a large document in
a thread; it is parsed in pieces, so that other threads can run.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NoReturn

import orjson

from proxy.dialects.wire import large_json
from proxy.errors import BadRequest, ResponseTooLarge, UpstreamInvalid
from proxy.errors.words import shorten_to_ascii
from proxy.runtime.fair_queue import LARGE_BYTES
from proxy.runtime.frozen import frozen
from proxy.types import Json

MAX_NAME_LENGTH = 128
"""Maximum length of a name or an id; a longer string is a text."""
MAX_VALUES = 100_000
LOGPROBS_FACTOR = 10  # factor for documents whose other values are log-probabilities
WRITER_LEVELS = "abcdefgh"  # one letter for each level that the proxy may add around a response
MAX_RESPONSE_DEPTH = large_json.MAX_DEPTH - len(WRITER_LEVELS)
SHALLOW_BYTES = 2 * MAX_RESPONSE_DEPTH  # a document of fewer bytes cannot be too deep
SMALL_BYTES = 4 * 1024  # a request of fewer bytes needs no exact count of its values
JSON_SPACE = b" \t\r\n"
TOO_DEEP = f"The body must not be nested more than {large_json.MAX_DEPTH} levels deep."
SERIALIZATION_ERRORS = {
    "Integer exceeds 64-bit range": "The body contains an integer that does not fit in 64 bits.",
    "Recursion limit reached": TOO_DEEP,
    "str is not valid UTF-8: surrogates not allowed": "The body contains an unpaired surrogate.",
    "too deep": TOO_DEEP,
}
"""Error messages for unserializable JSON, by the message of the JSON writer."""

_NOT_A_VALUE = bytes([code for code in range(256) if code not in b"[{,"])
"""Bytes that precede no value. Deleting them takes a third of the time of counting the others."""
_LEAST_INT, _MOST_INT = -(2**63), 2**64 - 1

Document = bytes | bytearray


# Values and decoders


def count_values_up_to(raw: bytes, maximum: int, size: int = large_json.PIECE_BYTES) -> int:
    """Return the number of values in JSON bytes. Counting stops above ``maximum``.

    A value follows a comma, or is the first one of an object or a list. Strings are skipped.
    """
    inside, values, position, previous = False, 1, 0, b""
    # One more, because the last one may open an empty list.
    while position < len(raw) and values <= maximum + 1:
        piece = raw[position : position + size]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:  # do not cut an escape
            piece = raw[position : position + size + 1]
        position += len(piece)
        parts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"x".join(parts[inside::2]).translate(None, JSON_SPACE)
        values += sum(map(outside.count, (b",", b"[", b"{")))
        # Empty lists and objects have no first value.
        values -= sum(map((previous + outside).count, (b"[]", b"{}")))
        inside ^= len(parts) % 2 == 0
        previous = b"" if inside else outside[-1:] or previous
    return values - (previous in (b"[", b"{"))


def count_parsed_values(value: Any) -> int:
    """Return the number of values in a parsed document, itself included."""
    count, stack = 0, [value]
    while stack:  # no recursion: an upstream chooses how deep its responses are
        item = stack.pop()
        count += 1
        if isinstance(item, dict):
            stack += item.values()
        elif isinstance(item, list):
            stack += item
    return count


def parse_rejecting_duplicates(raw: bytes) -> Any:
    """Parse JSON. Raises ``ValueError``, also if an object has the same name twice."""
    document = orjson.loads(raw)
    try:
        written = orjson.dumps(document)
    except TypeError:  # too deep
        written = b""
    # Without repeated names both have as many strings, and without Unicode escapes as many quotes.
    if written == raw or (b"\\u" not in raw and written.count(b'"') == raw.count(b'"')):
        return document
    if count_values_up_to(raw, len(raw)) != count_parsed_values(document):
        raise ValueError("an object has the same name twice")
    return document


def _refuse_constant(word: str) -> NoReturn:
    raise BadRequest(f"The body is not valid JSON: {word} is not a number.")


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> Json:
    result = dict(pairs)
    if len(result) < len(pairs):
        [(name, _)] = Counter(name for name, _ in pairs).most_common(1)
        name = shorten_to_ascii(name)
        raise BadRequest(f'The body contains the field "{name}" twice in one object.')
    return result


def _parse_finite_float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise BadRequest("The body contains a number that does not fit in a 64-bit float.")
    return number


def _parse_response_integer(text: str) -> float:
    """Parse an integer of a response. Above 64 bits it becomes a float, as orjson reads it."""
    if len(text) < len(str(_LEAST_INT)) or _LEAST_INT <= int(text) <= _MOST_INT:
        return int(text)
    return _parse_finite_float(text)


_request_decoder, _response_decoder = (
    json.JSONDecoder(
        object_pairs_hook=_refuse_duplicates,
        parse_constant=_refuse_constant,
        parse_float=_parse_finite_float,
        parse_int=parse_int,
    )
    for parse_int in (int, _parse_response_integer)
)


# Values of any type


def as_object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def as_objects(value: Any) -> list[Json]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def as_int(value: Any) -> int:
    return value if type(value) is int else 0


def get_int(value: Json, name: str) -> int | None:
    """Return a member, None unless it is an integer."""
    member = value.get(name)
    return member if type(member) is int else None


def is_null_or_word(value: Any) -> bool:
    """Return True for null, and for a string without white space of at most 128 characters."""
    if value.__class__ is not str:
        return value is None
    return len(value) <= MAX_NAME_LENGTH and value.split() in ([value], [])


def dump(value: Any, estimated_bytes: int) -> bytes:
    """Return a value as JSON, written in pieces if large. Half a surrogate pair stays escaped."""
    try:
        is_large = estimated_bytes > large_json.PIECE_BYTES
        return large_json.serialize_large(value) if is_large else orjson.dumps(value)
    except TypeError:
        return json.dumps(value).encode()


# Requests


def _parse_small_body(raw: bytes) -> Any:
    try:
        document = orjson.loads(raw)
        if orjson.dumps(document) == raw:  # it serializes to the same bytes, so no name is repeated
            return document
    except (ValueError, TypeError):  # the slower decoder reports the problem
        pass
    document = _request_decoder.decode(raw.decode("utf-8"))
    orjson.dumps(document)  # raises if the document cannot be forwarded
    return document


def count_body_values(raw: bytes, max_values: int) -> int:
    """Return the number of JSON values of a body.

    For a small body this may be an upper bound. Raises ``BadRequest`` for more than ``max_values``.
    """
    if len(raw) <= SMALL_BYTES:
        values = 1 + len(raw.translate(None, _NOT_A_VALUE))
        if values <= max_values:
            return values
    values = count_values_up_to(raw, max_values)
    if values > max_values:
        raise BadRequest(f"The body must not contain more than {max_values} JSON values.")
    return values


def read_json(raw: bytes) -> Json:
    """Parse one JSON object in UTF-8. Raises ``BadRequest``.

    Rejected are duplicate names, NaN and infinities, lone surrogates, other encodings, integers
    beyond 64 bits, and nesting that cannot be serialized again. Large bodies are parsed in pieces;
    ``_parse_small_body`` is faster for others.
    """
    try:
        if len(raw) > LARGE_BYTES:
            text = large_json.decode_large_utf8(raw)
            document = large_json.LargeJsonReader(text, _request_decoder).read()
            large_json.check_serializable(document)
        else:
            document = _parse_small_body(raw)
    except ValueError as error:
        place = ""
        if isinstance(error, json.JSONDecodeError) and len(raw) <= LARGE_BYTES:
            place = f" (line {error.lineno}, column {error.colno})"
        raise BadRequest(f"The body is not valid JSON in UTF-8{place}.") from None
    except RecursionError:
        raise BadRequest(TOO_DEEP) from None
    except TypeError as error:
        other = "The body contains a value that JSON cannot represent."
        raise BadRequest(SERIALIZATION_ERRORS.get(str(error), other)) from None
    if not isinstance(document, dict):
        raise BadRequest("The body must be a JSON object.")
    return document


# Responses


class DocumentBuffer:
    """Collects the bytes of one document. Raises ``ResponseTooLarge`` above ``limit`` bytes."""

    def __init__(self, limit: int) -> None:
        self._remaining = limit
        self._raw = bytearray()  # a list of small pieces could take a multiple of their bytes

    def feed(self, piece: bytes) -> Sequence[Document]:
        self._remaining -= len(piece)
        if self._remaining < 0:
            raise ResponseTooLarge("The upstream's response exceeds max_answer_bytes.")
        self._raw += piece
        return ()

    def close(self) -> list[bytearray]:
        return [self._raw]

    def pop_document(self, document: Document) -> bytes:
        """Return ``document``, the buffer that ``close`` returned, as bytes. Empties the buffer."""
        raw = bytes(document)
        self._raw.clear()
        return raw


def wrap_in_writer_levels(document: Any) -> Any:
    """Return a document in as many objects as a writer may put around it, to check its depth."""
    for name in WRITER_LEVELS:
        document = {name: document}
    return document


@frozen
class DocumentParser:
    """Parses documents with at most ``max_values`` values, besides those in log-probabilities.

    Including these, a document may have ten times as many. With ``allows_vectors``, lists of
    numbers do not count; in a large document they are kept as text.
    """

    max_values: int = MAX_VALUES
    allows_vectors: bool = False

    def read(self, raw: bytes) -> Json:
        """Return an object. Raises ``ResponseTooLarge`` or ``UpstreamInvalid``."""
        size = len(raw)
        try:
            if size <= LARGE_BYTES and size <= self.max_values:  # a value takes at least a byte
                document = parse_rejecting_duplicates(raw)
                if size > SHALLOW_BYTES:
                    orjson.dumps(wrap_in_writer_levels(document))
            else:
                document = self._read_many_values(raw)
        except (RecursionError, TypeError):
            raise UpstreamInvalid("The upstream sent JSON that is nested too deeply.") from None
        except (BadRequest, ValueError):
            raise UpstreamInvalid("The upstream sent invalid JSON.") from None
        if type(document) is not dict:
            raise UpstreamInvalid("The upstream sent JSON that is not an object.")
        return document

    def read_with_surrogates(self, raw: bytes) -> Json | None:
        """Return an object that may have unpaired surrogates, which ``read`` rejects.

        Returns None for an invalid document, and above ``LARGE_BYTES``.
        """
        try:
            document = _response_decoder.decode(raw.decode()) if len(raw) <= LARGE_BYTES else None
        except (BadRequest, RecursionError, ValueError):
            return None
        return document if type(document) is dict else None

    def _read_many_values(self, raw: bytes) -> Any:
        count, maximum = 0, self.max_values * LOGPROBS_FACTOR
        if not self.allows_vectors:
            count = count_values_up_to(raw, maximum)  # count before any value is allocated
            if count > maximum:
                raise large_json.make_too_many_values_error()
        if len(raw) <= LARGE_BYTES:
            document = parse_rejecting_duplicates(raw)
            orjson.dumps(wrap_in_writer_levels(document))
        else:
            budget = large_json.ValueBudget(self.max_values) if self.allows_vectors else None
            text = large_json.decode_large_utf8(raw)
            document = large_json.LargeJsonReader(text, _response_decoder, budget=budget).read()
            large_json.check_serializable(wrap_in_writer_levels(document))
        if count > self.max_values:
            items = [item for member in as_object(document).values() for item in as_objects(member)]
            logprobs = [item["logprobs"] for item in items if "logprobs" in item]
            count = count_parsed_values(document) - sum(map(count_parsed_values, logprobs))
            if count > self.max_values:
                raise large_json.make_too_many_values_error()
        return document
