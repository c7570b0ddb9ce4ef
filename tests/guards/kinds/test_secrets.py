from __future__ import annotations

import base64
import itertools
import random
import subprocess
import tomllib
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.guards.kinds.secrets import (
    DEFAULT_LOOKBACK,
    MAX_CACHED_DETECTORS,
    MIN_LOOKBACK,
    Secrets,
    load_shared_detector,
)
from proxy.guards.matching import gitleaks
from proxy.guards.matching.gitleaks import VALUE_END, VALUE_START
from tests.for_each import for_each
from tests.guards.growth import growth
from tests.guards.harmless import harmless_texts
from tests.guards.samples import sample

TOP = Path(__file__).parents[3]
RULES = {
    rule["id"]: rule
    for file in (gitleaks.GITLEAKS_RULES, gitleaks.BETTERLEAKS_RULES)
    for rule in tomllib.loads(file.read_text())["rules"]
    if "regex" in rule
}
# Rules whose random samples match another rule or are no secrets.
ELSEWHERE = {
    "bittrex-secret-key": "has the pattern of bittrex-access-key",
    "curl-auth-user": "draws placeholders",
    "hashicorp-tf-password": "draws values without entropy",
    "generic-api-key": "draws words and values without entropy",
    "kubernetes-secret-yaml": "draws empty values",
    "nuget-config-password": "draws one character only",
    "private-key": "draws bytes that no key has",
    "sidekiq-sensitive-url": "draws hosts without a dot",
    "slack-webhook-url": "draws hosts without a dot",
}
ALNUM = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
HEX = "0123456789abcdef"


@pytest.fixture(scope="module")
def secrets() -> Secrets:
    return Secrets()


def random_of(count: int, letters: str = ALNUM) -> str:
    return "".join(random.Random(17).choices(letters, k=count))


def pem(kind: str = "RSA ", lines: int = 25) -> str:
    body = "\n".join(random_of(64) for _ in range(lines))
    return f"-----BEGIN {kind}PRIVATE KEY-----\n{body}\n-----END {kind}PRIVATE KEY-----"


def jwt(claims: int) -> str:
    return f"ey{random_of(34)}.ey{random_of(claims)}.{random_of(43)}"


@for_each("kind", sorted(RULES.keys() - ELSEWHERE.keys()))
def test_samples_of_each_rule_are_found(secrets: Secrets, kind: str) -> None:
    chance = random.Random(5)
    keyword = RULES[kind]["keywords"][0]
    count = 0
    for _ in range(10):
        text = f"For {keyword}, use {sample(RULES[kind]['regex'], chance)} please."
        count += any(finding.kind == kind for finding in secrets.find(text))

    assert count >= 7


IN_PROSE = {
    rule.kind: rule.pattern.removeprefix("(?i)")
    for rule in (
        *gitleaks.read_gitleaks_and_betterleaks_rules(),
        *gitleaks.read_rule_file(gitleaks.OWN_RULES),
    )
    if rule.name_pattern is None
    and VALUE_START in rule.pattern
    and rule.pattern.endswith(VALUE_END)
}
VALUE_BEFORE = (
    "", "(", "[", "`", "**", "'", "|", "\\n", "key=", "https://api.example/v1?k=", "is:",
)  # fmt: skip
VALUE_AFTER = (
    *",.)]}<&:|?!/*;\"'`%\n ",
    "",
    "...",
    "**",
    "\\n",
    "</b>",
    " and",
    "\u3002",
    "\u2019",
)


@for_each("kind", sorted(IN_PROSE))
def test_key_is_found_in_sentence_url_or_quotes(secrets: Secrets, kind: str) -> None:
    key = key_of(secrets, kind)
    keyword = RULES[kind]["keywords"][0] if kind in RULES else ""
    missed = []
    surroundings = [(lead, ",") for lead in VALUE_BEFORE] + [(" ", tail) for tail in VALUE_AFTER]
    for lead, tail in surroundings:
        text = f"For {keyword} use {lead}{key}{tail}"
        findings = [(f.kind, text[f.start : f.end]) for f in secrets.find(text)]
        # A character that may belong to a key, such as a full stop, is read as its end.
        if findings not in ([(kind, key)], [(kind, key + tail)]):
            missed.append((lead, tail, findings))

    assert missed == []


def key_of(secrets: Secrets, kind: str) -> str:
    """Draw a key that is no placeholder and ends with a letter or digit."""
    shape = IN_PROSE[kind].removeprefix(VALUE_START).removesuffix(VALUE_END)
    flags = "(?i)" if kind in RULES and RULES[kind]["regex"].startswith("(?i)") else ""
    chance = random.Random(7)
    for _ in range(200):
        key = sample(flags + shape, chance)
        keyword = RULES.get(kind, KNOWN_VALUES)["keywords"][0]
        if key[-1].isalnum() and secrets.find(f"{keyword} {key}"):
            return key
    raise AssertionError(f"no key of {kind} is found by itself")


KNOWN_VALUES = {"keywords": [""]}


