"""Loads a policy folder and validates it against the schema. Reports all problems at once."""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from proxy.errors.words import listed, quoted
from proxy.guards.kinds.table import KINDS
from proxy.policy import schema
from proxy.policy.files import price_table
from proxy.policy.files.salvage import salvaged, unmet
from proxy.policy.files.source import Document, KeyPath, SourceLocation, path_text, unexpected
from proxy.policy.files.yaml_reader import read_file, read_limited
from proxy.policy.schema.guards import GuardConfig, config_of, installed
from proxy.runtime.frozen import frozen

MAX_ENTRIES = 1000
MAX_WALKED = 100_000
FEW = 2
MAX_SECRET_BYTES = 16 * 1024
REVISION_LENGTH = 12
MAX_TEXT_BYTES = 1024 * 1024
TEXT_KEYS = frozenset({"texts_from", "words_from"})
"""Keys of guards that name such files. Their kinds are not imported to find them."""
HUGE = r"[1-9]\d{18,}"
"""Numbers that the YAML reader leaves as text."""
OTHER_MONEY = frozenset(
    {"aud", "brl", "budget", "cad", "chf", "cny", "cost", "dollars", "eur", "euro", "gbp", "inr"}
    | {"jpy", "krw", "money", "pln", "sek", "sgd"}
)
OF_PRICES = {
    "in": "input",
    "input_tokens": "input",
    "prompt": "input",
    "prompt_tokens": "input",
    "cached": "cached_input",
    "out": "output",
    "output_tokens": "output",
    "completion": "output",
    "completion_tokens": "output",
}
"""Names of prices in other products."""
MESSAGES = {
    "bool_type": "must be true or false",
    "dict_type": "must be a mapping",
    "int_type": "must be a whole number",
    "list_type": "must be a list",
    "model_attributes_type": "must be a mapping",
    "model_type": "must be a mapping",
    "string_type": "must be text",
    "too_short": "must have at least one item",
}


@frozen
class Loaded:
    """The valid parts of a folder. ``document`` has the locations of all parts, and the problems of
    those that are left out."""

    policies: schema.PoliciesConfig
    document: Document
    revision: str

    @property
    def brings_prices(self) -> bool:
        """True if the folder contains a price table."""
        return not self.document.data.keys().isdisjoint(price_table.SECTIONS)

    @property
    def priced(self) -> schema.PoliciesConfig:
        """The policies with their own price table, or with that of the package, which is read on
        first use."""
        return self.policies if self.brings_prices else price_table.completed(self.policies)


def load(folder: Path) -> Loaded:
    """Load a folder. Raise ``PolicyError`` with all problems of its schema."""
    loaded = read(folder)
    loaded.document.raise_problems()
    return loaded


def read(folder: Path) -> Loaded:
    """Load a folder. Parts with problems are left out; the document lists the problems."""
    document = Document(folder=shown_as(folder))
    try:
        return _read(folder, document)
    except Exception as error:  # noqa: BLE001  # reported as a problem of the folder
        document.give_up(document.place(()), (), unexpected(error))
        return Loaded(schema.PoliciesConfig(), document, "")


def _read(folder: Path, document: Document) -> Loaded:
    digest = hashlib.sha256()
    files = list(files_below(folder, document, unread="tests"))
    if not files and document.whole:
        document.give_up(
            document.place(()),
            (),
            "contains no .yaml file. Run `headrace init DIR` to create a folder of policies.",
        )
    for file in files:
        shown = printable(file.relative_to(folder))
        content = read_file(file, shown, document)
        digest.update(shown.encode() + b"\0" + hashlib.sha256(content).digest())
    document.texts = read_texts(folder, document.data)
    for name, text in document.texts.items():
        digest.update(f"{name}\0{text}".encode())
    loaded = Loaded(_validated(document), document, "")
    if not loaded.brings_prices:
        digest.update(price_table.digest())
    return replace(loaded, revision=digest.hexdigest()[:REVISION_LENGTH])


def text_names(data: Any) -> Iterator[str]:
    """Yield the names of text files in data, at any depth."""
    if isinstance(data, dict):
        for key, value in data.items():
            if key in TEXT_KEYS:
                names = value if isinstance(value, list) else [value]
                yield from (name for name in names if isinstance(name, str))
            else:
                yield from text_names(value)
    elif isinstance(data, list):
        for item in data:
            yield from text_names(item)


def read_texts(folder: Path, data: Any) -> dict[str, str | ValueError]:
    """Return the content of each named file, or its problem."""
    return {name: _read_text(folder, name) for name in sorted(set(text_names(data)))}


