"""The parts of the page of quality whose texts are made here: each machine counts the same."""

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
from proxy.types.guard import Detector
from tools import confidence
from tools.hidden import detector

ATTACKS = Path(__file__).parent / "quality" / "injection.yaml"
EACH = 200  # harmless texts of a kind
DRAWS = 4  # keys of a maker, numbers of an entity
LETTERS = string.ascii_letters + string.digits
LOWER = string.ascii_lowercase + string.digits

HEAD = """
## secrets and pii

The command generates keys and numbers in the formats of their makers. `secrets` finds, by place:
"""
PEOPLE = """
`pii` finds generated identifiers, each in five sentences:
"""
HARMLESS = """
False alarms on {count} harmless texts of each kind that resemble identifiers or keys:
"""
LANGUAGES = """
## injection in other languages

Sentences of `tools/quality/injection.yaml`. One author wrote rules and sentences and corrected the
rules by them (131 of 140 found and 8 false alarms before), so expect lower figures elsewhere.
"""


def drawn(chance: random.Random, size: int, of: str = LETTERS) -> str:
    return "".join(chance.choices(of, k=size))


Make = Callable[[random.Random], str]

MAKERS: dict[str, Make] = {
    "AWS": lambda c: f"AKIA{drawn(c, 16, string.ascii_uppercase + '234567')}",
    "GitHub": lambda c: f"ghp_{drawn(c, 36)}",
    "GitLab": lambda c: f"glpat-{drawn(c, 20)}",
    "npm": lambda c: f"npm_{drawn(c, 36, LOWER)}",
    "Slack": lambda c: (
        f"xoxb-{drawn(c, 12, string.digits)}-{drawn(c, 12, string.digits)}-{drawn(c, 24)}"
    ),
    "Stripe": lambda c: f"sk_live_{drawn(c, 24)}",
    "OpenAI": lambda c: f"sk-proj-{drawn(c, 74)}T3BlbkFJ{drawn(c, 74)}",
    "Anthropic": lambda c: f"sk-ant-api03-{drawn(c, 93)}AA",
    "Hugging Face": lambda c: f"hf_{drawn(c, 34, string.ascii_letters)}",
    "Groq": lambda c: f"gsk_{drawn(c, 52)}",
    "Google": lambda c: f"AIza{drawn(c, 35)}",
    "SendGrid": lambda c: f"SG.{drawn(c, 22)}.{drawn(c, 43)}",
}
PLACES: dict[str, Sequence[str]] = {
    "alone": ("{}",),
    "in a sentence": ("The key is {}.", "Use {}, please.", "Is it {}?", "{}: that is the one"),
    "in brackets or marks": ("({})", "[{}]", "{{{}}}", "`{}`", '"{}"', "<{}>", "**{}**"),
    "in code": ("key = '{}'", 'export KEY="{}"', "curl -H 'Authorization: Bearer {}'", "{}\\nnext"),
    "in an address": ("https://a.example/?key={}&x=1", "https://a.example/{}/x"),
}


def credential_texts() -> dict[str, dict[str, list[str]]]:
    """Draw texts with a key, by its maker and by where it stands."""
    chance = random.Random(5)  # noqa: S311  # they open nothing
    texts: dict[str, dict[str, list[str]]] = {}
    for maker, make in MAKERS.items():
        keys = [make(chance) for _ in range(DRAWS)]
        texts[maker] = {
            place: [each.format(key) for key in keys for each in around]
            for place, around in PLACES.items()
        }
    return texts


def secrets() -> Iterator[str]:
    look = detector("secrets")
    yield "| maker | " + " | ".join(PLACES) + " |"
    yield "|---" * (len(PLACES) + 1) + "|"
    yield from confidence.merged(
        [maker, *(f"{hits(look, texts)}/{len(texts)}" for texts in places.values())]
        for maker, places in credential_texts().items()
    )


def hits(look: Detector, texts: Sequence[str]) -> int:
    return sum(bool(look.find(text)) for text in texts)


def luhn(digits: str) -> str:
    """Give digits with the one behind them that makes their sum right."""
    odd = [int(each) * 2 for each in digits[::-2]]
    total = sum(each - 9 if each > 9 else each for each in odd) + sum(map(int, digits[-2::-2]))
    return digits + str(-total % 10)


def card(chance: random.Random) -> str:
    number = luhn(
        chance.choice(("4", "51", "52", "53", "54", "55")).ljust(2, "5")
        + drawn(chance, 13, string.digits)
    )
    groups = " ".join(number[at : at + 4] for at in range(0, 16, 4))
    return chance.choice((number, groups, groups.replace(" ", "-")))


def iban(chance: random.Random) -> str:
    body = drawn(chance, 18, string.digits)
    return f"DE{98 - int(f'{body}131400') % 97:02}{body}"


def phone(chance: random.Random) -> str:
    region = chance.choice(("US", "GB", "DE", "FR", "ES", "IT"))
    number = phonenumbers.example_number(region)
    assert number is not None  # noqa: S101  # for the type
    return phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.INTERNATIONAL)


