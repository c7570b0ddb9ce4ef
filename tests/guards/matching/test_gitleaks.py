"""Rules for secrets: those of Gitleaks, and our own."""

from __future__ import annotations

import hashlib
import random
import re
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.guards.kinds.secrets import Secrets
from proxy.guards.matching import gitleaks
from proxy.guards.matching.gitleaks import (
    MAX_TOKEN_BYTES,
    OWN_RULES,
    VALUE_END,
    VALUE_START,
    SecretRule,
    is_basic_credential,
    is_literal_value,
    is_password,
    is_prefixed_random_token,
    read_gitleaks_and_betterleaks_rules,
    read_rule_file,
    shannon_entropy,
)
from proxy.guards.matching.re2set import iter_compile_steps
from tests.for_each import for_each
from tests.guards import credentials
from tests.guards.credentials import Credential, draw
from tests.guards.samples import sample

ONE_RULE = r"""
[allowlist]
regexes = ['^order-0+$']
[[rules]]
id = "{kind}"
regex = '''{regex}'''
keywords = ["order"]
{more}
"""


def rule(folder: Path, regex: str, extra: str = "") -> SecretRule:
    file = folder / "rules.toml"
    file.write_text(ONE_RULE.format(kind="order-key", regex=regex, more=extra))
    return read_rule_file(file)[0]


def secret_in(secret_rule: SecretRule, text: str) -> str | None:
    data = text.encode()
    spans = secret_rule.compiled.search(data)
    place = spans and secret_rule.find_secret(data, spans)
    return data[slice(*place)].decode() if place else None


def test_rule_file_has_the_documented_digest() -> None:
    digest = hashlib.sha256(gitleaks.GITLEAKS_RULES.read_bytes()).hexdigest()

    assert digest in gitleaks.GITLEAKS_RULES.with_name("README.md").read_text()
    for licence in ("gitleaks.LICENSE", "betterleaks.LICENSE"):
        assert "MIT" in gitleaks.GITLEAKS_RULES.with_name(licence).read_text()


def test_every_content_rule_of_the_file_is_loaded() -> None:
    kinds: list[str] = []
    for file, count in ((gitleaks.GITLEAKS_RULES, 221), (gitleaks.BETTERLEAKS_RULES, 20)):
        kinds += [rule.kind for rule in read_rule_file(file)]
        assert file.read_text().count("\nregex = ") == count
    assert len(kinds) == 241
    kinds += {rule.kind for rule in read_rule_file(OWN_RULES)}
    assert len(kinds) == len({*kinds})
    assert sum(1 for entry in read_rule_file() if entry.name_pattern) == 100


def test_unbounded_repetition_is_only_of_character_classes() -> None:
    unbounded = re.compile(r"\{\d+,\}|(?<!@)\.[*+]")

    assert not [
        r.kind for r in read_gitleaks_and_betterleaks_rules() if unbounded.search(r.pattern)
    ]


@for_each(
    ("text", "match"), [("order-17a", "order-17a"), ("order-000", None), ("order-test9", None)]
)
def test_allowlisted_text_is_no_secret(tmp_path: Path, text: str, match: str | None) -> None:
    extra = "[[rules.allowlists]]\nstopwords = ['test']"

    assert secret_in(rule(tmp_path, "order-[0-9a-z]+", extra), text) == match


@for_each(
    ("allowlist", "match"),
    [
        ("regexTarget = 'match'\nregexes = ['my-order']", None),
        ("regexTarget = 'match'\nregexes = ['line']", "17a17a"),
        ("regexTarget = 'line'\nregexes = ['first']", "17a17a"),
        ("regexTarget = 'line'\nregexes = ['second line']", None),
        ("regexTarget = 'line'\nregexes = ['17a end']", None),
        # The match starts after "17"; no stream waits for it.
        ("regexTarget = 'line'\nregexes = ['end']", "17a17a"),
        ("condition = 'AND'\npaths = ['x']\nregexes = ['17a']", "17a17a"),
    ],
)
def test_allowlist_may_inspect_match_or_line(
    tmp_path: Path, allowlist: str, match: str | None
) -> None:
    secret_rule = rule(tmp_path, "order-([0-9a-z]+)", f"[[rules.allowlists]]\n{allowlist}")

    assert secret_in(secret_rule, "first line\nsecond line my-order-17a17a end\nlast line") == match


def test_keyword_must_be_nearby() -> None:
    [sourcegraph] = [r for r in read_rule_file() if r.kind == "sourcegraph-access-token"]
    digits = "0123456789abcdef" * 2 + "76543210"

    assert secret_in(sourcegraph, f"sourcegraph says {digits} ") == digits
    assert secret_in(sourcegraph, f"sourcegraph says {'so ' * 200}{digits} ") is None


def test_matched_group_is_the_secret_except_in_shapes(tmp_path: Path) -> None:
    assert secret_in(rule(tmp_path, "order=(?:(a{8})|(b{8}))"), "order=bbbbbbbb") == "bbbbbbbb"
    assert secret_in(rule(tmp_path, "order(-[a-z]{3}){2}"), "order-abc-def") == "order-abc-def"
    assert secret_in(rule(tmp_path, "(?P<of>order)-abc"), "order-abc") == "order-abc"
    assert secret_in(rule(tmp_path, "(order)-(abc)", "secretGroup = 2"), "order-abc") == "abc"


