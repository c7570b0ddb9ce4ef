from __future__ import annotations

import random

import pytest

from proxy.guards.kinds.secrets import Secrets
from proxy.guards.matching.gitleaks import (
    END,
    OWN_RULES,
    START,
    SecretRule,
    read_all_rules,
    read_rules,
)
from tests.for_each import for_each
from tests.guards.credentials import (
    IN_CONTEXT,
    NO_CREDENTIALS,
    PLACES,
    PREFIXES,
    URL_SAFE,
    Credential,
    draw,
    generic,
)
from tests.guards.samples import sample


@pytest.fixture(scope="module")
def secrets() -> Secrets:
    return Secrets()


def found_in(secrets: Secrets, text: str) -> list[str]:
    return [text[finding.start : finding.end] for finding in secrets.find(text)]


@for_each("credential", IN_CONTEXT, ids=lambda credential: credential.text[:40])
def test_credential_is_found_by_its_context(secrets: Secrets, credential: Credential) -> None:
    spans = found_in(secrets, credential.text)

    assert len(spans) == 1
    assert spans[0].strip("\"'").removeprefix("ada:") == credential.secret
    assert credential.kind in {rule.kind for rule in read_rules(OWN_RULES)}


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
        count = sum(bool(secrets.find(f"use {token} here")) for token in tokens)

        assert count >= 185, prefix


@for_each("text", NO_CREDENTIALS)
def test_text_without_credential_has_no_finding(secrets: Secrets, text: str) -> None:
    assert found_in(secrets, text) == []
    assert found_in(secrets, f"See {text} and more") == []


def test_two_tokens_side_by_side_are_both_found(secrets: Secrets) -> None:
    left_token, right_token = ("acme_" + draw(seed, 40, URL_SAFE) for seed in "ab")

    for separator in (" ", ",", ";", "\n", "\\n"):
        assert found_in(secrets, f"{left_token}{separator}{right_token}") == [
            left_token,
            right_token,
        ]


SHAPES = [
    rule
    for rule in read_rules(OWN_RULES)
    if rule.pattern.startswith(START) and rule.pattern.endswith(END)
]


def test_no_kind_is_one_of_another_file() -> None:
    assert not {rule.kind for rule in read_rules(OWN_RULES)} & {
        rule.kind for rule in read_all_rules()
    }
    assert len(SHAPES) == 12


@for_each("rule", SHAPES, ids=lambda rule: rule.kind)
def test_shape_is_found_as_group_1_and_not_within_a_longer_word(rule: SecretRule) -> None:
    shape = rule.pattern.removeprefix(START).removesuffix(END)
    key = sample(shape, random.Random(3))

    spans = rule.compiled.search(f"it is {key}, keep it".encode())
    assert spans is not None
    assert spans[1] == (6, 6 + len(key))
    assert rule.compiled.search(f"x{key}, keep it".encode()) is None
    assert rule.compiled.search(f"it is {key}{'a' * 80}".encode()) is None
