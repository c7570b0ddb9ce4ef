from __future__ import annotations

import random

import pytest

from proxy.guardrails.kinds.secrets import Secrets
from proxy.guardrails.matching.credential_rules import own_rules
from tests.for_each import for_each
from tests.guardrails.credentials import (
    IN_CONTEXT,
    NO_CREDENTIALS,
    PLACES,
    PREFIXES,
    URL_SAFE,
    Credential,
    draw,
    generic,
)


@pytest.fixture(scope="module")
def secrets() -> Secrets:
    return Secrets()


def found_in(secrets: Secrets, text: str) -> list[str]:
    return [text[each.start : each.end] for each in secrets.find(text)]


@for_each("credential", IN_CONTEXT, ids=lambda credential: credential.text[:40])
def test_credential_is_found_by_its_context(secrets: Secrets, credential: Credential) -> None:
    found = found_in(secrets, credential.text)

    assert len(found) == 1
    assert found[0].strip("\"'").removeprefix("ada:") == credential.secret
    assert credential.kind in {rule.kind for rule in own_rules()}


@for_each("credential", generic(), ids=lambda credential: credential.secret[:20])
def test_prefixed_random_token_is_found_in_any_place(
    secrets: Secrets, credential: Credential
) -> None:
    for place in PLACES:
        assert found_in(secrets, place.format(credential.secret)) == [credential.secret]


def test_most_drawn_tokens_are_found(secrets: Secrets) -> None:
    chance = random.Random(11)
    for prefix, alphabet in PREFIXES.items():
        tokens = [prefix + "".join(chance.choices(alphabet, k=32)) for _ in range(200)]
        found = sum(bool(secrets.find(f"use {token} here")) for token in tokens)

        assert found >= 185, prefix


@for_each("text", NO_CREDENTIALS)
def test_text_without_credential_has_no_finding(secrets: Secrets, text: str) -> None:
    assert found_in(secrets, text) == []
    assert found_in(secrets, f"See {text} and more") == []


def test_two_tokens_side_by_side_are_both_found(secrets: Secrets) -> None:
    first, second = ("acme_" + draw(seed, 40, URL_SAFE) for seed in "ab")

    for between in (" ", ",", ";", "\n", "\\n"):
        assert found_in(secrets, f"{first}{between}{second}") == [first, second]