def _read_text(folder: Path, name: str) -> str | ValueError:
    inside = PurePosixPath(name)
    if inside.is_absolute() or ".." in inside.parts:
        return ValueError(f"{quoted(name)} must be a relative path inside the policy folder")
    try:
        raw = read_limited(folder / inside, MAX_TEXT_BYTES)
    except OSError as error:
        return ValueError(f"file {quoted(name)} cannot be read: {error.strerror}")
    if len(raw) > MAX_TEXT_BYTES:
        return ValueError(f"file {quoted(name)} is larger than {MAX_TEXT_BYTES} bytes")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return ValueError(f"file {quoted(name)} is not UTF-8 text")


def shown_as(folder: Path) -> str:
    """Return the name of a folder for problems of the whole folder."""
    return folder.absolute().name or str(folder)


def printable(path: Path) -> str:
    """Return a path for messages, with bytes that are not UTF-8 escaped."""
    return os.fsencode(path.as_posix()).decode("utf-8", "backslashreplace")


def files_below(
    folder: Path, document: Document, unread: str | None = None, max_entries: int = MAX_ENTRIES
) -> Iterator[Path]:
    """Yield all YAML files except hidden ones and those in the folder ``unread``, in a fixed order.

    A folder that cannot be read is a problem of the document.
    """

    def report(error: OSError) -> None:
        place = SourceLocation(Path(str(error.filename)).name, 1, 1)
        document.give_up(place, (), f"cannot be read: {error.strerror}")

    count = -1  # the folder itself does not count
    for at, names in folders_below(folder, unread, report):
        count += 1 + len(names)
        if count > max_entries:
            document.give_up(document.place(()), (), f"contains more than {max_entries} files")
            return
        yield from (Path(at, name) for name in names if is_policy(name))


def folders_below(
    folder: Path, unread: str | None = None, on_error: Callable[[OSError], None] | None = None
) -> Iterator[tuple[str, list[str]]]:
    """Yield the folder and all folders below that are not hidden, with the sorted names of files.

    Follows links, because a mounted ConfigMap consists of them. Yields each real folder once.
    """
    visited: set[str] = set()
    for at, folders, names in os.walk(folder, onerror=on_error, followlinks=True):
        real = os.path.realpath(at)
        skipped = unread if Path(at) == folder else None
        folders[:] = sorted(name for name in folders if name[0] != "." and name != skipped)
        if real in visited:
            folders.clear()
            continue
        visited.add(real)
        yield at, sorted(names)


def is_policy(name: str) -> bool:
    """Return True if a file of this name contains policies."""
    return not name.startswith(".") and name.endswith((".yaml", ".yml"))


def _validated(document: Document) -> schema.PoliciesConfig:
    """Return all valid parts. Report the problems of the others."""
    try:
        return schema.PoliciesConfig.model_validate(document.data)
    except ValidationError as error:
        note(document, error, schema.PoliciesConfig)
        policies = salvaged(document)
        for path, message in unmet(document, policies):
            document.refuse(document.place(path), path, message)
        return policies


def note(
    document: Document, error: ValidationError, kind: type[BaseModel], base: KeyPath = ()
) -> None:
    """Report the errors of the part at ``base``, which was validated as ``kind``."""
    known = {problem.path for problem in document.problems}
    for detail in error.errors(include_url=False):
        inside = tuple(part for part in detail["loc"] if part != "[key]")
        path, message = _problem(inside, detail, kind)
        path = document.written((*base, *path))
        if path_text(path) not in known:
            document.complain(path, message)


def _problem(path: KeyPath, detail: ErrorDetails, kind: type[BaseModel]) -> tuple[KeyPath, str]:
    """Return the path and our message for an error of pydantic."""
    if detail["type"] == "extra_forbidden":
        return path, "unknown key" + _instead(str(path[-1]), known_keys(path[:-1], kind))
    if detail["type"] == "missing":
        return path[:-1], f"required key {quoted(str(path[-1]))} is missing"
    if "[key]" in detail["loc"] and detail["type"] != "value_error":
        return path, _name_rule(detail)
    if detail["type"] == "union_tag_not_found":
        return _missing_kind(path, detail["ctx"]["discriminator"].strip("'"), detail["input"])
    if detail["type"] == "union_tag_invalid":
        kinds = re.findall(r"'(.*?)'", detail["ctx"]["expected_tags"])
        tag, kinds = str(detail["ctx"]["tag"]), sorted({*kinds, *installed()})
        hint = maybe(tag, kinds) or f". Available: {', '.join(kinds)}"
        return path, f"guard {quoted(tag)} does not exist{hint}"
    if detail["type"] in MESSAGES:
        is_huge = detail["type"] == "int_type" and re.fullmatch(HUGE, str(detail["input"]))
        return path, "is too large a number" if is_huge else MESSAGES[detail["type"]]
    if detail["type"] == "literal_error":
        words = re.findall(r"\b[\w-]+\b", detail["msg"].removeprefix("Input should be "))
        words = [word for word in words if word != "or"]
        hint = maybe(str(detail["input"]), words) if len(words) > 1 else ""
        return path, f"must be {one_of(words)}{hint}"
    message = re.sub(r"^(Input|String|List|Dictionary|Value) should ", "must ", detail["msg"])
    return path, message.removeprefix("Value error, ")