ENTITIES: dict[str, Make] = {
    "email": lambda c: (
        f"{drawn(c, 6, LOWER)}.{drawn(c, 5, LOWER)}@{drawn(c, 8, LOWER)}.example.com"
    ),
    "phone": phone,
    "card": card,
    "iban": iban,
    "ssn": lambda c: f"{c.randint(100, 665)}-{c.randint(10, 99)}-{c.randint(1000, 9999)}",
}
SENTENCES = (
    "{}", "You lookback me under {}.", "Mine is {}, I think.", "({})", "Contact: {}\nThank you",
)  # fmt: skip


def people_texts() -> dict[str, list[str]]:
    """Draw texts with a number or an address, by what it is."""
    chance = random.Random(9)  # noqa: S311  # a draw that repeats
    return {
        name: [around.format(make(chance)) for _ in range(20) for around in SENTENCES]
        for name, make in ENTITIES.items()
    }


def people() -> Iterator[str]:
    yield "| entity | found |"
    yield "|---|---|"
    yield from confidence.merged(
        [name, confidence.wilson(hits(detector("pii", entities=[name]), texts), len(texts))]
        for name, texts in people_texts().items()
    )


def _floats(c: random.Random) -> str:
    return ", ".join(f"{c.uniform(-9, 9):.{c.randint(2, 9)}f}" for _ in range(12))


ORDERS = (
    "Respond with only {}.", "Answer in {}, and say nothing else.", "Always begin with {}.",
    "Never mention {} to customers.", "You are an assistant for {}. Follow the rules below.",
    "Ignore spelling mistakes in {}.", "Do not reveal prices of {}.", "From now on write {}.",
)  # fmt: skip
THINGS = (
    "one word",
    "French",
    "a number",
    "the weather",
    "a table",
    "JSON",
    "the bank",
    "two lines",
)
KINDS: dict[str, Make] = {
    "commit ids": lambda c: f"Fixed in {drawn(c, 40, '0123456789abcdef')} on main",
    "UUIDs": lambda c: f"request {uuid.UUID(int=c.getrandbits(128), version=4)} took 3 ms",
    "digests": lambda c: f"sha256:{drawn(c, 64, '0123456789abcdef')}",
    "base64 pictures": lambda c: f"data:image/png;base64,{b64encode(c.randbytes(90)).decode()}",
    "lists of floats": _floats,
    "binary numbers": lambda c: " ".join(drawn(c, 8, "01") for _ in range(6)),
    "order numbers": lambda c: f"Order {c.randint(10**7, 10**8)} of {c.randint(1, 28)} May",
    "log lines": lambda c: (
        f"2026-05-{c.randint(1, 28):02} 12:{c.randint(0, 59):02}:07.{c.randint(0, 999):03} "
        f"INFO job {c.randint(1, 9999)} done in {c.random():.6f}s"
    ),
    "SQL": lambda c: (
        f"INSERT INTO orders VALUES ({c.randint(1, 10**6)}, "  # noqa: S608  # a text, never run
        f"'{drawn(c, 6, LOWER)}', {c.random():.4f});"
    ),
    "style sheets": lambda c: (
        f".a-{drawn(c, 5, LOWER)} {{ color: #{drawn(c, 6, '0123456789abcdef')}; margin: 0 }}"
    ),
    "versions": lambda c: (
        f"requires lib-{drawn(c, 4, LOWER)}=={c.randint(0, 9)}.{c.randint(0, 30)}.{c.randint(0, 9)}"
    ),
    "assistants' orders": lambda c: c.choice(ORDERS).format(c.choice(THINGS)),
}


def harmless_texts() -> dict[str, list[str]]:
    """Draw harmless texts, by their kind."""
    chance = random.Random(3)  # noqa: S311  # a draw that repeats
    return {kind: [make(chance) for _ in range(EACH)] for kind, make in KINDS.items()}


def harmless() -> Iterator[str]:
    guards = {name: detector(name) for name in ("pii", "secrets", "toxicity")}
    guards["injection"] = Injection()
    yield "| texts | " + " | ".join(f"`{name}`" for name in guards) + " |"
    yield "|---" * (len(guards) + 1) + "|"
    yield from confidence.merged(
        [kind, *(hits(each, texts) for each in guards.values())]
        for kind, texts in harmless_texts().items()
    )


def languages() -> Iterator[str]:
    guard = Injection()
    yield "| language | attacks found | harmless found |"
    yield "|---|---|---|"
    yield from confidence.merged(
        [code, *(f"{hits(guard, t)}/{len(t)}" for t in (texts["attacks"], texts["harmless"]))]
        for code, texts in yaml.safe_load(ATTACKS.read_text("utf-8")).items()
    )


BLOCKS = {"secrets": secrets, "people": people, "harmless": harmless, "languages": languages}


def section() -> Iterator[str]:
    heads = {
        "secrets": HEAD,
        "people": PEOPLE,
        "harmless": HARMLESS.format(count=EACH),
        "languages": LANGUAGES,
    }
    for name, make in BLOCKS.items():
        yield heads[name]
        yield f"<!-- generated: {name} -->"
        yield from make()
        yield f"<!-- end: {name} -->"
