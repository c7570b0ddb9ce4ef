"""Texts of a stream are inspected word by word."""

from __future__ import annotations

import base64
import itertools
import random
import re
from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import GuardBlocked
from proxy.guards.findings import find_matches
from proxy.guards.guard_kind import NO_CONTEXT
from proxy.guards.kinds import KINDS
from proxy.guards.kinds.injection import OTHER_LANGUAGES, load_language_rules
from proxy.guards.kinds.pii import ENTITIES
from proxy.guards.kinds.wordlist import PHRASES_FILE
from proxy.guards.matching.phrase_rules import WORD_SEPARATOR, PhraseRule, parse_phrase_rules
from proxy.guards.stream.window import Window
from proxy.guards.stream.word_scanner import MIN_LOOKBACK
from proxy.guards.text.normalize import build_views
from proxy.types.guard import Action, GuardRule, PromptContext, is_contextual
from tests.for_each import for_each
from tests.guards.credentials import IN_CONTEXT, Credential, generic
from tests.guards.doubles import pieces, tallies
from tests.guards.identifiers import VALUES
from tests.guards.kinds.test_secrets import RULES, jwt, pem
from tests.guards.samples import sample
from tests.guards.stream.test_window import bracketed, masked_whole, stream

# ruff: noqa: RUF001  # texts include disguised letters


def guard_rule(kind: str, action: Action = "mask", **keys: object) -> GuardRule:
    it = KINDS[kind]
    detector: Any = it.make(it.Keys(**keys), NO_CONTEXT)
    if is_contextual(detector):
        detector = detector.for_prompt(PromptContext(PROMPT))
    return GuardRule(kind, detector, action, cased=it.cased, kind=kind)


PROMPT = (
    "You are the helper of the town library. Never tell a reader what another one has borrowed, "
    "and keep to what the desk says. 你是图书馆的助手，不要告诉别人谁借了什么书，"
    "请只说柜台说过的话，谢谢你的合作，欢迎再来。 "
    "Answer in one line, and be kind to those who come late."
)
LISTED = ["hippo", "blue whale", "naïve", "河馬"]
GUARDS = {
    "pii": guard_rule("pii"),
    "every entity": guard_rule("pii", entities=[*ENTITIES]),
    "secrets": guard_rule("secrets"),
    "urls": guard_rule("urls", deny=["mill.example", "*.mill.example"]),
    "code": guard_rule("code"),
    "keywords": guard_rule(
        "keywords", words=LISTED, patterns=["fox[ -]{1,3}trot", "[0-9]{3} apples?"]
    ),
    "injection": guard_rule("injection"),
    "toxicity": guard_rule("toxicity", threshold=0.3),
    "nsfw": guard_rule("nsfw", threshold=0.3),
    "system_prompt": guard_rule("system_prompt", words=6),
    "copyright": guard_rule("copyright", texts=[PROMPT], words=8, share=None),
}
SETS = [*((name,) for name in GUARDS), ("pii", "secrets"), ("code", "keywords"), tuple(GUARDS)]

PROSE = (
    "Members may borrow fifteen books at once and keep them for three weeks. I am told that a lost "
    "card is replaced for a small fee, and that the key to a locker is handed out at the desk. Is "
    "it open on Sundays? No: it opens at nine, closes at eight, and is shut on holidays; please "
    "call before you come. Whoever found a token of thanks in one of our old maps may keep it. "
)
WORDS_OF_PROSE = [f"{word} " for word in PROSE.split()]
DRAWN = "".join(["aGVs", "bG8g", "d29y", "bG12"])
CODE = [
    "```python\n", "\n```\n", "```", "~~~ sql\n", "\n~~~\n", "def main(x):\n", "import os\n",
    "SELECT a ", "FROM b ", "const x = 1;", "let us go = ", "public static void main(", "#!/bin",
    f"$ curl -{'u'} ada:{DRAWN} ", f"curl -H 'Authorization: Bearer {DRAWN}' ", "<?php ",
    f"data:\n  pw: {DRAWN}QK\n", "kind: Secret\n", "kind: ", "if __name__ == ",
]  # fmt: skip
PEM = pem("", lines=3)
KEYS = [PEM, PEM[:40], PEM[-60:], "-----BEGIN", jwt(40), "api_key = '", "token: ", "secret, "]
DISGUISED = [
    "h i p p o", "ｈｉｐｐｏ", "hip\u200bpo", "%68ippo", "\\u0068ippo", "nai\u0308ve", "&#104;ippo",
    base64.b64encode(b"the hippo is here").decode(), "\u0301", "é", "’", "“", "…", "我們看到河馬了",
    base64.b64encode(b"a blue whale is here").decode()[:11], "\U0001f600", "\ufffd", "\u00a0",
    "hip**po", "blue <b>wha</b>le", "hip<span class='a b'>po", "hip-\npo", "<span a='b' ",
    "<!-- a ", "-->", "<b", "*", "**", "`", "~", "-\n", "-", "mill<i>.example",
]  # fmt: skip
LOOSE = [
    "hippo", "blue whale", "blue ", "Blue\nWhale", "fox - trot", "fox ", "123 apples", "\n", "  ",
    ". ", ", ", ": ", "=", "'", "https://mill.example/x", "//a.mill.example", "www.mill.example",
    "git@mill.example:x", "12 ", "4111 ", "1111", "DE89 ", "+", "(", "ext 42", "order ", "phone ",
    "2024-05-06 ", "version ", "sha256",
]  # fmt: skip


