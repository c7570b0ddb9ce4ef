"""Validates policies against the schema, and words the errors."""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Iterable
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from proxy.errors.words import join_names, quote
from proxy.guards.kinds import KINDS
from proxy.policy import schema
from proxy.policy.files.source import Document, KeyPath, format_path
from proxy.policy.schema.guards import GuardConfig, find_plugins, get_guard_model

HUGE_NUMBER_PATTERN = r"[1-9]\d{18,}"
"""Numbers that are too large, which the YAML reader returns as text."""
OTHER_MONEY_KEYS = frozenset(
    {"aud", "brl", "budget", "cad", "chf", "cny", "cost", "dollars", "eur", "euro", "gbp", "inr"}
    | {"jpy", "krw", "money", "pln", "sek", "sgd"}
)
PRICE_ALIASES = {
    **dict.fromkeys(("in", "input_tokens", "prompt", "prompt_tokens"), "input"),
    **dict.fromkeys(("out", "output_tokens", "completion", "completion_tokens"), "output"),
    "cached": "cached_input",
}
"""Names of prices in other products."""
MESSAGE_BY_TYPE = {
    "bool_type": "must be true or false",
    "dict_type": "must be a mapping",
    "int_type": "must be a whole number",
    "list_type": "must be a list",
    "model_attributes_type": "must be a mapping",
    "model_type": "must be a mapping",
    "string_type": "must be text",
    "too_short": "must have at least one item",
}


def validate_or_return_empty(document: Document) -> schema.PoliciesConfig:
    """Return the policies. If there are schema errors, report them and return empty policies."""
    try:
        return schema.PoliciesConfig.model_validate(document.data)
    except ValidationError as error:
        report_errors(document, error, schema.PoliciesConfig)
        return schema.PoliciesConfig()


def report_errors(
    document: Document, error: ValidationError, model: type[BaseModel], base: KeyPath = ()
) -> None:
    """Report the errors of the part at ``base``, which was validated as ``model``."""
    reported = {problem.path for problem in document.problems}
    for detail in error.errors(include_url=False):
        inner_path = tuple(part for part in detail["loc"] if part != "[key]")
        path, message = _describe_error(inner_path, detail, model)
        path = document.get_written_path((*base, *path))
        if format_path(path) not in reported:
            document.report(path, message)


def _describe_error(
    path: KeyPath, detail: ErrorDetails, model: type[BaseModel]
) -> tuple[KeyPath, str]:
    kind = detail["type"]
    if kind == "extra_forbidden":
        return path, "unknown key" + _make_unknown_key_hint(
            str(path[-1]), list_schema_keys(path[:-1], model)
        )
    if kind == "missing":
        return path[:-1], f"required key {quote(str(path[-1]))} is missing"
    if "[key]" in detail["loc"] and kind != "value_error":
        # Names of tags allow fewer characters than others.
        marks, start = "underscore", "a letter"
        if "-" in str(detail.get("ctx", {}).get("pattern", "")):
            marks, start = "dot, dash and underscore", "a letter or digit"
        rule = f"Use at most 64 of a-z, 0-9, {marks}, starting with {start}"
        return path, f"is not a valid name. {rule}"
    if kind in MESSAGE_BY_TYPE:
        is_huge = kind == "int_type" and re.fullmatch(HUGE_NUMBER_PATTERN, str(detail["input"]))
        return path, "is too large a number" if is_huge else MESSAGE_BY_TYPE[kind]
    if kind in ("union_tag_not_found", "union_tag_invalid", "literal_error"):
        return _describe_choice_error(path, detail)
    message = re.sub(r"^(Input|String|List|Dictionary|Value) should ", "must ", detail["msg"])
    return path, message.removeprefix("Value error, ")


def _describe_choice_error(path: KeyPath, detail: ErrorDetails) -> tuple[KeyPath, str]:
    if detail["type"] == "union_tag_not_found":
        key = detail["ctx"]["discriminator"].strip("'")
        for similar in difflib.get_close_matches(key, detail["input"], n=1):
            return (*path, similar), f"unknown key. Did you mean {quote(key)}?"
        return path, f"required key {quote(key)} is missing"
    if detail["type"] == "union_tag_invalid":
        kinds = re.findall(r"'(.*?)'", detail["ctx"]["expected_tags"])
        tag, kinds = str(detail["ctx"]["tag"]), sorted({*kinds, *find_plugins()})
        hint = suggest_similar(tag, kinds) or f". Available: {', '.join(kinds)}"
        return path, f"guard {quote(tag)} does not exist{hint}"
    words = re.findall(r"\b[\w-]+\b", detail["msg"].removeprefix("Input should be "))
    words = [word for word in words if word != "or"]
    hint = suggest_similar(str(detail["input"]), words) if len(words) > 1 else ""
    choice = f"one of {', '.join(words)}" if words[2:] else " or ".join(words)
    return path, f"must be {choice}{hint}"


def _make_unknown_key_hint(key: str, keys: list[str]) -> str:
    """Return a hint for an unknown key: the key that is probably meant, or all keys."""
    if "usd" in keys and key.lower() in OTHER_MONEY_KEYS:
        return '. Money is in US dollars: use "usd".'
    if "cached_input" in keys and key in PRICE_ALIASES:
        return f". Did you mean {quote(PRICE_ALIASES[key])}?"
    return suggest_similar(key, keys) or (f". Available: {', '.join(keys)}" if keys else "")


def describe_forbidden_tag_value(value: str, allowed: Iterable[str] | None) -> str:
    """Return the message for a tag value that its tag does not allow."""
    values = sorted(allowed or ())
    hint = suggest_similar(value, values) or (f". Allowed: {join_names(values)}" if values else "")
    return f"this tag does not allow the value {quote(value)}{hint}"


def describe_unknown_name(kind: str, name: str, existing: Iterable[str]) -> str:
    """Return the message for an unknown name, with a similar name or the first existing ones."""
    names = sorted(existing)
    hint = suggest_similar(name, names) or (f". Available: {join_names(names)}" if names else "")
    return f"{kind} {quote(name)} does not exist{hint}"


def suggest_similar(word: str, words: Iterable[str]) -> str:
    """Return ``. Did you mean "…"?`` with the most similar of ``words``, or an empty text."""
    similar = [] if word.isdigit() else difflib.get_close_matches(word, list(words), n=1)
    return f". Did you mean {quote(similar[0])}?" if similar else ""


def list_schema_keys(path: KeyPath, model: Any) -> list[str]:
    """Return the keys that the schema allows at a path."""
    for part in path:
        model = _find_type_of_part(model, part)
    if isinstance(model, type) and issubclass(model, BaseModel):
        return [field.alias or name for name, field in model.model_fields.items()]
    return []


def _find_type_of_part(kind: Any, part: str | int) -> Any:
    """Return the bare type of a field of a model, or of the items of a list or a mapping."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        field = kind.model_fields.get(str(part))
        if field is None and kind is GuardConfig and part in KINDS:
            return get_guard_model(str(part))  # paths in a guard start with its kind
        inner = field.annotation if field else None
    else:
        arguments = get_args(kind)
        inner = arguments[-1] if arguments else None
    while get_origin(inner) in (Annotated, Union, types.UnionType):
        inner = next(argument for argument in get_args(inner) if argument is not type(None))
    return inner