def test_value_of_low_entropy_is_no_secret(tmp_path: Path) -> None:
    secret_rule = rule(tmp_path, "order-([0-9a-z]+)", "entropy = 2")

    assert secret_in(secret_rule, "order-abcabcabc") is None
    assert secret_in(secret_rule, "order-abcdefghi") == "abcdefghi"
    assert (shannon_entropy(b""), shannon_entropy(b"aaaa"), shannon_entropy(b"abcd")) == (0, 0, 2)


def test_rule_invalid_in_re2_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a valid RE2 pattern"):
        list(iter_compile_steps(rule(tmp_path, "(?=order)").patterns))


def test_every_rule_is_valid_in_re2() -> None:
    for secret_rule in read_gitleaks_and_betterleaks_rules():
        list(iter_compile_steps(secret_rule.patterns))


def test_token_longer_than_the_bound_is_data() -> None:
    for size, expected in ((MAX_TOKEN_BYTES - 5, True), (MAX_TOKEN_BYTES + 1, False)):
        token = f"acme_{draw('long', size)}".encode()

        assert is_prefixed_random_token(token, (0, len(token))) is expected


def base64_of(plain: str) -> str:
    return b64encode(plain.encode()).decode()


@for_each(
    ("has_property", "value", "expected"),
    [
        (is_password, "s3cret", True), (is_password, "20240815", True),
        (is_password, "swordfish", False), (is_password, "utf-8", False),
        (is_password, "f(1)x", False), (is_password, "SHA-256", False),
        (is_password, "1.2.3", False), (is_password, "32-bit", False),
        (is_password, "self.x.y1", False),
        (is_basic_credential, base64_of("ada:s3cret"), True),
        (is_basic_credential, base64_of("ada:"), False),
        (is_basic_credential, base64_of("ada"), False),
        (is_basic_credential, base64_of("a:\x00"), False),
        (is_basic_credential, "authentication", False),
        (is_literal_value, "hunter", True),
        (is_literal_value, "getenv(x)", False),
        (is_literal_value, "${X}", False),
    ],
)  # fmt: skip
def test_value_of_a_secret_has_its_property(
    has_property: Callable[[bytes, tuple[int, int]], bool], value: str, expected: bool
) -> None:
    assert has_property(value.encode(), (0, len(value))) is expected


@pytest.fixture(scope="module")
def secrets() -> Secrets:
    return Secrets()


def found_in(secrets: Secrets, text: str) -> list[str]:
    return [text[finding.start : finding.end] for finding in secrets.find(text)]


@for_each("credential", credentials.IN_CONTEXT, ids=lambda credential: credential.text[:40])
def test_credential_is_found_by_its_context(secrets: Secrets, credential: Credential) -> None:
    spans = found_in(secrets, credential.text)

    assert len(spans) == 1
    assert spans[0].strip("\"'").removeprefix("ada:") == credential.secret
    assert credential.kind in {rule.kind for rule in read_rule_file(OWN_RULES)}


@for_each("credential", credentials.generic(), ids=lambda credential: credential.secret[:20])
def test_prefixed_random_token_is_found_anywhere(secrets: Secrets, credential: Credential) -> None:
    for place in credentials.PLACES:
        assert found_in(secrets, place.format(credential.secret)) == [credential.secret]


def test_most_drawn_tokens_are_found(secrets: Secrets) -> None:
    chance = random.Random(11)
    for prefix, alphabet in credentials.PREFIXES.items():
        tokens = [prefix + "".join(chance.choices(alphabet, k=32)) for _ in range(200)]
        count = sum(bool(secrets.find(f"use {token} here")) for token in tokens)

        assert count >= 185, prefix


@for_each("text", credentials.NO_CREDENTIALS)
def test_text_without_credential_has_no_finding(secrets: Secrets, text: str) -> None:
    assert found_in(secrets, text) == []
    assert found_in(secrets, f"See {text} and more") == []


def test_two_tokens_side_by_side_are_both_found(secrets: Secrets) -> None:
    tokens = ["acme_" + draw(seed, 40, credentials.URL_SAFE) for seed in "ab"]

    for separator in (" ", ",", ";", "\n", "\\n"):
        assert found_in(secrets, separator.join(tokens)) == tokens


SHAPES = [
    rule
    for rule in read_rule_file(OWN_RULES)
    if rule.pattern.startswith(VALUE_START) and rule.pattern.endswith(VALUE_END)
]


@for_each("rule", SHAPES, ids=lambda rule: rule.kind)
def test_shape_is_found_as_group_1_and_not_within_a_longer_word(rule: SecretRule) -> None:
    shape = rule.pattern.removeprefix(VALUE_START).removesuffix(VALUE_END)
    key = sample(shape, random.Random(3))

    spans = rule.compiled.search(f"it is {key}, keep it".encode())
    assert spans is not None
    assert spans[1] == (6, 6 + len(key))
    assert rule.compiled.search(f"x{key}, keep it".encode()) is None
    assert rule.compiled.search(f"it is {key}{'a' * 80}".encode()) is None
    assert len(SHAPES) == 12
