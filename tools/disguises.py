"""Disguises of a word in a text, and how many of the hard ones guards see through."""

from __future__ import annotations

import base64
import codecs
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from urllib.parse import quote

from proxy.guards.text.documents import collect_request_texts
from proxy.guards.whole.joined_parts import iter_same_role_boundaries
from proxy.types import Json
from proxy.types.guard import Detector
from tools import measure
from tools.generated_texts import CREDENTIALS

Disguise = Callable[[str], str]
Split = Callable[[str, str], Json]

_LOOK_ALIKES = str.maketrans("aceiopsxy", "асеіорѕху")  # noqa: RUF001  # Cyrillic, on purpose
_LEET = str.maketrans("aeiost", "431057")


def _separated(separator: str) -> Disguise:
    return separator.join


def _letterwise(encode: Callable[[str], str]) -> Disguise:
    return lambda word: "".join(map(encode, word))


def _full_width(letter: str) -> str:
    return chr(ord(letter) + 0xFEE0) if "!" <= letter <= "~" else letter


def _mathematical(letter: str) -> str:
    if "a" <= letter <= "z":
        return chr(0x1D41A + ord(letter) - ord("a"))
    if "A" <= letter <= "Z":
        return chr(0x1D400 + ord(letter) - ord("A"))
    return letter


def _base64(word: str, prefix: str = "") -> str:
    return base64.b64encode(f"{prefix}please look at {word} today".encode()).decode()


MUST: Mapping[str, Disguise] = {
    "as it is": lambda word: word,
    "an escape of JSON within the text": _letterwise(lambda letter: f"\\u{ord(letter):04x}"),
}
SHOULD: Mapping[str, Disguise] = {
    "zero-width spaces": _separated("\u200b"),
    "soft hyphens": _separated("\u00ad"),
    "word joiners": _separated("\u2060"),
    "marks of direction": _separated("\u202e"),
    "controls": _separated("\x01"),
    "delete": _separated("\x7f"),
    "controls beyond ASCII": _separated("\x85"),
    "objects in the text's place": _separated("\ufffc"),
    "replacement characters": _separated("\ufffd"),
    "private use": _separated("\ue0b0"),
    "private use beyond the first plane": _separated("\U000f1234"),
    "no characters": _separated("\ufdd3"),
    "tags between letters": _separated("\U000e0041"),
    "full width": _letterwise(_full_width),
    "mathematical letters": _letterwise(_mathematical),
    "combining marks": _separated("\u0336"),
    "decimal entities": _letterwise(lambda letter: f"&#{ord(letter)};"),
    "hexadecimal entities": _letterwise(lambda letter: f"&#x{ord(letter):x};"),
    "percent": lambda word: "".join(f"%{byte:02X}" for byte in word.encode()),
    "base64": _base64,
    "base64 twice": lambda word: base64.b64encode(_base64(word).encode()).decode(),
    "hex": lambda word: f"look at {word}".encode().hex(),
    "hex in base64": lambda word: base64.b64encode(
        f"look at {word}".encode().hex().encode()
    ).decode(),
    "escapes of programs": _letterwise(lambda letter: f"\\x{ord(letter):02x}"),
    "escapes of programs in brackets": _letterwise(lambda letter: f"\\u{{{ord(letter):x}}}"),
    "decimal entities without an end": _letterwise(lambda letter: f"&#{ord(letter)}"),
    "hexadecimal entities without an end": _letterwise(lambda letter: f"&#x{ord(letter):x}"),
    "Markdown's marks": lambda word: f"{word[:2]}**{word[2:4]}**{word[4:]}",
    "Markdown's code": lambda word: f"{word[:2]}`{word[2:4]}`{word[4:]}",
    "tags of HTML": lambda word: f"{word[:2]}<b>{word[2:4]}</b>{word[4:]}",
    "tags with attributes": lambda word: f"{word[:2]}<span class='x'>{word[2:4]}</span>{word[4:]}",
    "comments of HTML": lambda word: f"{word[:2]}<!-- so -->{word[2:]}",
    "a hyphen at a line's end": lambda word: f"{word[:3]}-\n{word[3:]}",
}
"""Seen through for words and for credentials."""

WORDS_ONLY: Mapping[str, Disguise] = {
    "capitals": str.upper,
    "letters of another script": lambda word: word.translate(_LOOK_ALIKES),
    "spaces": _separated(" "),
    "points": _separated("."),
    "letters of tags": _letterwise(lambda letter: chr(0xE0000 + ord(letter))),
}
"""Seen through for words. A credential would no longer be valid."""

