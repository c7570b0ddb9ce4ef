"""Generated texts with and without credentials, identifiers and attacks, and results of guards.

The generators are seeded, so results are the same on each machine.
"""

from __future__ import annotations

import random
import string
import uuid
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import phonenumbers
import yaml

from proxy.guards.kinds.injection import Injection
from tools.measure import count_hits, detector, generated, merge_rows, table, wilson

ATTACKS = Path(__file__).parent / "quality" / "injection.yaml"
HARMLESS_TEXTS = 200  # per kind
KEYS = 4  # per maker
VALUES = 20  # per entity
LETTERS = string.ascii_letters + string.digits
LOWER = string.ascii_lowercase + string.digits

SECRETS_SECTION = """
## secrets and pii

The command generates keys and numbers in the formats of their makers. `secrets` finds, by place:
"""
PEOPLE_SECTION = """
`pii` finds generated identifiers, each in five sentences:
"""
HARMLESS_SECTION = """
False alarms on {count} harmless texts of each kind that resemble identifiers or keys:
"""
LANGUAGES_SECTION = """
## injection in other languages

Sentences of `tools/quality/injection.yaml`. One author wrote rules and sentences, and
corrected the rules with these sentences (before: 131 of 140 found, 8 false alarms), so expect lower
figures elsewhere.
"""


def draw(chance: random.Random, size: int, alphabet: str = LETTERS) -> str:
    return "".join(chance.choices(alphabet, k=size))


Generator = Callable[[random.Random], str]

CREDENTIALS: dict[str, Generator] = {
    "AWS": lambda c: f"AKIA{draw(c, 16, string.ascii_uppercase + '234567')}",
    "GitHub": lambda c: f"ghp_{draw(c, 36)}",
    "GitLab": lambda c: f"glpat-{draw(c, 20)}",
    "npm": lambda c: f"npm_{draw(c, 36, LOWER)}",
    "Slack": lambda c: (
        f"xoxb-{draw(c, 12, string.digits)}-{draw(c, 12, string.digits)}-{draw(c, 24)}"
    ),
    "Stripe": lambda c: f"sk_live_{draw(c, 24)}",
    "OpenAI": lambda c: f"sk-proj-{draw(c, 74)}T3BlbkFJ{draw(c, 74)}",
    "Anthropic": lambda c: f"sk-ant-api03-{draw(c, 93)}AA",
    "Hugging Face": lambda c: f"hf_{draw(c, 34, string.ascii_letters)}",
    "Groq": lambda c: f"gsk_{draw(c, 52)}",
    "Google": lambda c: f"AIza{draw(c, 35)}",
    "SendGrid": lambda c: f"SG.{draw(c, 22)}.{draw(c, 43)}",
}
PLACES: dict[str, Sequence[str]] = {
    "alone": ("{}",),
    "in a sentence": ("The key is {}.", "Use {}, please.", "Is it {}?", "{}: that is the one"),
    "in brackets or marks": ("({})", "[{}]", "{{{}}}", "`{}`", '"{}"', "<{}>", "**{}**"),
    "in code": ("key = '{}'", 'export KEY="{}"', "curl -H 'Authorization: Bearer {}'", "{}\\nnext"),
    "in an address": ("https://a.example/?key={}&x=1", "https://a.example/{}/x"),
}


def secrets() -> Iterator[str]:
    chance = random.Random(5)  # noqa: S311  # they open nothing
    guard = detector("secrets")
    rows: list[list[str]] = []
    for maker, generate in CREDENTIALS.items():
        keys = [generate(chance) for _ in range(KEYS)]
        rows.append([maker])
        for formats in PLACES.values():
            texts = [place.format(key) for key in keys for place in formats]
            rows[-1].append(f"{count_hits(guard, texts)}/{len(texts)}")
    yield from table(["maker", *PLACES], merge_rows(rows))


def luhn(digits: str) -> str:
    """Append the check digit."""
    doubled = [int(digit) * 2 for digit in digits[::-2]]
    total = sum(map(int, digits[-2::-2])) + sum(n - 9 if n > 9 else n for n in doubled)
    return digits + str(-total % 10)


def card(chance: random.Random) -> str:
    number = luhn(
        chance.choice(("4", "51", "52", "53", "54", "55")).ljust(2, "5")
        + draw(chance, 13, string.digits)
    )
    groups = " ".join(number[start : start + 4] for start in range(0, 16, 4))
    return chance.choice((number, groups, groups.replace(" ", "-")))


def iban(chance: random.Random) -> str:
    body = draw(chance, 18, string.digits)
    return f"DE{98 - int(f'{body}131400') % 97:02}{body}"


def phone(chance: random.Random) -> str:
    region = chance.choice(("US", "GB", "DE", "FR", "ES", "IT"))
    number = phonenumbers.example_number(region)
    assert number is not None  # noqa: S101  # for the type
    return phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.INTERNATIONAL)


