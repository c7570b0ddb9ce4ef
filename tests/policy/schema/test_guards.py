"""Guards of other distributions, and patterns of policy keys."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path

import pytest

from proxy.policy.schema import keys
from tests.conftest import policies_for
from tests.for_each import for_each

TOP = Path(__file__).parents[3]
CODE = """
import ssl
from dataclasses import dataclass

import aiohttp
from pydantic import BaseModel, Field

from proxy.types.guard import Finding


class Keys(BaseModel):
    animal: str = Field(min_length=2)


@dataclass(frozen=True)
class Spotting:
    animal: str
    lookback: int = 40

    def find(self, text):
        at = text.find(self.animal)
        return [Finding(at, at + len(self.animal), "animal")] if at >= 0 else []


class Zoo:
    Keys = Keys

    @staticmethod
    def make(keys):
        if keys.animal == "dodo":
            raise ValueError("there are no dodos")
        if keys.animal == "bug":
            raise KeyError
        if keys.animal == "seal":
            known = ssl.create_default_context().cert_store_stats()
            if aiohttp.connector._SSL_CONTEXT_VERIFIED.cert_store_stats() != known:
                raise ValueError("no server would be trusted")
        return Spotting(keys.animal)
"""
CASES = """
tests:
  An animal is masked in questions and blocked in answers:
    given: {key: support-widget, deployment: search-answers, answers: [{text: An emu}],
      body: {model: smol, messages: [{role: user, content: a hippo!}]}}
    expect:
      status: 400
      guards: {input.big: masked, output.zoo: blocked}
      upstream: {text: 'a [ANIMAL]!'}
"""
GOOD = (
    "input: [{guard: zoo, name: big, animal: hippo, action: mask}], "
    "output: [{guard: zoo, animal: emu}]"
)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of installed distributions, one of which provides guards."""
    site = tmp_path / "site"
    (about := site / "zoo_guards-1.2.dist-info").mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: zoo-guards\nVersion: 1.2\n")
    entries = "[headrace.guards]\nzoo = zoo_guards:Zoo\nbroken = zoo_guards:Nothing\n"
    (about / "entry_points.txt").write_text(entries)
    (site / "zoo_guards.py").write_text(CODE)
    return site


async def run(site: Path, command: str, text: str, *, cases: str = "") -> tuple[int, str]:
    """Run a command on policies with guards, where the distribution is installed."""
    folder = site.with_name("policies")
    (folder / "tests").mkdir(parents=True, exist_ok=True)
    policies = f"{policies_for('http://localhost:1')}\npolicies:\n  default: {{{text}}}\n"
    (folder / "policies.yaml").write_text(policies)
    if cases:
        (folder / "tests" / "cases.yaml").write_text(cases)
    environ = {**os.environ, "PYTHONPATH": f"{site}:{TOP}", "UPSTREAM_KEY": "x"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "proxy", command, str(folder), stdout=PIPE, stderr=STDOUT, env=environ
    )
    async with asyncio.timeout(60):
        out, _ = await process.communicate()
    return process.returncode or 0, out.decode()


async def test_guard_of_another_distribution_runs(site: Path) -> None:
    code, out = await run(site, "test", GOOD, cases=CASES)

    assert code == 0, out


async def test_external_guard_may_use_aiohttp_with_verified_tls(site: Path) -> None:
    code, out = await run(site, "check", "input: [{guard: zoo, animal: seal}]")

    assert code == 0, out


WRONG = {
    "input: [{guard: zoo, aminal: hippo}]": (
        "aminal: unknown key",
        'required key "animal" is missing',
    ),
    "input: [{guard: zoo, animal: x}]": ("animal: ", "at least 2 characters"),
    "input: [{guard: zoo, animal: emu, action: shoot}]": ("action: must be one of block, mask",),
    "input: [{guard: zoo, animal: dodo}]": ("there are no dodos",),
    "input: [{guard: zoo, animal: bug}]": ('guard "zoo" failed to start with KeyError',),
    "input: [{guard: broken}]": ('guard "broken" cannot be loaded: AttributeError',),
    "input: [{guard: zou}]": ('guard "zou" does not exist. Did you mean "zoo"?',),
    "input: [{guard: qqqqqq}]": ('guard "qqqqqq" does not exist. Available: ', ", pii, ", ", zoo"),
}


@pytest.mark.parametrize("text", WRONG)
async def test_error_in_external_guard_has_a_location(text: str, site: Path) -> None:
    code, out = await run(site, "check", text)

    assert code != 0
    assert "policies.yaml:" in out
    assert "policies.default.input[0]" in out
    for words in WRONG[text]:
        assert words in out


@for_each(
    ("pattern", "value", "fits"),
    [
        ("CC-[0-9]{4}", "CC-1001", True),
        *(
            ("CC-[0-9]{4}", value, False)
            for value in ("xCC-1001", "CC-10011", "CC-1001\n", "\nCC-1001", "cc-1001", "")
        ),
        ("a|b", "a", True),
        ("a|b", "ab", False),
        ("a|b", "xb", False),
        (r"\w+", "müller", False),  # character classes are those of RE2
        (r"\pL+", "müller", True),
        *(
            ("(?s).*", value, False)  # no plain text
            for value in (
                *("x" * 65, "sup\u200bport", "e\u0301te", "a\tb", "\x1b[31m", "\u202eabc"),
                "\udc80",
            )
        ),
    ],
)
def test_pattern_matches_whole_plain_value(pattern: str, value: str, fits: bool) -> None:
    assert keys.compile_tag_pattern(pattern).matches(value) is fits


@for_each("text", ["(a+)+", "(a|a)*", "(.*)*x", "(a|aa)+$"])
def test_pattern_matches_in_linear_time(text: str) -> None:
    pattern = keys.compile_tag_pattern(text)

    assert not pattern.matches("a" * 63 + "!")  # exponential time with backtracking


@for_each("text", ["[a-", "a)|(b", "(?=a)b", r"(a)\1", "x{1000}{1000}{1000}"])
def test_nonlinear_pattern_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a valid RE2 pattern: "):
        keys.compile_tag_pattern(text)


@for_each(
    ("text", "value", "fits"),
    [
        ("gpt-4o*", "gpt-4o-mini", True),
        ("gpt-4o*", "gpt-4o", True),
        ("gpt-4o*", "xgpt-4o", False),
        ("*4?", "gpt-4o", True),
        ("*4?", "gpt-4o-mini", False),
        ("?", "é", True),
        ("a.c", "abc", False),
        ("*", "two\nlines", True),
        ("y*s", "yes\n", False),
        ("*", "x" * 10_000, True),
        ("*", "\udc80", False),
    ],
)
def test_glob_matches_whole_value(text: str, value: str, fits: bool) -> None:
    assert [keys.compile_glob(text).matches(value) for _ in range(2)] == [fits, fits]
