from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from proxy.guards.matching import gitleaks
from proxy.guards.matching.credential_values import entropy
from proxy.guards.matching.gitleaks import SecretRule, rules
from proxy.guards.matching.re2set import compiling
from tests.for_each import for_each

ONE_RULE = r"""
[allowlist]
regexes = ['^order-0+$']
[[rules]]
id = "{kind}"
regex = '''{regex}'''
keywords = ["order"]
{more}
"""


def rule(folder: Path, regex: str, more: str = "") -> SecretRule:
    file = folder / "rules.toml"
    file.write_text(ONE_RULE.format(kind="order-key", regex=regex, more=more))
    return rules(file)[0]


def secret_in(made: SecretRule, text: str) -> str | None:
    data = text.encode()
    spans = made.found.search(data)
    place = spans and made.secret(data, spans)
    return data[slice(*place)].decode() if place else None


def test_the_file_is_the_one_that_its_note_names() -> None:
    digest = hashlib.sha256(gitleaks.RULES.read_bytes()).hexdigest()

    assert digest in gitleaks.RULES.with_name("README.md").read_text()
    for licence in ("gitleaks.LICENSE", "betterleaks.LICENSE"):
        assert "MIT" in gitleaks.RULES.with_name(licence).read_text()


def test_every_rule_of_the_file_that_looks_at_text_is_read() -> None:
    read = rules()

    newer = rules(gitleaks.NEWER_RULES)

    assert len(read) == gitleaks.RULES.read_text().count("\nregex = ") == 221
    assert len(newer) == gitleaks.NEWER_RULES.read_text().count("\nregex = ") == 20
    assert not {rule.kind for rule in read} & {rule.kind for rule in newer}
    assert sum(1 for each in read if each.names) == 100


def test_no_rule_repeats_without_end_but_by_a_class_of_its_own() -> None:
    assert [
        each.kind
        for each in gitleaks.all_rules()
        if re.search(r"\{\d+,\}|(?<!@)\.[*+]", each.pattern)
    ] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("order-17a", "order-17a"),
        ("order-000", None),
        ("order-test9", None),
    ],
)
def test_what_is_allowed_is_no_secret(tmp_path: Path, text: str, found: str | None) -> None:
    more = "[[rules.allowlists]]\nstopwords = ['test']"

    assert secret_in(rule(tmp_path, "order-[0-9a-z]+", more), text) == found


def test_a_list_that_asks_for_a_path_never_applies(tmp_path: Path) -> None:
    more = "[[rules.allowlists]]\ncondition = 'AND'\npaths = ['x']\nregexes = ['order']"

    assert secret_in(rule(tmp_path, "order-[0-9a-z]+", more), "order-17a") == "order-17a"


@for_each(
    ("target", "allowed", "found"),
    [
        ("match", "my-order", None),
        ("match", "line", "17a17a"),
        ("line", "first", "17a17a"),
        ("line", "second line", None),
        ("line", "17a end", None),
        ("line", "end", "17a17a"),  # begins behind it, for which no stream is to wait
    ],
)
def test_a_list_may_look_at_the_match_or_its_line(
    tmp_path: Path, target: str, allowed: str, found: str | None
) -> None:
    more = f"[[rules.allowlists]]\nregexTarget = '{target}'\nregexes = ['{allowed}']"
    made = rule(tmp_path, "order-([0-9a-z]+)", more)

    assert secret_in(made, "first line\nsecond line my-order-17a17a end\nlast line") == found


def test_a_keyword_has_to_stand_near() -> None:
    sourcegraph = next(each for each in rules() if each.kind == "sourcegraph-access-token")
    digits = "0123456789abcdef" * 2 + "76543210"

    assert secret_in(sourcegraph, f"sourcegraph says {digits} ") == digits
    assert secret_in(sourcegraph, f"sourcegraph says {'so ' * 200}{digits} ") is None


def test_the_group_that_took_part_is_the_secret_unless_it_is_a_part_of_a_shape(
    tmp_path: Path,
) -> None:
    assert secret_in(rule(tmp_path, "order=(?:(a{8})|(b{8}))"), "order=bbbbbbbb") == "bbbbbbbb"
    assert secret_in(rule(tmp_path, "order(-[a-z]{3}){2}"), "order-abc-def") == "order-abc-def"
    assert secret_in(rule(tmp_path, "(?P<of>order)-abc"), "order-abc") == "order-abc"
    assert secret_in(rule(tmp_path, "(order)-(abc)", "secretGroup = 2"), "order-abc") == "abc"


def test_a_value_below_the_least_entropy_is_no_secret(tmp_path: Path) -> None:
    made = rule(tmp_path, "order-([0-9a-z]+)", "entropy = 2")

    assert secret_in(made, "order-abcabcabc") is None
    assert secret_in(made, "order-abcdefghi") == "abcdefghi"
    assert (entropy(b""), entropy(b"aaaa"), entropy(b"abcd")) == (0, 0, 2)


def test_a_rule_that_re2_does_not_know_is_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a valid RE2 pattern"):
        list(compiling(rule(tmp_path, "(?=order)").patterns))


def test_re2_knows_every_rule_of_the_file() -> None:
    for each in gitleaks.all_rules():
        list(compiling(each.patterns))