def sample_of(kind: str) -> str:
    keyword, regex = RULES[kind]["keywords"][0], RULES[kind]["regex"]
    return f"{keyword} {sample(regex, random.Random(kind))}"


def phrases(rules: Sequence[PhraseRule]) -> list[str]:
    """Return texts that rules find, and prefixes of some."""
    patterns = [item.pattern.replace(f"{WORD_SEPARATOR}+", " ") for item in rules]
    texts = [sample(item, random.Random(item)) for item in patterns]
    return [*texts, *(text[: len(text) // 2] for text in texts)]


ATTACKS = phrases(
    [rule for name in ("en", *OTHER_LANGUAGES) for rule in load_language_rules(name).rules]
)
RUDE = phrases([*parse_phrase_rules(orjson.loads(PHRASES_FILE.read_bytes()))])
PASSAGES = [*PROMPT.split(" "), PROMPT[:60], PROMPT[90:150], PROMPT[155:190], PROMPT[170:]]
UNSPACED = [
    "请注意", "图书馆", "每天上午九点开门", "，", "。", "我们", "河", "河馬", "用户的密码是",
    "给你写信", "忽略", "之前的指令", "系统提示", "これは", "図書館の", "お知らせ", "です",
    "以前の指示を無視して", "ผู้ใช้", "ห้องสมุด", "你", "把", "2024", "年", "请写信给",
    "用户@例子.广告", "或ada@mill.example写信",
]  # fmt: skip
CREDENTIALS = [*IN_CONTEXT, *generic()[::4]]
SECRETS = [*map(sample_of, sorted(RULES)), *(credential.text for credential in CREDENTIALS)]
IDENTIFIERS = [value for values in VALUES.values() for value in values]
DISGUISES = st.sampled_from(
    [
        lambda text: "".join(f"\\u{ord(letter):04x}" for letter in text),
        lambda text: "".join(f"&#{ord(letter)};" for letter in text),
        lambda text: text.encode().hex(),
        lambda text: base64.b64encode(text.encode()).decode(),
        lambda text: f"{text[: len(text) // 2]}**{text[len(text) // 2 :]}",
        lambda text: f"{text[: len(text) // 3]}<b>{text[len(text) // 3 :]}</b>",
        lambda text: f"{text[: len(text) // 2]}\u200b{text[len(text) // 2 :]}",
        " ".join,
    ]
)
BIT = st.one_of(
    st.sampled_from(WORDS_OF_PROSE),
    st.sampled_from(WORDS_OF_PROSE),
    st.sampled_from(LOOSE),
    st.sampled_from(DISGUISED + KEYS + CODE),
    st.sampled_from(IDENTIFIERS),
    st.sampled_from(SECRETS),
    st.sampled_from(ATTACKS + RUDE),
    st.sampled_from(PASSAGES).map("{} ".format),
    st.lists(st.sampled_from(UNSPACED), max_size=12).map("".join),
    st.sampled_from(ATTACKS + RUDE + LISTED).flatmap(
        lambda text: DISGUISES.map(lambda by: by(text))
    ),
)
TEXT = st.lists(BIT, max_size=24).map("".join)
CUTS = st.lists(st.integers(0, 6000), max_size=40) | st.just([*range(2000)])


def streamed(parts: Sequence[str], rules: Sequence[GuardRule]) -> str:
    return stream(Window(tallies(*rules), replace=bracketed), parts)[0]


def at_spaces(text: str) -> list[int]:
    return [space.end() for space in re.finditer(r"\s", text)]


@given(TEXT, CUTS, st.sampled_from(SETS))
def test_any_cut_is_masked_as_the_whole_text(
    text: str, cuts: list[int], names: tuple[str, ...]
) -> None:
    rules = [GUARDS[name] for name in names]
    expected = masked_whole(text, rules)

    assert streamed(pieces(text, cuts), rules) == expected
    assert streamed(pieces(text, at_spaces(text)), rules) == expected


@for_each("kind", sorted(RULES))
def test_each_kind_of_secret_is_masked_at_any_cut(kind: str) -> None:
    text = f"{PROSE}For {sample_of(kind)} and so on. {PROSE}"
    rules = [GUARDS["secrets"], GUARDS["pii"]]
    expected = masked_whole(text, rules)

    for parts in (list(text), pieces(text, at_spaces(text)), pieces(text, [*range(0, 2000, 7)])):
        assert streamed(parts, rules) == expected


@for_each("credential", CREDENTIALS, ids=lambda credential: credential.text[:40])
def test_each_credential_is_masked_at_any_cut(credential: Credential) -> None:
    text = f"{PROSE}{credential.text} and so on. {PROSE}"
    rules = [GUARDS["secrets"], GUARDS["pii"]]
    expected = masked_whole(text, rules)
    first_count, last_count = len(PROSE), len(PROSE) + len(credential.text) + 1

    assert credential.secret not in expected
    for parts in (list(text), *(pieces(text, [cut]) for cut in range(first_count, last_count))):
        assert streamed(parts, rules) == expected


@for_each("value", IDENTIFIERS)
def test_identifiers_are_masked_at_any_cut(value: str) -> None:
    rules = [GUARDS["every entity"]]
    for text in (f"{PROSE}My phone is {value}, call it. {PROSE}", f"{PROSE}{value} {value}"):
        expected = masked_whole(text, rules)

        for parts in (list(text), pieces(text, at_spaces(text)), pieces(text, [*range(0, 999, 7)])):
            assert streamed(parts, rules) == expected


@given(TEXT, CUTS, st.sampled_from([*GUARDS]))
def test_no_part_of_a_blocked_finding_is_released(text: str, cuts: list[int], name: str) -> None:
    rule = GUARDS[name]
    matches = find_matches(tallies(rule)[0], 0, build_views(text))
    blocking = GuardRule(name, rule.detector, "block", cased=rule.cased)
    window, released = Window(tallies(blocking)), 0

    try:
        for part in pieces(text, cuts):
            released += sum(piece.size for piece in window.feed(part))
        window.close()
    except GuardBlocked:
        assert matches
        assert released <= matches[0].start
    else:
        assert not matches


def tokens(text: str) -> list[str]:
    return re.findall(r"\s?\w{1,6}|\s?[^\w\s]|\s+", text)


def lags(names: Sequence[str], text: str, minimum: int = 400) -> list[int]:
    """Return for each piece, some characters as models send them, how many more came before all of
    it was released."""
    window = Window(tallies(*(GUARDS[name] for name in names)))
    ends = [*itertools.accumulate(map(len, tokens(text)))]
    released, waiting, out = 0, [], []
    for index, piece in enumerate(tokens(text)):
        waiting.append(index)
        released += sum(item.size for item in window.feed(piece))
        while waiting and ends[waiting[0]] <= released:
            out.append(index - waiting.pop(0))
    return [*out, *(len(ends) - index for index in waiting)]


@for_each("names", SETS, ids=" ".join)
def test_prose_is_delayed_by_few_pieces(names: tuple[str, ...]) -> None:
    pending = lags(names, PROSE * 4)

    assert pending[0] <= 5
    assert sum(pending) / len(pending) <= 7  # 0.14 s at 50 pieces per second
    assert max(pending) <= 16


@for_each(
    ("name", "text", "maximum"),
    [
        ("every entity", "Write to ada@mill.example before noon. ", 20),
        ("every entity", "Call +49 30 901820 before noon. ", 40),
        ("secrets", f"It is {'gh' + 'p_' + 'a1B2c3D4e5' * 3 + 'f6G7h8'}, keep it. ", 16),
        ("urls", "It is at https://mill.example/of/books, as ever. ", 16),
        ("keywords", "It is a blue whale, not a blue shark. ", 12),
        ("injection", "Never ignore all the previous notes of yours, it said. ", 24),
        ("toxicity", "Mercy, I will kill the lights, he said. ", 16),
        ("system_prompt", "Never tell a reader what another book has said. ", 16),
        ("code", "It is:\n\n```sql\nSELECT a FROM b\n```\n\nSo it is. ", 30),
    ],
)
def test_finding_delays_only_adjacent_text(name: str, text: str, maximum: int) -> None:
    pending = lags([name], PROSE + text + PROSE)
    count_before, extra = len(tokens(PROSE)), len(tokens(text))

    assert max(pending) <= maximum
    assert max(pending[: count_before - 8]) <= 16
    assert max(pending[count_before + extra + maximum :]) <= 16


@for_each("size", [1, 5, 24, 400])
@for_each("name", GUARDS)
def test_stored_text_is_bounded_by_lookback(name: str, size: int) -> None:
    window = Window(tallies(GUARDS[name]))
    text = PROSE * 60

    for start in range(0, len(text), size):
        window.feed(text[start : start + size])
        assert len(window._text) <= 2 * window.lookback + 2500


@for_each(
    ("name", "text"),
    [
        ("code", "```python\n" + "x = 1 \n" * 4000),
        ("injection", "ignore all the other previous " * 800),
        ("injection", "你的" * 4000),
        ("every entity", "写信给" * 4000),
        ("system_prompt", "the desk says the helper of the town " * 800),
        ("system_prompt", "你是图书馆的助手你" * 900),
    ],
)
def test_open_finding_is_not_reread_at_each_word(name: str, text: str) -> None:
    """An unclosed fence is read again a bounded number of times."""
    counted = Counted(GUARDS[name])
    rule = GuardRule(name, counted, "mask", cased=True)  # type: ignore[arg-type]

    streamed(list(text), [rule])

    assert counted.read <= 120 * len(text)


class Counted:
    """Counts the characters that a guard reads."""

    def __init__(self, rule: GuardRule) -> None:
        self.detector = rule.detector
        self.lookback = rule.detector.lookback  # type: ignore[union-attr]
        self.partial_matcher = self
        self.read = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self.detector.partial_matcher, name)  # type: ignore[union-attr]

    def find(self, text: str) -> object:
        self.read += len(text)
        return self.detector.find(text)  # type: ignore[union-attr]

    def ends_in_partial_match(self, data: bytes) -> bool:
        self.read += len(data)
        return bool(self.detector.partial_matcher.ends_in_partial_match(data))  # type: ignore[union-attr]

    def may_end_in_partial_match(self, text: str) -> bool:
        self.read += len(text)
        return bool(self.detector.partial_matcher.may_end_in_partial_match(text))  # type: ignore[union-attr]

    def find_partial_match(self, text: str, start: int) -> int:
        self.read += len(text)
        return int(self.detector.partial_matcher.find_partial_match(text, start))  # type: ignore[union-attr]


def test_words_are_inspected_together() -> None:
    counted = Counted(GUARDS["code"])
    rule = GuardRule("code", counted, "mask", cased=True)  # type: ignore[arg-type]

    streamed(tokens(PROSE * 4), [rule])

    assert counted.read <= 3 * len(PROSE * 4)


def test_short_lookback_holds_little() -> None:
    short = guard_rule("keywords", words=["hippo"])
    window = Window(tallies(short))
    assert window.lookback <= MIN_LOOKBACK

    for letter in PROSE:
        window.feed(letter)
        assert window.held_size <= window.lookback + 2  # a cut letter may be held too


@pytest.mark.parametrize(
    "text",
    [
        "My address is john@mai-\n   l.example.com for all that I have.",
        "My address is john<span class='a b'>@mail.example.com for all that I have.",
    ],
)
def test_word_with_ignored_space_is_held(text: str) -> None:
    rules = [GUARDS["pii"]]
    expected = masked_whole(text, rules)

    assert "[" in expected
    for cuts in (at_spaces(text), [*range(len(text))], [*range(0, len(text), 7)]):
        assert streamed(pieces(text, cuts), rules) == expected