ENTITIES: dict[str, Generator] = {
    "email": lambda c: f"{draw(c, 6, LOWER)}.{draw(c, 5, LOWER)}@{draw(c, 8, LOWER)}.example.com",
    "phone": phone,
    "card": card,
    "iban": iban,
    "ssn": lambda c: f"{c.randint(100, 665)}-{c.randint(10, 99)}-{c.randint(1000, 9999)}",
}
SENTENCES = (
    "{}", "You reach me at {}.", "Mine is {}, I think.", "({})", "Contact: {}\nThank you",
)  # fmt: skip


def people() -> Iterator[str]:
    chance = random.Random(9)  # noqa: S311  # a draw that repeats
    rows = []
    for entity, generate in ENTITIES.items():
        texts = [sentence.format(generate(chance)) for _ in range(VALUES) for sentence in SENTENCES]
        hits = count_hits(detector("pii", entities=[entity]), texts)
        rows.append((entity, wilson(hits, len(texts))))
    yield from table(["entity", "found"], merge_rows(rows))


def _floats(c: random.Random) -> str:
    return ", ".join(f"{c.uniform(-9, 9):.{c.randint(2, 9)}f}" for _ in range(12))


INSTRUCTIONS = (
    "Respond with only {}.", "Answer in {}, and say nothing else.", "Always begin with {}.",
    "Never mention {} to customers.", "You are an assistant for {}. Follow the rules below.",
    "Ignore spelling mistakes in {}.", "Do not reveal prices of {}.", "From now on write {}.",
)  # fmt: skip
SUBJECTS = (
    "one word",
    "French",
    "a number",
    "the weather",
    "a table",
    "JSON",
    "the bank",
    "two lines",
)
HARMLESS_KINDS: dict[str, Generator] = {
    "commit ids": lambda c: f"Fixed in {draw(c, 40, '0123456789abcdef')} on main",
    "UUIDs": lambda c: f"request {uuid.UUID(int=c.getrandbits(128), version=4)} took 3 ms",
    "digests": lambda c: f"sha256:{draw(c, 64, '0123456789abcdef')}",
    "base64 pictures": lambda c: f"data:image/png;base64,{b64encode(c.randbytes(90)).decode()}",
    "lists of floats": _floats,
    "binary numbers": lambda c: " ".join(draw(c, 8, "01") for _ in range(6)),
    "order numbers": lambda c: f"Order {c.randint(10**7, 10**8)} of {c.randint(1, 28)} May",
    "log lines": lambda c: (
        f"2026-05-{c.randint(1, 28):02} 12:{c.randint(0, 59):02}:07.{c.randint(0, 999):03} "
        f"INFO job {c.randint(1, 9999)} done in {c.random():.6f}s"
    ),
    "SQL": lambda c: (
        f"INSERT INTO orders VALUES ({c.randint(1, 10**6)}, "  # noqa: S608  # a text, never run
        f"'{draw(c, 6, LOWER)}', {c.random():.4f});"
    ),
    "style sheets": lambda c: (
        f".a-{draw(c, 5, LOWER)} {{ color: #{draw(c, 6, '0123456789abcdef')}; margin: 0 }}"
    ),
    "versions": lambda c: (
        f"requires lib-{draw(c, 4, LOWER)}=={c.randint(0, 9)}.{c.randint(0, 30)}.{c.randint(0, 9)}"
    ),
    "assistants' orders": lambda c: c.choice(INSTRUCTIONS).format(c.choice(SUBJECTS)),
}


def harmless_texts() -> dict[str, list[str]]:
    chance = random.Random(3)  # noqa: S311  # a draw that repeats
    return {
        kind: [generate(chance) for _ in range(HARMLESS_TEXTS)]
        for kind, generate in HARMLESS_KINDS.items()
    }


def harmless() -> Iterator[str]:
    guards = {name: detector(name) for name in ("pii", "secrets", "toxicity")}
    guards["injection"] = Injection()
    rows = [
        [kind, *(count_hits(guard, texts) for guard in guards.values())]
        for kind, texts in harmless_texts().items()
    ]
    yield from table(["texts", *(f"`{name}`" for name in guards)], merge_rows(rows))


def languages() -> Iterator[str]:
    guard, rows = Injection(), []
    for code, document in yaml.safe_load(ATTACKS.read_text("utf-8")).items():
        sets = (document["attacks"], document["harmless"])
        rows.append([code, *(f"{count_hits(guard, texts)}/{len(texts)}" for texts in sets)])
    yield from table(["language", "attacks found", "harmless found"], merge_rows(rows))


BLOCKS = {"secrets": secrets, "people": people, "harmless": harmless, "languages": languages}
SECTIONS = {
    "secrets": SECRETS_SECTION,
    "people": PEOPLE_SECTION,
    "harmless": HARMLESS_SECTION.format(count=HARMLESS_TEXTS),
    "languages": LANGUAGES_SECTION,
}


def section() -> Iterator[str]:
    for name, rows in BLOCKS.items():
        yield SECTIONS[name]
        yield from generated(name, rows())
