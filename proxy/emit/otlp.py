"""Spans in OpenTelemetry's protocol: protobuf, written straight from what is known of a call.

The official encoder makes an object of every value first, some thousand function calls for a call;
a test holds what is written here against what that one writes. The numbers of fields are those of
``opentelemetry/proto/trace/v1/trace.proto`` and ``common/v1/common.proto``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from proxy.emit import semconv
from proxy.emit.redact import redacted

Value = str | bool | int | float | Sequence[str]
Attributes = Mapping[str, Value | None]
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5


def varint(number: int) -> bytes:
    """Return a number from 0 below 2**64, seven bits a byte, the lowest first."""
    written: list[int] = []
    while number > 127:
        written += (number & 127 | 128,)
        number >>= 7
    written += (number,)
    return bytes(written)


def field_tag(field: int, form: int = LENGTH) -> bytes:
    """Return what stands before a value: the number of its field and the form of what follows."""
    return varint(field << 3 | form)


_SMALL = 2048
_BYTES = tuple(map(varint, range(_SMALL)))
"""Small numbers, as most sizes are, written once."""


def length_delimited(tag: bytes, body: bytes) -> bytes:
    """Return a message, a text or bytes as a field."""
    size = len(body)
    return tag + (_BYTES[size] if size < _SMALL else varint(size)) + body


_STRING, _INT, _DOUBLE, _ARRAY = (
    field_tag(1),
    field_tag(3, VARINT),
    field_tag(4, FIXED64),
    field_tag(5),
)
encode_float = struct.Struct("<d").pack
"""The bytes of a float, after what is ``before_float``."""
_FALSE, _TRUE = field_tag(2, VARINT) + _BYTES[False], field_tag(2, VARINT) + _BYTES[True]
_ITEM = field_tag(1)


def _string(value: str) -> bytes:
    text = redacted(value.encode(errors="replace"))
    size = len(text)
    return _STRING + (_BYTES[size] if size < _SMALL else varint(size)) + text


def _bool(value: bool) -> bytes:
    return _TRUE if value else _FALSE


def _int(value: int) -> bytes | None:
    """Return an integer of 64 bits; None for a larger one, which the protocol cannot express."""
    return _INT + varint(value % 2**64) if -(2**63) <= value < 2**63 else None


def _strings(values: Sequence[str]) -> bytes:
    return length_delimited(
        _ARRAY, b"".join([length_delimited(_ITEM, _string(value)) for value in values])
    )


_WRITERS: Mapping[type, Callable[[Any], bytes | None]] = {
    str: _string,
    bool: _bool,
    int: _int,
    float: partial(struct.Struct("<cd").pack, _DOUBLE),
    list: _strings,
    tuple: _strings,
}
_KEY_TAG, _VALUE_TAG = field_tag(1), field_tag(2)


class _Keys(dict[str, tuple[bytes, int]]):
    """What stands before the values of attributes, and its size with that of the value. Names that
    a policy gives, as tags have, are written at each time."""

    def __missing__(self, name: str) -> tuple[bytes, int]:
        key = length_delimited(_KEY_TAG, name.encode(errors="replace")) + _VALUE_TAG
        return key, len(key) + 1


_KEYS = _Keys()
_KEYS.update({name: _KEYS[name] for name in vars(semconv).values() if isinstance(name, str)})


class MessageTags(NamedTuple):
    """The tags of a name and of an attribute in a message that has both."""

    name: bytes
    attribute: bytes


SPAN, EVENT = MessageTags(field_tag(5), field_tag(9)), MessageTags(field_tag(2), field_tag(3))


def encode_attributes(tags: MessageTags, attributes: Attributes) -> bytes:
    """Return attributes as fields of a message; those that are None are left out."""
    tag = tags.attribute
    parts: list[bytes] = []
    for name, value in attributes.items():
        if value is None:
            continue
        if type(value) is int and 0 <= value < _SMALL:
            written, size = _INT + _BYTES[value], 2 + (value > 127)
        else:
            made = _WRITERS[type(value)](value)
            if made is None:
                continue
            written, size = made, len(made)
        key, total = _KEYS[name]
        total += size + (size > 127)
        if total < _SMALL:
            parts += (tag, _BYTES[total], key, _BYTES[size], written)
        else:
            parts.append(length_delimited(tag, length_delimited(key, written)))
    return b"".join(parts)


def before_float(tags: MessageTags, name: str) -> bytes:
    """Return an attribute that is a float, without its eight bytes, so that it can be prepared."""
    return encode_attributes(tags, {name: 0.0})[:-8]


def encode_named(tags: MessageTags, name: str, attributes: Attributes) -> bytes:
    """Return the name and attributes of a span or an event."""
    title = length_delimited(tags.name, redacted(name.encode(errors="replace")))
    return title + encode_attributes(tags, attributes)


_TRACE_ID, _SPAN_ID, _PARENT = (
    field_tag(field) + _BYTES[size] for field, size in ((1, 16), (2, 8), (4, 8))
)
_START, _END, _TIME = field_tag(7, FIXED64), field_tag(8, FIXED64), field_tag(1, FIXED64)
_SERVER, _CLIENT = field_tag(6, VARINT) + _BYTES[2], field_tag(6, VARINT) + _BYTES[3]
_STATUS_UNSET = field_tag(15) + _BYTES[0]
_STATUS_ERROR = field_tag(15) + _BYTES[2] + field_tag(3, VARINT) + _BYTES[2]
_LOCAL_PARENT, _REMOTE_PARENT = (
    field_tag(16, FIXED32) + flags.to_bytes(4, "little") for flags in (0x100, 0x300)
)
_EVENTS, _SPANS = field_tag(11), field_tag(2)
_pack_head = struct.Struct("<2s16s2s8scQcQ").pack
_pack_time, _TIME_SIZE = struct.Struct("<cQ").pack, 9


def encode_span(
    ids: tuple[bytes, bytes, bytes],
    times: tuple[int, int],
    content: bytes,
    *,
    serves: bool,
    failed: bool,
) -> bytes:
    """Return a span as a field of its scope. ``ids`` are those of its trace, its own and of its
    parent, empty where it has none; that of one that ``serves`` is in another process. ``times``
    are nanoseconds since the epoch, ``content`` is its name, its attributes and its events."""
    trace_id, own_id, parent_id = ids
    head = _pack_head(_TRACE_ID, trace_id, _SPAN_ID, own_id, _START, times[0], _END, times[1])
    if parent_id:
        head += _PARENT + parent_id + (_REMOTE_PARENT if serves else _LOCAL_PARENT)
    else:
        head += _LOCAL_PARENT
    head += (_SERVER if serves else _CLIENT) + (_STATUS_ERROR if failed else _STATUS_UNSET)
    span = head + content
    size = len(span)
    return _SPANS + (_BYTES[size] if size < _SMALL else varint(size)) + span


def encode_time(unix_ns: int) -> bytes:
    """Return when an event was."""
    return _pack_time(_TIME, unix_ns)


def encode_events(at: bytes, contents: Iterable[bytes]) -> bytes:
    """Return events of one moment as fields of their span, by the name and attributes of each."""
    written = b""
    for content in contents:
        size = _TIME_SIZE + len(content)
        written += _EVENTS + (_BYTES[size] if size < _SMALL else varint(size)) + at + content
    return written
