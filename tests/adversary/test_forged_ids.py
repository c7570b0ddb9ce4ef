"""Searches for forged ids that open a stored object of another tenant, deployment or target."""

from __future__ import annotations

import random
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from time import process_time
from typing import Any

import pytest

from proxy.dialects import read_call
from proxy.dialects.responses.sealing import ITEMS, PROOF_BYTES, IdSealer
from proxy.dialects.responses.state_refs import resolve_response_id, resolve_state_refs
from proxy.errors import BadRequest, NotFound
from proxy.types import RequestHead
from tests.adversary.hostile_texts import HOSTILE_TEXTS, repeat_text
from tests.doubles import Json
from tests.for_each import for_each

IDS = IdSealer.from_secrets(["a secret of replicas"])
KEYS = ("support-widget", "search-box")
OWNERS = [(key, deployment, target) for key in KEYS for deployment in "de" for target in "tu"]
HEAD = RequestHead("openai", "responses", "/v1/responses", "r")


def raw_of(sealed: str) -> bytes:
    text = sealed.removeprefix("resp_")
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def text_of(raw: bytes) -> str:
    return "resp_" + urlsafe_b64encode(raw).decode().rstrip("=")


def seal_all(**options: Any) -> list[bytes]:
    """Return the raw sealed ids of four responses of each owner."""
    return [raw_of(IDS.seal(*o, f"resp_{n}", **options)) for o in OWNERS for n in range(4)]


def iter_forged(draw: random.Random, sealed: list[bytes]) -> Iterator[str]:
    """Yield recombined, cut, extended and changed ids, and random ones."""
    for data in sealed:
        other = draw.choice([item for item in sealed if item != data])
        index = draw.randrange(len(data))
        flipped = bytes([data[index] ^ 1 << draw.randrange(8)])
        # With a stream cipher, flipped bits could turn one key name into another.
        names = zip(data[PROOF_BYTES + 2 :], KEYS[0].encode(), KEYS[1].encode(), strict=False)
        renamed = data[PROOF_BYTES : PROOF_BYTES + 2] + bytes(a ^ b ^ c for a, b, c in names)
        for forged in (
            data[:PROOF_BYTES] + other[PROOF_BYTES:],
            other[:PROOF_BYTES] + data[PROOF_BYTES:],
            data + other,
            data[: draw.randrange(len(data))],
            data + draw.randbytes(draw.randrange(1, 40)),
            data[:index] + flipped + data[index + 1 :],
            data[:PROOF_BYTES] + renamed + data[PROOF_BYTES + len(renamed) :],
        ):
            yield text_of(forged)
    for size in (*range(60), 1000, 3000, 5000, 100_000):
        yield text_of(draw.randbytes(size))


def test_forged_ids_do_not_open() -> None:
    draw = random.Random(7)  # noqa: S311  # reproducible
    responses, items = seal_all(), seal_all(kind=ITEMS)
    opened = [
        name
        for _ in range(20)
        for name in (*iter_forged(draw, responses), *iter_forged(draw, items))
        for key in KEYS
        if IDS.open(name, key)
    ]
    opened += [
        prefix + name
        for _ in range(20)
        for name in (*iter_forged(draw, items), *iter_forged(draw, responses))
        for key in KEYS
        for prefix in ("msg_", "rs_", "resp_", "item_")
        if IDS.open(prefix + name.removeprefix("resp_"), key, kind=ITEMS) is not None
    ]

    assert opened == []


def values_for(name: str, prefix: str) -> Iterator[object]:
    """Yield values in the place of an id: texts of three sizes, and other types."""
    for size in (1, 100, 10_000):
        full_text = repeat_text(name, size)
        yield from (full_text, f"{prefix}_{full_text}", [full_text], {"id": full_text}, size, True)


@for_each("name", HOSTILE_TEXTS)
def test_any_other_value_for_an_id_is_refused(name: str) -> None:
    for value in (*values_for(name, "msg"), None):
        for item in ({"type": "item_reference", "id": value}, {"id": value}):
            body: Json = {"model": "m", "input": [item]}
            with pytest.raises(NotFound if isinstance(value, str) else BadRequest):
                resolve_state_refs(read_call(HEAD, body, caller=KEYS[0]), IDS)
    for value in values_for(name, "resp"):
        body = {"model": "m", "input": "x", "previous_response_id": value}
        with pytest.raises(NotFound if isinstance(value, str) else BadRequest):
            resolve_response_id(read_call(HEAD, body, caller=KEYS[0]), IDS)


def test_id_of_one_tenant_does_not_open_for_another() -> None:
    for key, deployment, target in OWNERS:
        sealed = IDS.seal(key, deployment, target, "resp_1")
        assert [item for item in KEYS if IDS.open(sealed, item)] == [key]


def test_long_id_is_refused_quickly() -> None:
    long = "resp_" + "A" * 8_000_000

    started_at = process_time()
    assert IDS.open(long, KEYS[0]) is None

    assert process_time() - started_at < 0.05
