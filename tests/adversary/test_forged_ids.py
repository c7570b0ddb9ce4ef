"""Forged ids of stored objects are unknown."""

from __future__ import annotations

import random
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from time import process_time

import pytest

from proxy.dialects import read_call
from proxy.dialects.responses.sealing import ITEMS, PROOF_BYTES, ResponseIds
from proxy.dialects.responses.state_refs import resolve_response, resolve_state
from proxy.errors import BadRequest, NotFound
from proxy.types import RequestHead
from tests.adversary.shapes import SHAPES, text
from tests.doubles import Json
from tests.for_each import for_each

IDS = ResponseIds.from_secrets(["a secret of replicas"])
KEYS = ("support-widget", "search-box")
PLACES = [(key, deployment, target) for key in KEYS for deployment in "de" for target in "tu"]
HEAD = RequestHead("openai", "responses", "/v1/responses", "r")


def raw_of(sealed: str) -> bytes:
    text = sealed.removeprefix("resp_")
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def text_of(raw: bytes) -> str:
    return "resp_" + urlsafe_b64encode(raw).decode().rstrip("=")


def forged(draw: random.Random, good: list[bytes] | None = None) -> Iterator[str]:
    good = good or [
        raw_of(IDS.seal(*place, f"resp_{index}")) for place in PLACES for index in range(4)
    ]
    for data in good:
        other_data = draw.choice([item for item in good if item != data])
        yield text_of(data[:PROOF_BYTES] + other_data[PROOF_BYTES:])
        yield text_of(other_data[:PROOF_BYTES] + data[PROOF_BYTES:])
        yield text_of(data + other_data)
        yield text_of(data[: draw.randrange(len(data))])
        yield text_of(data + draw.randbytes(draw.randrange(1, 40)))
        index = draw.randrange(len(data))
        yield text_of(
            data[:index] + bytes([data[index] ^ 1 << draw.randrange(8)]) + data[index + 1 :]
        )
        # With a stream cipher, flipped bits could turn one key name into another.
        names = zip(data[PROOF_BYTES + 2 :], KEYS[0].encode(), KEYS[1].encode(), strict=False)
        hidden = data[PROOF_BYTES : PROOF_BYTES + 2] + bytes(a ^ b ^ c for a, b, c in names)
        yield text_of(data[:PROOF_BYTES] + hidden + data[PROOF_BYTES + len(hidden) :])
    for size in (*range(60), 1000, 3000, 5000, 100_000):
        yield text_of(draw.randbytes(size))


def test_combinations_of_valid_ids_do_not_open() -> None:
    draw = random.Random(7)  # noqa: S311  # reproducible

    results = [name for _ in range(40) for name in forged(draw)]
    opened = [name for name in results for key in KEYS if IDS.open(name, key)]

    assert opened == []


def test_forged_item_ids_do_not_open() -> None:
    draw = random.Random(11)  # noqa: S311  # reproducible
    good = [
        raw_of(IDS.seal(*place, f"resp_{index}", kind=ITEMS))
        for place in PLACES
        for index in range(4)
    ]
    kinds = ("msg_", "rs_", "resp_", "item_")

    results = [name.removeprefix("resp_") for _ in range(20) for name in forged(draw, good)]
    results += [name.removeprefix("resp_") for _ in range(20) for name in forged(draw)]
    opened = [
        name for name in results for key in KEYS for kind in kinds if is_open(kind + name, key)
    ]

    assert opened == []


def is_open(text: str, key: str) -> bool:
    return IDS.open(text, key, kind=ITEMS) is not None


def values_for(shape: str, prefix: str) -> Iterator[object]:
    """Yield values in the place of an id: texts of three sizes, and other types."""
    for size in (1, 100, 10_000):
        full_text = text(shape, size)
        yield from (full_text, f"{prefix}_{full_text}", [full_text], {"id": full_text}, size, True)


@for_each("shape", SHAPES)
def test_any_other_value_for_an_item_id_is_refused(shape: str) -> None:
    for value in (*values_for(shape, "msg"), None):
        for item in ({"type": "item_reference", "id": value}, {"id": value}):
            body: Json = {"model": "m", "input": [item]}
            with pytest.raises(NotFound if isinstance(value, str) else BadRequest):
                resolve_state(read_call(HEAD, body, caller=KEYS[0]), IDS)


def test_id_of_one_tenant_does_not_open_for_another() -> None:
    for key, deployment, target in PLACES:
        sealed = IDS.seal(key, deployment, target, "resp_1")
        assert [item for item in KEYS if IDS.open(sealed, item)] == [key]


@for_each("shape", SHAPES)
def test_any_other_value_for_a_response_id_is_refused(shape: str) -> None:
    for value in values_for(shape, "resp"):
        body: Json = {"model": "m", "input": "x", "previous_response_id": value}
        with pytest.raises(NotFound if isinstance(value, str) else BadRequest):
            resolve_response(read_call(HEAD, body, caller=KEYS[0]), IDS)


def test_long_id_is_refused_quickly() -> None:
    long = "resp_" + "A" * 8_000_000

    started_at = process_time()
    assert IDS.open(long, KEYS[0]) is None

    assert process_time() - started_at < 0.05