@for_each(
    ("kind", "text_before", "secret", "text_after"),
    [
        ("github-pat", "my token is ", "gh" + "p_" + random_of(36), ", keep it"),
        ("openai-api-key", "", "sk-" + random_of(20) + "T3Blbk" + "FJ" + random_of(20), "\n"),
        ("anthropic-api-key", "x=", "sk-" + "ant-api03-" + random_of(93) + "AA", " "),
        ("aws-access-token", "id ", "AK" + "IA" + random_of(16, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"),
            ""),
        ("aws-secret-access-key", "aws_secret_access_key = ", random_of(40), "\n"),
        ("aws-secret-access-key", '{"SecretAccessKey": "', random_of(40), '"}'),
        ("slack-bot-token", "", "xo" + "xb-" + "1234567890-" * 2 + random_of(24), ""),
        ("stripe-access-token", "", "sk_" + "live_" + random_of(24), " "),
        ("gcp-api-key", "", "AI" + "za" + random_of(35), " "),
        ("generic-api-key", "client_secret: '", random_of(40, HEX), "'"),
        ("url-credentials", "postgres://support:", random_of(12), "@db.example:5432/orders"),
        ("url-credentials", "https://:", random_of(12), "@[::1]/"),
        ("authorization-header", "Authorization: Bearer ", random_of(40), "\n"),
        ("authorization-header", '"authorization":"Basic ', random_of(22) + "==", '"'),
        ("curl-auth-user", "curl https://api.example -u ", "support:" + random_of(12), " -v"),
        ("curl-password", "run `curl -u ada:", "s3cr3t-Wort", "` first"),
        ("curl-password", "(curl https://api.example --user ada:", "s3cr3t!Wort+1", "), then"),
        ("private-key", "key:\n", pem(), "\nthanks"),
        ("private-key", '{"key": "', pem("").replace("\n", r"\n"), '"}'),
        ("private-key", "", pem("EC ", lines=3), ""),
        ("jwt", "cookie ", jwt(120), " "),
    ],
)  # fmt: skip
def test_secret_is_located(
    secrets: Secrets, kind: str, text_before: str, secret: str, text_after: str
) -> None:
    for lead in ("", "Grüße 🙂 \ud800 "):
        text = lead + text_before + secret + text_after

        findings = [(f.kind, text[f.start : f.end]) for f in secrets.find(text)]

        assert findings == [(kind, secret)]


@for_each(
    "text",
    [
        "A private key begins with -----BEGIN PRIVATE KEY----- and a certificate does not.",
        "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----",
        "-----BEGIN CERTIFICATE-----\n" + random_of(64) + "\n-----END CERTIFICATE-----",
        "postgres://support:${DB_PASSWORD}@db.example/orders",
        "postgres://postgres:postgres@localhost/orders",
        "https://support:<password>@example.com",
        "https://example.com:8080/team@support",
        "Set api_key = YOUR_API_KEY_HERE first; the token: see the settings page.",
        "The token is stored in access_token_repository_implementation.",
        "id 7c9e6679-7425-40de-944b-e07fc1f90ae7 has sha256 " + random_of(64, HEX),
        "commit 2fd4e1c67a2d28fced849ee1bb76e7391b93eb12 fixes the key of the search team",
        "AKIAIOSFODNN7EXAMPLE is the example of the documentation",
        "Authorization: Bearer $TOKEN",
        "max_tokens=4096, top_p=0.95, key_length=2048, primary_key=order_id",
        "data:image/png;base64," + random_of(400),
        "int kGivenKey = GIVEN_KEY_IP6_MAX42;",
        '"key_sha256": "bb1636883c2707b51c5b7fc26c6927af4430f2e0785a8c7bc886337f919f9edf"',
        "RegKey = win32api.RegEnumKey",
        "sign doc.xml rsakey.pem > sign2-res.xml",
        "auth_token: is_token_of_2fa_user",
    ],
)
def test_similar_texts_are_no_secrets(secrets: Secrets, text: str) -> None:
    assert list(secrets.find(text)) == []


def base64_of(chance: random.Random) -> str:
    return base64.b64encode(chance.randbytes(1500)).decode()


RANDOM_TEXTS: dict[str, Callable[[random.Random], str]] = {
    "digest": lambda chance: chance.randbytes(32).hex(),
    "git id": lambda chance: chance.randbytes(20).hex(),
    "uuid": lambda chance: str(uuid.UUID(bytes=chance.randbytes(16))),
    "picture": lambda chance: "data:image/png;base64," + base64_of(chance),
    "base64": base64_of,
    "base64 of addresses": lambda chance: base64_of(chance).translate({43: "-", 47: "_"}),
    "numbers": lambda chance: " ".join(str(chance.getrandbits(50)) for _ in range(60)),
}


@for_each("equivalents", RANDOM_TEXTS)
def test_random_text_without_prefix_passes(secrets: Secrets, equivalents: str) -> None:
    chance = random.Random(11)
    for _ in range(400):
        lead, tail = chance.choice(["commit ", "id: ", "("]), chance.choice(' ,.)/`"')
        assert list(secrets.find(f"{lead}{RANDOM_TEXTS[equivalents](chance)}{tail} and more")) == []


def test_harmless_texts_have_no_finding(secrets: Secrets) -> None:
    texts = [*harmless_texts()]

    assert len(texts) == 5000
    assert [
        (kind, finding.kind, text[finding.start : finding.end])
        for kind, text in texts
        for finding in secrets.find(text)
    ] == []


# Passwords in tests, URLs and log lines, and the example token with sub 1234567890.
EXAMPLES = frozenset(
    {
        "hr-key-of-the-caller", "sk-1", "sk-live",
        "hr-word", "hr-" + "6IOu4npcbFjtfGGwcslCmxsfETiM3D2HjJ0mfCRTs7g",
        "AKIA" + "Q3EGRTZ7LB5XK2WN",
        "sk-proj-" + "Zx9Yw8Vu7Ts6Rq5Po4Nm3Lk2Ji1Hg0Fe9Dc8Ba7",
        "p%2Fw", "p,w", "wrong", "hunter22", "0123456789abcdef",
        "QWxhZGRpbjpPcGVuU2VzYW1l",
        "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0NTY3ODkwIn0.abc",
    }
)  # fmt: skip


def test_repository_contains_only_published_example_keys(secrets: Secrets) -> None:
    command = ["git", "ls-files"]
    listed = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=True)
    texts = {
        name: (TOP / name).read_text(errors="replace")
        for name in listed.stdout.split()
        if not name.endswith((".lock", "leaks.toml"))
    }

    found = ((name, text, secrets.find(text)) for name, text in texts.items())
    findings = {(name, text[f.start : f.end]) for name, text, matches in found for f in matches}
    assert {(name, value) for name, value in findings if value not in EXAMPLES} == set()