def _missing_kind(path: KeyPath, key: str, value: Mapping[str, Any]) -> tuple[KeyPath, str]:
    """Return the path and the message for a part without the key that selects its kind."""
    for similar in difflib.get_close_matches(key, value, n=1):
        return (*path, similar), f"unknown key. Did you mean {quoted(key)}?"
    return path, f"required key {quoted(key)} is missing"


def _name_rule(detail: ErrorDetails) -> str:
    """Return the rule for names. Names of tags allow fewer characters than others."""
    marks, start = "underscore", "a letter"
    if "-" in str(detail.get("ctx", {}).get("pattern", "")):
        marks, start = "dot, dash and underscore", "a letter or digit"
    return f"is not a valid name. Use at most 64 of a-z, 0-9, {marks}, starting with {start}"


def _instead(word: str, known: list[str]) -> str:
    """Return a hint for an unknown key: the key that is probably meant, or all keys."""
    if "usd" in known and word.lower() in OTHER_MONEY:
        return '. Money is in US dollars: use "usd".'
    if "cached_input" in known and word in OF_PRICES:
        return f". Did you mean {quoted(OF_PRICES[word])}?"
    return maybe(word, known) or (f". Available: {', '.join(known)}" if known else "")


def not_allowed(value: str, allowed: Iterable[str] | None) -> str:
    """Return the message for a tag value that its tag does not allow."""
    known = sorted(allowed or ())
    hint = maybe(value, known) or (f". Allowed: {listed(known)}" if known else "")
    return f"this tag does not allow the value {quoted(value)}{hint}"


def one_of(words: Sequence[str]) -> str:
    """Return ``a``, ``a or b``, or ``one of a, b, c``."""
    return " or ".join(words) if len(words) <= FEW else f"one of {', '.join(words)}"


def maybe(word: str, known: Iterable[str]) -> str:
    """Return ``. Did you mean "…"?`` with the most similar known word, or an empty text."""
    near = [] if word.isdigit() else difflib.get_close_matches(word, list(known), n=1)
    return f". Did you mean {quoted(near[0])}?" if near else ""


def no_such(kind: str, name: str, known: Iterable[str]) -> str:
    """Return the message for a name that does not exist, with a similar name or the first ones."""
    names = sorted(known)
    hint = maybe(name, names) or (f". Available: {listed(names)}" if names else "")
    return f"{kind} {quoted(name)} does not exist{hint}"


def known_keys(path: KeyPath, kind: Any = schema.PoliciesConfig) -> list[str]:
    """Return the keys that the schema allows at a path."""
    for part in path:
        kind = _inside(kind, part)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [field.alias or name for name, field in kind.model_fields.items()]
    return []


def _inside(kind: Any, part: str | int) -> Any:
    """Return the type of a field of a model, or of the items of a list or a mapping."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        field = kind.model_fields.get(str(part))
        if field is None and kind is GuardConfig and part in KINDS:
            return config_of(str(part))  # paths in a guard start with its kind
        return _bare(field.annotation) if field else None
    arguments = get_args(kind)
    return _bare(arguments[-1]) if arguments else None


def _bare(kind: Any) -> Any:
    """Return a type without ``Annotated`` and ``| None``."""
    while get_origin(kind) in (Annotated, Union, types.UnionType):
        kind = next(each for each in get_args(kind) if each is not type(None))
    return kind


def expanded(text: str, environ: Mapping[str, str]) -> str:
    """Return a text with the values of its ``${VARIABLE}`` references. Raise ``ValueError`` if one
    is not set or empty."""

    def value(match: re.Match[str]) -> str:
        if not environ.get(match[1]):
            raise ValueError(f"environment variable {match[1]} is not set or empty")
        return environ[match[1]]

    return re.sub(schema.VARIABLE, value, text)


def secret(ref: str, environ: Mapping[str, str]) -> str:
    """Return the value of ``${VARIABLE}`` or ``file:/path``. Raise ``ValueError`` if there is
    none."""
    if not ref.startswith("file:"):
        return expanded(ref, environ)
    file = Path(ref.removeprefix("file:"))
    try:
        content = read_limited(file, MAX_SECRET_BYTES).decode("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise ValueError(
            f"file {file} cannot be read. Check that it exists and is readable."
        ) from None
    if not 0 < len(content) <= MAX_SECRET_BYTES:
        raise ValueError(f"file {file} must contain 1 to {MAX_SECRET_BYTES} bytes")
    return content