HARD: Mapping[str, Disguise] = {
    "base64 within a longer run": lambda word: "QUJD" + _base64(word) + "REVG",
    "base64 one character late": lambda word: "x" + _base64(word),
    "base64 of the word alone": lambda word: base64.b64encode(word.encode()).decode(),
    "base64 for addresses": lambda word: (
        base64.urlsafe_b64encode(f"a {word}?".encode()).decode().rstrip("=")
    ),
    "base64 in lines of 60": lambda word: "\n".join(
        _base64(word, "x" * 70)[start : start + 60] for start in range(0, 200, 60)
    ),
    "a data URL of text": lambda word: "data:text/plain;base64," + _base64(word),
    "base32": lambda word: base64.b32encode(word.encode()).decode(),
    "hex of the word alone": lambda word: word.encode().hex(),
    "a word across a line break": lambda word: f"{word[:3]}\n{word[3:]}",
    "percent twice": lambda word: quote("".join(f"%{ord(letter):02X}" for letter in word)),
    "reversed": lambda word: word[::-1],
    "rot13": lambda word: codecs.encode(word, "rot13"),
    "digits for letters": lambda word: word.translate(_LEET),
    "bytes as decimal numbers": lambda word: " ".join(str(ord(letter)) for letter in word),
    "one letter per line": _separated("\n"),
    "two spaces between letters": _separated("  "),
}
"""Not promised. docs/guard-quality.md has the share found."""
SPLITS: Mapping[str, Split] = {
    "two messages": lambda start, end: {
        "messages": [{"role": "user", "content": start}, {"role": "user", "content": end}]
    },
    "two messages with a response between": lambda start, end: {
        "messages": [
            {"role": "user", "content": start},
            {"role": "assistant", "content": "Go on."},
            {"role": "user", "content": end},
        ]
    },
}
WORDS = ("hippo", "Größenwahn", "project zebra", "internationalization", "Qdrant-7")
SENTENCES = ("{}", "Please look at {} today.", "{} is what I mean, thank you.", "It is called {}")
SECTION = """
## Disguised values

Tests cover the disguises that guards promise to read: case, escapes, invisible characters,
look-alikes, full width, entities, percent encoding, spaced letters, marks and tags within a word,
and separate base64 or hex. The table shows other disguises: the share found of five words by
`keywords`, and of five makers' keys by `secrets`, in four sentences each.
"""


def credentials(chance: random.Random) -> list[str]:
    """Generate a key of each of five makers."""
    return [CREDENTIALS[name](chance) for name in ("GitHub", "GitLab", "npm", "AWS", "Slack")]


def table() -> Iterator[str]:
    keys = credentials(random.Random(7))  # noqa: S311  # they open nothing
    keywords, secrets = measure.detector("keywords", words=[*WORDS]), measure.detector("secrets")
    rows = []
    for name, disguise in HARD.items():
        words = [sentence.format(disguise(word)) for word in WORDS for sentence in SENTENCES]
        found_words = [measure.finds(keywords, text, cased=False) for text in words]
        texts = [sentence.format(disguise(key)) for key in keys for sentence in SENTENCES]
        found_keys = [measure.finds(secrets, text, cased=True) for text in texts]
        rows.append((name, _share(found_words), _share(found_keys)))
    for name, split in SPLITS.items():
        found_words = [_finds_split(keywords, word, split, cased=False) for word in WORDS]
        found_keys = [_finds_split(secrets, key, split, cased=True) for key in keys]
        rows.append((name, _share(found_words), _share(found_keys)))
    head = ["hidden as", "words found", "credentials found"]
    yield from measure.table(head, measure.merge_rows(rows))


def _share(results: Sequence[bool]) -> str:
    return f"{sum(results) / len(results):.2f}"


def _finds_split(guard: Detector, value: str, split: Split, *, cased: bool) -> bool:
    """Return True if a guard finds a value that is split in the middle."""
    middle = len(value) // 2
    texts = collect_request_texts(split(value[:middle], value[middle:])).texts
    joined = [boundary.text for boundary in iter_same_role_boundaries(texts)]
    return any(measure.finds(guard, text.text, cased=cased) for text in (*texts, *joined))


def section() -> Iterator[str]:
    yield SECTION
    yield from measure.generated("hidden", table())
