"""Tiny ONNX models, written byte by byte: a weight for each word and label, pooled over words."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

FLOAT, INT64 = 1, 7


def number(value: int) -> bytes:
    """Encode a protobuf varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def count(field: int, value: int) -> bytes:
    return number(field << 3) + number(value)


def part(field: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return number(field << 3 | 2) + number(len(data)) + data


def node(kind: str, inputs: Sequence[str], output: str, attributes: bytes = b"") -> bytes:
    name = b"".join(part(1, item) for item in inputs)
    return part(1, name + part(2, output) + part(4, kind) + attributes)


def ints(name: str, *values: int) -> bytes:
    return part(5, part(1, name) + b"".join(count(8, item) for item in values) + count(20, 7))


def integer(name: str, value: int) -> bytes:
    return part(5, part(1, name) + count(3, value) + count(20, 2))


def tensor(name: str, rows: Sequence[Sequence[float]]) -> bytes:
    flat = [value for row in rows for value in row]
    raw = struct.pack(f"<{len(flat)}f", *flat)
    dims = count(1, len(rows)) + count(1, len(rows[0]))
    return part(5, dims + count(2, FLOAT) + part(8, name) + part(9, raw))


def value(field: int, name: str, kind: int, *dims: str | int) -> bytes:
    shape = b"".join(
        part(1, part(2, dim) if isinstance(dim, str) else count(1, dim)) for dim in dims
    )
    return part(field, part(1, name) + part(2, part(1, count(1, kind) + part(2, shape))))


def network(
    weights: Sequence[Sequence[float]], pool: str = "ReduceMax", tokens: int | None = None
) -> bytes:
    """The logit of a label is the highest or the mean weight of the words in a text.
    ``tokens`` is how many it takes, where it takes one number alone."""
    graph = (
        node("Gather", ["W", "input_ids"], "each")
        + node(pool, ["each"], "logits", ints("axes", 1) + integer("keepdims", 0))
        + part(2, "tiny")
        + tensor("W", weights)
        + value(11, "input_ids", INT64, "batch", tokens or "tokens")
        + value(12, "logits", FLOAT, "batch", "labels")
    )
    return count(1, 8) + part(7, graph) + part(8, part(1, "") + count(2, 13))


def classifier(
    folder: Path,
    words: Mapping[str, Sequence[float]],
    labels: Sequence[str],
    *,
    pool: str = "ReduceMax",
    tokens: int | None = None,
    **config: object,
) -> str:
    """Write a model whose vocabulary are these words, an unknown one first; give its folder."""
    from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: PLC0415  # an extra

    folder.mkdir(exist_ok=True)
    vocabulary = {word: index for index, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=next(iter(words))))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "model.onnx").write_bytes(network([*words.values()], pool, tokens))
    settings = {"id2label": {str(index): label for index, label in enumerate(labels)}, **config}
    (folder / "config.json").write_text(json.dumps(settings))
    return str(folder)
