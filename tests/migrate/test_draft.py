"""Drafts of policies: names, secrets, URLs, durations and prices."""

from __future__ import annotations

import re
from typing import Any

import yaml

from proxy.migrate.draft import (
    NAME_PATTERN,
    ConfigPart,
    Draft,
    find_listed_price,
    format_duration,
    iter_variable_names,
    redact_url,
    to_slug,
)
from proxy.policy.files.load import read_packaged_prices
from proxy.policy.schema import TargetConfig
from tests.for_each import for_each


@for_each(
    ("text", "name"),
    [
        ("gpt-4o", "gpt-4o"),
        ("Local Llama", "local-llama"),
        ("meta/llama:free", "meta-llama-free"),
        ("\u00e9\u00e9", "unnamed"),
        ("", "unnamed"),
        ("-" * 80 + "a" * 80, "a" * 64),
    ],
)
def test_any_text_becomes_a_name(text: str, name: str) -> None:
    assert to_slug(text) == name
    assert NAME_PATTERN.fullmatch(name)


@for_each(
    ("value", "variable", "is_noted"),
    [
        ("os.environ/KEY_1", "KEY_1", False),
        ("${KEY}", "KEY", False),
        ("sk-live", "OWN", True),
        ("os.environ/KEY; x", "OWN", True),
        (7, "OWN", True),
        (None, "OWN", False),
    ],
)
def test_secrets_become_variables(value: object, variable: str, is_noted: bool) -> None:
    draft = Draft()

    assert draft.reference_secret(value, "OWN", "here") == f"${{{variable}}}"
    assert list(draft.exports) == [variable]
    assert draft.notes == (["here: the secret is not copied. Set OWN to it."] if is_noted else [])


def test_secrets_have_separate_variables() -> None:
    draft = Draft(["A_2_API_KEY", "HF_TOKEN"])

    target = [draft.reference_secret(value, "A_API_KEY", "here") for value in ("x", "y", "x")]

    assert target == ["${A_API_KEY}", "${A_3_API_KEY}", "${A_API_KEY}"]
    assert draft.reference_secret("z", "HF_TOKEN", "here") == "${HF_TOKEN_2}"


def test_variables_are_recognized() -> None:
    config: dict[str, object] = {"a": [{"b": "os.environ/ONE"}, "${TWO}", "os.environ/not one"]}
    config["itself"] = config

    assert set(iter_variable_names(config)) == {"ONE", "TWO"}


@for_each(("seconds", "text"), [(1, "1s"), (600.0, "600s"), (1.5, "1500ms"), (0.0001, "1ms")])
def test_durations_have_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_different_upstreams_have_different_names() -> None:
    draft = Draft()

    names = [draft.add_upstream("A" * 70, {"n": number}) for number in (1, 2, 1, 3)]

    assert names == ["a" * 64, "a" * 60 + "-2", "a" * 64, "a" * 60 + "-3"]


def test_repeated_targets_are_kept() -> None:
    draft, shared = Draft(), {"targets": [{"model": "m"}]}
    draft.deployments = {"a": shared, "b": shared}

    text = draft.render_files()["deployments.yaml"]

    assert re.findall("[&*]id", text) == []
    assert yaml.safe_load(text) == {"deployments": draft.deployments}


def test_note_is_one_line() -> None:
    draft = Draft()
    draft.add_note("a\nb", "c\nkeys: {}\x85d\u2028e")

    lines = draft.render_files()["deployments.yaml"].splitlines()
    assert lines[1:] == ["# - a?b: c?keys: {}?d?e", "deployments: {}"]


@for_each(
    ("text", "bare"),
    [
        ("https://a.test:8443/v1", ("https://a.test:8443/v1", False)),
        ("https://user:sk-live@a.test/v1", ("https://a.test/v1", True)),
        ("https://a.test/v1?key=sk-live#part", ("https://a.test/v1", True)),
        ("https://[a.test/v1", (None, False)),
        ("sk-live", (None, False)),
        ("a.test/v1", (None, False)),
        ("https://a.test:port/v1", (None, False)),
        ("", (None, False)),
    ],
)
def test_url_has_no_secret(text: str, bare: tuple[str, bool]) -> None:
    assert redact_url(text) == bare


AZURE, GROQ = {"dialect": "azure"}, {"dialect": "openai", "provider": "groq"}
ROWS = read_packaged_prices().prices


@for_each(
    ("upstream", "model", "provider", "row"),
    [
        (AZURE, "gpt-4o", "azure", "gpt-4o"),
        (AZURE, "openai/gpt-4o", "openai", "gpt-4o"),
        ({"dialect": "openai"}, "azure/gpt-4o", "azure", "gpt-4o"),
        ({"dialect": "anthropic"}, "claude-4-6-opus-x", "anthropic", "claude-4-6-opus*"),
        (GROQ, "xai/grok-3", "x-ai", "grok-3"),
    ],
)
def test_provider_price_or_target_price_applies(
    upstream: dict[str, Any], model: str, provider: str, row: str
) -> None:
    result = find_listed_price(upstream, model)

    assert result == (ROWS[provider][row], read_packaged_prices().price_table.as_of)
    assert result[0] is not ROWS[provider][row]
    target = TargetConfig.model_validate({"upstream": "u", "model": "m", "price": result[0]})
    assert target.price


@for_each(
    ("upstream", "model"),
    [
        (GROQ, "gpt-4o-nobody"),
        ({"dialect": "openai_compatible"}, "gpt-4o"),
        (AZURE, ""),
        (AZURE, "/"),
    ],
)
def test_unknown_model_has_no_price(upstream: dict[str, Any], model: str) -> None:
    assert find_listed_price(upstream, model) is None


@for_each("value", [0, -1, True, "x", None, [], 1e13, 10**400, float("nan")])
def test_numbers_must_be_positive(value: Any) -> None:
    draft = Draft()
    part = ConfigPart(draft, {"n": value}, "at")

    assert part.read_number("n") is None
    part.add_unread_notes("is unread")
    assert draft.notes == ([] if value in (None, []) else ["at.n: is unread"])


@for_each(("value", "text"), [("a", "a"), (7, "7"), (True, None), ("", None)])
def test_text_may_be_a_number(value: Any, text: str | None) -> None:
    assert ConfigPart(Draft(), {"t": value}).read_as_text("t") == text
