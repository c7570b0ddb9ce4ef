"""Ways in which a word is hidden in a text, by how much is promised of finding it."""

from __future__ import annotations

import base64
import codecs
from collections.abc import Callable, Mapping
from urllib.parse import quote

Disguise = Callable[[str], str]

_LOOKS = str.maketrans("aceiopsxy", "асеіорѕху")  # noqa: RUF001  # Cyrillic, on purpose
_LEET = str.maketrans("aeiost", "431057")


def _between(sign: str) -> Disguise:
    return sign.join


def _each(form: Callable[[str], str]) -> Disguise:
    return lambda word: "".join(map(form, word))


def _full_width(letter: str) -> str:
    return chr(ord(letter) + 0xFEE0) if "!" <= letter <= "~" else letter


def _mathematical(letter: str) -> str:
    if "a" <= letter <= "z":
        return chr(0x1D41A + ord(letter) - ord("a"))
    if "A" <= letter <= "Z":
        return chr(0x1D400 + ord(letter) - ord("A"))
    return letter


def _base64(word: str, before: str = "") -> str:
    said = f"{before}please look at {word} today"
    return base64.b64encode(said.encode()).decode()


MUST: Mapping[str, Disguise] = {
    "as it is": lambda word: word,
    "an escape of JSON within the text": _each(lambda letter: f"\\u{ord(letter):04x}"),
}
SHOULD: Mapping[str, Disguise] = {
    "zero-width spaces": _between("\u200b"),
    "soft hyphens": _between("\u00ad"),
    "word joiners": _between("\u2060"),
    "marks of direction": _between("\u202e"),
    "controls": _between("\x01"),
    "delete": _between("\x7f"),
    "controls beyond ASCII": _between("\x85"),
    "objects in the text's place": _between("\ufffc"),
    "replacement characters": _between("\ufffd"),
    "private use": _between("\ue0b0"),
    "private use beyond the first plane": _between("\U000f1234"),
    "no characters": _between("\ufdd3"),
    "tags between letters": _between("\U000e0041"),
    "full width": _each(_full_width),
    "mathematical letters": _each(_mathematical),
    "combining marks": _between("\u0336"),
    "decimal entities": _each(lambda letter: f"&#{ord(letter)};"),
    "hexadecimal entities": _each(lambda letter: f"&#x{ord(letter):x};"),
    "percent": lambda word: "".join(f"%{byte:02X}" for byte in word.encode()),
    "base64": _base64,
    "base64 twice": lambda word: base64.b64encode(_base64(word).encode()).decode(),
    "hex": lambda word: f"look at {word}".encode().hex(),
    "hex in base64": lambda word: base64.b64encode(
        f"look at {word}".encode().hex().encode()
    ).decode(),
    "escapes of programs": _each(lambda letter: f"\\x{ord(letter):02x}"),
    "escapes of programs in brackets": _each(lambda letter: f"\\u{{{ord(letter):x}}}"),
    "decimal entities without an end": _each(lambda letter: f"&#{ord(letter)}"),
    "hexadecimal entities without an end": _each(lambda letter: f"&#x{ord(letter):x}"),
    "Markdown's marks": lambda word: f"{word[:2]}**{word[2:4]}**{word[4:]}",
    "Markdown's code": lambda word: f"{word[:2]}`{word[2:4]}`{word[4:]}",
    "tags of HTML": lambda word: f"{word[:2]}<b>{word[2:4]}</b>{word[4:]}",
    "tags with attributes": lambda word: f"{word[:2]}<span class='x'>{word[2:4]}</span>{word[4:]}",
    "comments of HTML": lambda word: f"{word[:2]}<!-- so -->{word[2:]}",
    "a hyphen at a line's end": lambda word: f"{word[:3]}-\n{word[3:]}",
}
"""What is undone for words and for credentials alike."""

WORDS_ONLY: Mapping[str, Disguise] = {
    "capitals": str.upper,
    "letters of another script": lambda word: word.translate(_LOOKS),
    "spaces": _between(" "),
    "points": _between("."),
    "letters of tags": _each(lambda letter: chr(0xE0000 + ord(letter))),
}
"""What is undone for words; a credential so written is none any more."""

HARD: Mapping[str, Disguise] = {
    "base64, within a longer run": lambda word: "QUJD" + _base64(word) + "REVG",
    "base64, one character late": lambda word: "x" + _base64(word),
    "base64 of the word alone": lambda word: base64.b64encode(word.encode()).decode(),
    "base64 for addresses": lambda word: (
        base64.urlsafe_b64encode(f"a {word}?".encode()).decode().rstrip("=")
    ),
    "base64 in lines of 60": lambda word: "\n".join(
        _base64(word, "x" * 70)[at : at + 60] for at in range(0, 200, 60)
    ),
    "a data URL of text": lambda word: "data:text/plain;base64," + _base64(word),
    "base32": lambda word: base64.b32encode(word.encode()).decode(),
    "hex of the word alone": lambda word: word.encode().hex(),
    "a word over the end of a line": lambda word: f"{word[:3]}\n{word[3:]}",
    "percent twice": lambda word: quote("".join(f"%{ord(letter):02X}" for letter in word)),
    "reversed": lambda word: word[::-1],
    "rot13": lambda word: codecs.encode(word, "rot13"),
    "digits for letters": lambda word: word.translate(_LEET),
    "bytes in figures": lambda word: " ".join(str(ord(letter)) for letter in word),
    "a letter a line": _between("\n"),
    "two spaces between letters": _between("  "),
}
"""What is not promised; docs/guard-quality.md has how much of it is found."""
