"""Findings across adjacent messages of one role are masked in both messages.

Other messages are judged separately, and long conversations are read again only at boundaries.
"""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.guards.engine import Engine, Inspection
from proxy.guards.findings import TextMatch
from proxy.guards.kinds import keywords, pii, secrets
from proxy.guards.text.documents import collect_plain_request_texts, collect_request_texts
from proxy.guards.text.replace import replace_texts
from proxy.guards.text.walk import Texts
from proxy.guards.whole.joined_parts import (
    BOUNDARY_CHARS,
    MAX_JOINED_CHARS,
    SEPARATORS,
    JoinedParts,
    iter_same_role_boundaries,
)
from proxy.types.guard import Finding, GuardRule
from proxy.types.partial_matcher import is_split_value_checker
from tests.for_each import for_each
from tests.guards.doubles import Ticks, pieces, rule
from tests.guards.growth import LINEAR, grown
from tests.guards.stream.test_window import CUTS, RULES, TEXT
from tests.guards.whole.test_joined_parts import (
    Letters,
    inspect,
    letters_alone,
    letters_of,
    lines_of,
)

KEY = "ghp_" + "0a1B2c3D4e5F6g7H8i" * 2
CARD = "4111 1111 1111 1111"
PROSE = "It was raining when we came to the mill, and the river stood high. "

PII = GuardRule("pii", pii.Pii(["card", "email"]), "mask", cased=True)
EVERYBODY = GuardRule("pii", pii.Pii(), "mask", cased=True)
SECRETS = GuardRule("secrets", secrets.load_shared_detector(), "mask", cased=True)


def body(*messages: Any, role: str = "user") -> dict[str, Any]:
    return {"messages": [m if isinstance(m, dict) else message_of(m, role) for m in messages]}


