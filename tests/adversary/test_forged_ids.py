"""Forged ids of stored objects are unknown, whatever they are made of."""

from __future__ import annotations

import random
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from time import process_time

import pytest

from proxy.dialects import read_call
from proxy.dialects.responses.sealing import PROOF_BYTES, ResponseIds
from proxy.dialects.responses.state_refs import resolve_response, resolve_state
from proxy.errors import BadRequest, NotFound
from proxy.types import RequestHead
from tests.adversary.shapes import SHAPES, text
from tests.doubles import Json
from tests.for_each import for_each

IDS = ResponseIds.of(["a secret of replicas"])
KEYS = ("support-widget", "search-box")
PLACES = [(key, deployment, target) for key in KEYS for deployment in "de" for target in "tu"]
HEAD = RequestHead("openai", "responses", "/v1/responses", "r")


def raw_of(sealed: str) -> bytes:
    text = sealed.removeprefix("resp_")
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def text_of(raw: bytes) -> str:
    return "resp_" + urlsafe_b64encode(raw).decode().rstrip("=")


def forged(draw: random.Random, good: list[bytes] | None = None) -> Iterator[str]:
    good = good or [raw_of(IDS.seal(*place, f"resp_{at}")) for place in PLACES for at in range(4)]
    for one in good:
        other = draw.choice([each for each in good if each != one])
        yield text_of(one[:PROOF_BYTES] + other[PROOF_BYTES:])
        yield text_of(other[:PROOF_BYTES] + one[PROOF_BYTES:])
        yield text_of(one + other)
        yield text_of(one[: draw.randrange(len(one))])
        yield text_of(one + draw.randbytes(draw.randrange(1, 40)))
        at = draw.randrange(len(one))
        yield text_of(one[:at] + bytes([one[at] ^ 1 << draw.randrange(8)]) + one[at + 1 :])
        # What a stream hides changes with each bit: the key of another tenant in its place.
        names = zip(one[PROOF_BYTES + 2 :], KEYS[0].encode(), KEYS[1].encode(), strict=False)
        hidden = one[PROOF_BYTES : PROOF_BYTES + 2] + bytes(a ^ b ^ c for a, b, c in names)
        yield text_of(one[:PROOF_BYTES] + hidden + one[PROOF_BYTES + len(hidden) :])
    for size in (*range(60), 1000, 3000, 5000, 100_000):
        yield text_of(draw.randbytes(size))


def test_nothing_that_is_made_of_good_ids_opens() -> None:
    draw = random.Random(7)  # noqa: S311  # the same each time

    made = [each for _ in range(40) for each in forged(draw)]
    opened = [each for each in made for key in KEYS if IDS.open(each, key)]

    assert opened == []


def test_nothing_that_is_made_of_good_ids_of_items_opens() -> None:
    draw = random.Random(11)  # noqa: S311  # the same each time
    good = [raw_of(IDS.seal_item(*place, f"resp_{at}")) for place in PLACES for at in range(4)]
    kinds = ("msg_", "rs_", "resp_", "item_")

    made = [each.removeprefix("resp_") for _ in range(20) for each in forged(draw, good)]
    made += [each.removeprefix("resp_") for _ in range(20) for each in forged(draw)]
    opened = [each for each in made for key in KEYS for kind in kinds if is_open(kind + each, key)]

    assert opened == []


def is_open(text: str, key: str) -> bool:
    return IDS.open_item(text, key) is not None


@for_each("shape", SHAPES)
def test_whatever_stands_for_an_item_is_refused(shape: str) -> None:
    for size in (1, 100, 10_000):
        whole = text(shape, size)
        values: list[object] = [whole, f"msg_{whole}", [whole], {"id": whole}, size, True, None]
        for value in values:
            for item in ({"type": "item_reference", "id": value}, {"id": value}):
                body: Json = {"model": "m", "input": [item]}
                with pytest.raises(NotFound if isinstance(value, str) else BadRequest):
                    resolve_state(read_call(HEAD, body, caller=KEYS[0]), IDS)


def test_no_id_of_one_tenant_opens_for_another() -> None:
    for key, deployment, target in PLACES:
        sealed = IDS.seal(key, deployment, target, "resp_1")
        assert [each for each in KEYS if IDS.open(sealed, each)] == [key]


@for_each("shape", SHAPES)
def test_whatever_stands_for_an_id_is_refused(shape: str) -> None:
    for size in (1, 100, 10_000):
        whole = text(shape, size)
        values: list[object] = [whole, f"resp_{whole}", [whole], {"id": whole}, size, True]
        for value in values:
            body: Json = {"model": "m", "input": "x", "previous_response_id": value}
            with pytest.raises(NotFound if isinstance(value, str) else BadRequest):
                resolve_response(read_call(HEAD, body, caller=KEYS[0]), IDS)


def test_a_long_id_takes_no_time() -> None:
    long = "resp_" + "A" * 8_000_000

    began = process_time()
    assert IDS.open(long, KEYS[0]) is None

    assert process_time() - began < 0.05