def test_overlapping_findings_merge_to_the_highest_score(secrets: Secrets) -> None:
    text = "api_key = gh" + "p_" + random_of(36)

    assert [(f.kind, f.score) for f in secrets.find(text)] == [("github-pat", 1.0)]


def test_findings_are_ordered_and_separate(secrets: Secrets) -> None:
    text = " ".join([jwt(100), "gh" + "p_" + random_of(36), pem("EC ", 3), jwt(90)])

    findings = secrets.find(text)

    assert [finding.kind for finding in findings] == ["jwt", "github-pat", "private-key", "jwt"]
    assert all(a.end <= b.start for a, b in itertools.pairwise(findings))


@for_each("text", [pem(lines=500), jwt(20_000)], ids=["key", "jwt"])
@for_each("reach", [MIN_LOOKBACK, DEFAULT_LOOKBACK])
def test_no_finding_is_longer_than_the_lookback(text: str, reach: int) -> None:
    findings = Secrets(reach).find(text)

    assert [(f.start, f.end - f.start <= reach) for f in findings] == [(0, True)]


@for_each("kind", ["github-pat", "jwt", "generic-api-key", "curl-auth-user"])
def test_text_beyond_the_lookback_changes_no_finding(secrets: Secrets, kind: str) -> None:
    secret = {
        "github-pat": "gh" + "p_" + random_of(36),
        "jwt": jwt(200),
        "generic-api-key": f"secret = '{random_of(40, HEX)}'",
        "curl-auth-user": f"curl -u support:{random_of(12)} ",
    }[kind]
    distant = "gitlab facebook curl kind: secret " * (DEFAULT_LOOKBACK // 20)

    alone = secrets.find(f" {secret} ")
    amid = secrets.find(f"{'. ' * DEFAULT_LOOKBACK}{secret} {'. ' * DEFAULT_LOOKBACK}{distant}")

    assert [finding.kind for finding in alone] == [kind]
    assert [(finding.kind, finding.end - finding.start) for finding in amid] == [
        (finding.kind, finding.end - finding.start) for finding in alone
    ]


def test_kinds_are_a_closed_set(secrets: Secrets) -> None:
    assert len(secrets.kinds) == 267
    assert RULES.keys() < secrets.kinds


HOSTILE = (
    "key=secret_token=", 'api_key = "abcdefghij1" ', "-----BEGIN " + "PRIVATE KEY-----",
    "eyabcdefghijklmnopqrstuvwxyz.", "a://b:c@", "kind: secret\ndata:\n a: ",
    "curl -H curl --user ", random_of(40_000), "s e c r e t k e y ", "ab-cd_ef.",
    "the_password_of_the_2nd_key ", f"ab_{random_of(40)} ", "password is ", "pwd=" + "a1b2c3;",
    " = ".join(word for rule in RULES.values() for word in rule["keywords"]),
)  # fmt: skip


@for_each("piece", HOSTILE)
def test_hostile_text_takes_linear_time(secrets: Secrets, piece: str) -> None:
    assert growth(secrets.find, lambda size: (piece * size)[:size], maximum=24) < 24


def test_cached_detectors_by_lookback_are_bounded() -> None:
    for reach in range(DEFAULT_LOOKBACK + 1, DEFAULT_LOOKBACK + MAX_CACHED_DETECTORS + 2):
        load_shared_detector(reach)

    assert load_shared_detector.cache_info().currsize == MAX_CACHED_DETECTORS
    assert load_shared_detector(reach) is load_shared_detector(reach)