def message_of(content: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": content}


async def inspected(request: dict[str, Any], *rules: GuardRule) -> Inspection:
    return await Engine(Ticks()).inspect(rules, read(request))


def read(request: dict[str, Any]) -> Texts:
    return collect_plain_request_texts(request) or collect_request_texts(request)


async def masked_texts(request: dict[str, Any], *rules: GuardRule) -> list[Any]:
    changed = replace_texts(request, (await inspected(request, *rules)).changes)
    return [message["content"] for message in changed["messages"]]


# A letter next to a key that is found without it stays, because it is no digit.
@for_each("index", range(2, len(KEY) - 1))
async def test_key_cut_anywhere_is_masked_in_both_messages(index: int) -> None:
    request = body(f"the key is {KEY[:index]}", f"{KEY[index:]} as I said")

    first_value, second = await masked_texts(request, SECRETS)

    assert first_value.startswith("the key is [")
    assert second.endswith("] as I said")
    assert not any(KEY[i : i + 4] in first_value + second for i in range(len(KEY) - 4))


@for_each("role", ["user", "assistant", "tool", "system"])
@for_each("messages", [("4111 1111", "1111 1111"), ("4111 1111 11", "11 1111")])
async def test_card_is_found_across_messages(messages: tuple[str, str], role: str) -> None:
    assert await masked_texts(body(*messages, role=role), PII) == ["[CARD]", "[CARD]"]


async def test_card_in_three_messages_is_found_once() -> None:
    request = body("4111 1111", "1111", "1111")

    inspection = await inspected(request, PII)

    assert inspection.results[0].findings == {"card": 1}
    assert (inspection.results[0].fields, inspection.results[0].bytes) == (3, 17)
    assert await masked_texts(request, PII) == ["[CARD]", "[CARD]", "[CARD]"]


async def test_context_of_a_message_reaches_the_next() -> None:
    words = rule("the key is x9", action="mask")

    assert await masked_texts(body("Listen, the key is", "x9, right?"), words) == [
        "Listen, [WORD]",
        "[WORD], right?",
    ]


async def test_parts_of_adjacent_messages_are_joined() -> None:
    request = body(
        [{"type": "text", "text": "it is 4111 "}, {"type": "text", "text": "1111 "}], CARD
    )
    request["messages"][1]["content"] = [{"type": "text", "text": "1111 1111, yes"}]

    parts = await masked_texts(request, PII)

    assert [[part["text"] for part in item] for item in parts] == [
        ["it is [CARD]", "[CARD]"],
        ["[CARD], yes"],
    ]


SPLIT = message_of("4111 1111"), message_of("1111 1111")


@for_each(
    "fields",
    [
        body(SPLIT[0], message_of("Go on.", "assistant"), SPLIT[1]),
        body(SPLIT[0], message_of("1111 1111", "assistant")),
        {"prompt": ["4111 1111", "1111 1111"]},
        body(SPLIT[0], {**message_of("Hi"), "name": "1111 1111"}),
        body({"content": "4111 1111"}, {"content": "1111 1111"}),
    ],
    ids=["another between", "another role", "prompts", "a name", "no role"],
)
async def test_only_adjacent_messages_of_a_role_are_joined(fields: Any) -> None:
    assert (await inspected(fields, PII)).changes == {}


@for_each("nothing", ["", [], [{"type": "text", "text": ""}]])
async def test_empty_message_separates_no_finding(nothing: Any) -> None:
    request = body(SPLIT[0], message_of(nothing, "assistant"), SPLIT[1])

    assert (await inspected(request, PII)).results[0].findings == {"card": 1}


async def test_edge_of_a_window_makes_no_finding() -> None:
    string = "rapist, said the miller, and".ljust(BOUNDARY_CHARS, ".")
    word = GuardRule("words", keywords.Keywords("word", ["rapist"]), "mask")

    inspection = await inspected(body(f"the{string}", PROSE), word)

    assert inspection.results[0].findings == {}
    assert (await inspected(body(string, PROSE), word)).results[0].findings == {"word": 1}


async def test_finding_within_a_message_counts_once() -> None:
    request = body(f"mine is {CARD}", f"and {CARD}", PROSE)

    assert (await inspected(request, PII)).results[0].findings == {"card": 2}


@for_each(
    ("messages", "masked"),
    [
        (("it is secret1", "agent7."), ["it is [WORD]", "[WORD]."]),
        (("it is secret", "agent."), ["it is [WORD]", "agent."]),
    ],
)
async def test_finding_continues_only_at_digits(
    messages: tuple[str, str], masked: list[str]
) -> None:
    words = rule("secret1", "secret", "secret1agent7", "secretagent", action="mask")

    assert (await inspected(body(*messages), words)).results[0].findings == {"word": 1}
    assert await masked_texts(body(*messages), words) == masked


@for_each(
    "messages",
    [
        ("Order 12", "ada@example.com is hers"), ("hers is ada1@example.com", "7of9 is mine"),
        ("It costs 19.99", "@example.com, please"), ("Mine is +49 30 901820", "12 people came"),
        ("It took 202", "555 0187 of them"), ("the year is 2026", "555-0187-12 is the part"),
    ],
)  # fmt: skip
async def test_adjacent_values_stay_separate(messages: tuple[str, str]) -> None:
    alone = [text for message in messages for text in await masked_texts(body(message), EVERYBODY)]

    assert await masked_texts(body(*messages), EVERYBODY) == alone


@for_each("index", range(1, len("+49 30 901820")))
async def test_phone_is_found_at_any_cut(index: int) -> None:
    phone = "+49 30 901820"

    first_value, _ = await masked_texts(
        body(f"mine is {phone[:index]}", f"{phone[index:]}, I think"), EVERYBODY
    )

    assert first_value == "mine is [PHONE]"


async def test_address_ends_with_its_message() -> None:
    messages = await masked_texts(body("write to ada@example.com", "Thanks for all"), PII)

    assert messages == ["write to [EMAIL]", "Thanks for all"]


async def test_rule_joins_only_messages_of_its_roles() -> None:
    users = rule("secret", roles=frozenset({"user"}))

    assert (await inspected(body("the sec", "ret"), users)).blocked is not None
    assert (await inspected(body("the sec", "ret", role="tool"), users)).blocked is None


def row_of(messages: list[str], middle: str, single_rule: GuardRule) -> list[Letters]:
    """Return the findings of a rule in the joined messages, as positions in each message."""
    starts = [*accumulate((len(message) + len(middle) for message in messages), initial=0)]
    places = {
        starts[number] + index: (number, index)
        for number, message in enumerate(messages)
        for index in range(len(message))
    }
    row = collect_request_texts(body(middle.join(messages))).texts
    return [
        {places[index] for index in range(m.start, m.end) if index in places}
        for _, m in inspect(row, single_rule).matches
    ]


@given(st.builds(pieces, TEXT, CUTS), st.sampled_from(RULES))
def test_short_messages_are_found_joined_and_alone(
    parts: list[str], rules: tuple[GuardRule, ...]
) -> None:
    messages = [part for part in parts if part]
    texts = collect_request_texts(body(*messages)).texts

    for single_rule in rules:
        if single_rule.detector.lookback is None:  # type: ignore[union-attr]
            continue
        alone = letters_alone(texts, single_rule)
        rows = [part for middle in SEPARATORS for part in row_of(messages, middle, single_rule)]
        letters = letters_of(texts, single_rule)
        assert alone <= letters <= alone.union(*rows)
        if not is_split_value_checker(single_rule.detector):
            assert all(part <= letters for part in rows if not part & alone)


@given(st.integers(0, 900), st.integers(0, 900), st.integers(2, len(KEY) - 2), st.data())
def test_cut_key_is_found_at_any_length(
    before: int, behind: int, at: int, data: st.DataObject
) -> None:
    drawn = random.Random(data.draw(st.integers(0, 9)))
    prose = (PROSE * 20)[drawn.randrange(60) :]
    string, two = f"{prose[:before]} {KEY[:at]}", f"{KEY[at:]} {prose[:behind]}"
    texts = collect_request_texts(body(PROSE, string, two, PROSE)).texts

    letters = letters_of(texts, SECRETS)

    assert letters == {
        *((1, place) for place in range(len(string) - at, len(string))),
        *((2, place) for place in range(len(KEY) - at)),
    }


@pytest.mark.parametrize(
    ("messages", "in_thread"),
    [(["x" * 100] * 40, False), (["x" * 100] * 60, True), (["x" * 100, "y"] * 55, True)],
)
async def test_text_read_again_has_weight(messages: list[str], in_thread: bool) -> None:
    threads: set[int] = set()

    class Where:
        lookback = 10

        def find(self, text: str) -> list[Finding]:
            threads.add(threading.get_ident())
            return []

    with ThreadPoolExecutor(1) as pool:
        await Engine(Ticks(), pool).inspect([GuardRule("where", Where())], read(body(*messages)))

    assert (threading.get_ident() not in threads) is in_thread


def test_long_conversation_is_reread_at_boundaries_only() -> None:
    talk = collect_request_texts(body(*[PROSE * 50] * 10)).texts

    repeated = sum(len(joined.text.text) for joined in iter_same_role_boundaries(talk))

    assert repeated == 9 * 2 * BOUNDARY_CHARS  # text that ends in white space is read once


@for_each("size", [1, 300, 511, 600])
def test_each_character_is_reread_at_most_twice(size: int) -> None:
    talk = collect_request_texts(body(*["x" * size] * 700)).texts
    rows = [*iter_same_role_boundaries(talk)]

    repeated = sum(len(joined.text.text) for joined in rows)

    assert repeated <= 2 * (700 * min(size, 2 * BOUNDARY_CHARS) + 700 + 4 * BOUNDARY_CHARS)
    assert all(len(joined.text.text) <= 2 * MAX_JOINED_CHARS for joined in rows)


@pytest.mark.parametrize(
    ("pair", "words", "match_count"),
    [(("a secret, the se", "cret"), ("secret",), 3), (("key1", "2b"), ("key1", "key12"), 2)],
    ids=["part", "continued"],
)
def test_many_messages_take_linear_time(
    pair: tuple[str, str], words: tuple[str, ...], match_count: int
) -> None:
    def count_lines(size: int) -> int:
        return lines_of(body(*pair * size), rule(*words), match_count * size)

    assert count_lines(400) < 3 * count_lines(200)


@pytest.mark.parametrize(
    ("roles", "separate"),
    [("user", True), ("system user assistant user", True), ("user user", False)],
)
def test_plain_reader_detects_adjacent_messages(roles: str, separate: bool) -> None:
    usual = collect_plain_request_texts(
        {"messages": [message_of("Hi", role) for role in roles.split()]}
    )

    assert usual is not None
    assert usual.has_no_joined_texts is separate
    assert ([*chain(iter_same_role_boundaries(usual.texts))] == []) is separate


def test_finding_over_many_messages_takes_linear_time() -> None:
    def case(count: int) -> tuple[JoinedParts, list[tuple[int, TextMatch]]]:
        joined = next(iter_same_role_boundaries(collect_request_texts(body(*"a" * count)).texts))
        return joined, [(number, TextMatch(0, 1, 0, "word")) for number, *_ in joined.parts]

    def judged(values: tuple[JoinedParts, list[tuple[int, TextMatch]]]) -> None:
        joined, pieces = values
        joined.list_pieces_outside_text(TextMatch(0, len(pieces), 0, "word"), pieces, 0, None)

    assert grown(judged, case(500), case(4000)) < LINEAR
