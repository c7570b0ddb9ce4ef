"""Loads policy folders: YAML files, text files, revoked keys, and the packaged price table."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import date
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from proxy.errors.words import quote
from proxy.policy import schema
from proxy.policy.files.source import Document, Problem, SourceLocation, describe_unexpected_error
from proxy.policy.files.validation import validate_or_return_empty
from proxy.policy.files.yaml_reader import parse, read_bytes, read_file, read_one_past_limit
from proxy.policy.schema.keys import REVOCATION_MESSAGE, is_revocation
from proxy.runtime.frozen import frozen

MAX_ENTRIES = 1000
"""Maximum number of files and folders in a folder that is loaded."""
MAX_WALKED_ENTRIES = 100_000
"""Maximum number of files and folders that are searched for revocations and changes."""
MAX_SECRET_BYTES = 16 * 1024
MAX_TEXT_BYTES = 1024 * 1024
REVISION_LENGTH = 12
TEXT_KEYS = frozenset({"texts_from", "words_from"})
"""Keys of guards that name text files. Guard kinds are not imported to find them."""
PRICE_TABLE = Path(__file__).parent / "table" / "prices.yaml"
PRICE_SECTIONS = ("prices", "price_table")
MAY_REVOKE_PATTERN = re.compile(rb"revoked|\0|\\[xuU]")
"""Matches each file that may have revocations: the word, NUL bytes (UTF-16) or an escape."""
REVOKED_LIST_PATTERN = re.compile(
    rb"^(?:\xef\xbb\xbf)?([\"']?revoked[\"']?[ \t]*:.*+(?:\n(?:[ \t\r\]#-].*+)?)*+)", re.MULTILINE
)
"""The list ``revoked`` at the left margin. It is read even if the rest of the file is invalid."""
AFTER_LIST_PATTERN = re.compile(rb"\n?(?:\Z|\.\.\.|[^\s#<>=|@:-][^\n:]*:)")
"""Text after a complete list: the end of the file or another key."""


@frozen
class LoadedFolder:
    """The valid parts of a folder, and the document with all locations and problems."""

    policies: schema.PoliciesConfig
    document: Document
    revision: str

    @property
    def has_own_price_table(self) -> bool:
        """True if the folder contains a price table."""
        return not self.document.data.keys().isdisjoint(PRICE_SECTIONS)

    @property
    def policies_with_prices(self) -> schema.PoliciesConfig:
        """The policies with their own price table, or with the packaged one."""
        if self.has_own_price_table:
            return self.policies
        table = read_packaged_prices()
        update = {name: getattr(table, name) for name in PRICE_SECTIONS}
        return self.policies.model_copy(update=update)


def load_policies(folder: Path) -> LoadedFolder:
    """Load a folder. Raise ``PolicyError`` with all problems of its schema."""
    loaded = load_policies_with_problems(folder)
    loaded.document.raise_problems()
    return loaded


def load_policies_with_problems(folder: Path) -> LoadedFolder:
    """Load a folder. ``document`` lists problems. If there are any, the policies may be empty."""
    document = Document(folder=get_folder_name(folder))
    try:
        return _load_document(folder, document)
    except Exception as error:  # noqa: BLE001  # reported as a problem of the folder
        document.report_incomplete(document.get_location(()), (), describe_unexpected_error(error))
        return LoadedFolder(schema.PoliciesConfig(), document, "")


def _load_document(folder: Path, document: Document) -> LoadedFolder:
    digest = hashlib.sha256()
    files = list(iter_policy_files(folder, document, skip_dir="tests"))
    if not files and document.is_complete:
        message = "contains no .yaml file. Run `headrace init DIR` to create a folder of policies."
        document.report_incomplete(document.get_location(()), (), message)
    for file in files:
        name = to_printable(file.relative_to(folder))
        content = read_file(file, name, document)
        digest.update(name.encode() + b"\0" + hashlib.sha256(content).digest())
    document.texts = read_text_files(folder, document.data)
    for name, text in document.texts.items():
        digest.update(f"{name}\0{text}".encode())
    loaded = LoadedFolder(validate_or_return_empty(document), document, "")
    if not loaded.has_own_price_table:
        digest.update(_hash_packaged_prices())
    return replace(loaded, revision=digest.hexdigest()[:REVISION_LENGTH])


def iter_text_file_names(data: Any) -> Iterator[str]:
    """Yield the file names under ``TEXT_KEYS`` in data, at any depth."""
    if isinstance(data, dict):
        for key, value in data.items():
            if key in TEXT_KEYS:
                names = value if isinstance(value, list) else [value]
                yield from (name for name in names if isinstance(name, str))
            else:
                yield from iter_text_file_names(value)
    elif isinstance(data, list):
        for item in data:
            yield from iter_text_file_names(item)


def read_text_files(folder: Path, data: Any) -> dict[str, str | ValueError]:
    """Return the content of each named file, or its problem."""
    return {name: _read_text_file(folder, name) for name in sorted(set(iter_text_file_names(data)))}


def _read_text_file(folder: Path, name: str) -> str | ValueError:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        return ValueError(f"{quote(name)} must be a relative path inside the policy folder")
    try:
        content = read_one_past_limit(folder / path, MAX_TEXT_BYTES)
    except OSError as error:
        return ValueError(f"file {quote(name)} cannot be read: {error.strerror}")
    if len(content) > MAX_TEXT_BYTES:
        return ValueError(f"file {quote(name)} is larger than {MAX_TEXT_BYTES} bytes")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return ValueError(f"file {quote(name)} is not UTF-8 text")


def get_folder_name(folder: Path) -> str:
    """Return the name of a folder, for problems that have no file."""
    return folder.absolute().name or str(folder)


def to_printable(path: Path) -> str:
    """Return a path for messages, with bytes that are not UTF-8 escaped."""
    return os.fsencode(path.as_posix()).decode("utf-8", "backslashreplace")


def iter_policy_files(
    folder: Path, document: Document, skip_dir: str | None = None, max_entries: int = MAX_ENTRIES
) -> Iterator[Path]:
    """Yield all YAML files in a fixed order, except hidden ones and those in ``skip_dir``.

    A folder that cannot be read is a problem of the document.
    """

    def report(error: OSError) -> None:
        location = SourceLocation(Path(str(error.filename)).name, 1, 1)
        document.report_incomplete(location, (), f"cannot be read: {error.strerror}")

    count = -1  # the folder itself is not counted
    for path, names in walk_folders(folder, skip_dir, report):
        count += 1 + len(names)
        if count > max_entries:
            message = f"contains more than {max_entries} files"
            document.report_incomplete(document.get_location(()), (), message)
            return
        yield from (Path(path, name) for name in names if is_policy_file(name))


def walk_folders(
    folder: Path, skip_dir: str | None = None, on_error: Callable[[OSError], None] | None = None
) -> Iterator[tuple[str, list[str]]]:
    """Yield the folder and all folders below that are not hidden, with the sorted names of files.

    Follows links, because a mounted ConfigMap consists of them. Yields each real folder once.
    """
    visited: set[str] = set()
    for path, folders, names in os.walk(folder, onerror=on_error, followlinks=True):
        real_path = os.path.realpath(path)
        excluded = skip_dir if Path(path) == folder else None
        folders[:] = sorted(name for name in folders if name[0] != "." and name != excluded)
        if real_path in visited:
            folders.clear()
            continue
        visited.add(real_path)
        yield path, sorted(names)


def is_policy_file(name: str) -> bool:
    """Return True if a file of this name contains policies."""
    return not name.startswith(".") and name.endswith((".yaml", ".yml"))


def read_secret(ref: str, environ: Mapping[str, str]) -> str:
    """Return the value of ``${VARIABLE}`` or ``file:/path``, or raise ``ValueError``."""

    def expand(match: re.Match[str]) -> str:
        if not environ.get(match[1]):
            raise ValueError(f"environment variable {match[1]} is not set or empty")
        return environ[match[1]]

    if not ref.startswith("file:"):
        return re.sub(schema.VARIABLE_PATTERN, expand, ref)
    file = Path(ref.removeprefix("file:"))
    try:
        content = read_one_past_limit(file, MAX_SECRET_BYTES).decode("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        message = f"file {file} cannot be read. Check that it exists and is readable."
        raise ValueError(message) from None
    if not 0 < len(content) <= MAX_SECRET_BYTES:
        raise ValueError(f"file {file} must contain 1 to {MAX_SECRET_BYTES} bytes")
    return content


@cache
def _hash_packaged_prices() -> bytes:
    return hashlib.sha256(PRICE_TABLE.read_bytes()).digest()


@cache
def read_packaged_price_date() -> date:
    """Return the date of the packaged price table without parsing the rest."""
    content = PRICE_TABLE.read_bytes()
    [line] = re.findall(rb"^price_table: \{as_of: (.+)\}$", content, re.MULTILINE)
    return date.fromisoformat(line.decode())


@cache
def read_packaged_prices() -> schema.PoliciesConfig:
    """Return the packaged price table. Raise ``PolicyError`` if it cannot be read."""
    document = Document()
    read_file(PRICE_TABLE, PRICE_TABLE.name, document)
    document.raise_problems()
    return schema.PoliciesConfig.model_validate(document.data)


@frozen
class Revocations:
    """Revoked keys. ``problems`` are errors that may hide other keys."""

    names_and_digests: frozenset[str]
    problems: tuple[str, ...] = ()


def read_revocations(folder: Path, max_entries: int = MAX_WALKED_ENTRIES) -> Revocations:
    """Return the revocations of all files below a folder. Raise nothing.

    Each file is read on its own, so that no problem elsewhere delays a revocation.
    """
    names: set[str] = set()
    problems: list[str] = []
    try:
        document = Document(folder=get_folder_name(folder))
        for file in iter_policy_files(folder, document, "tests", max_entries):
            entries, file_problems = _read_revocations(file, to_printable(file.relative_to(folder)))
            names.update(filter(is_revocation, entries))
            problems += map(str, file_problems)
        problems += map(str, document.problems)
    except Exception as error:  # noqa: BLE001  # the names read so far are revoked
        problems.append(describe_unexpected_error(error))
    return Revocations(frozenset(names), tuple(dict.fromkeys(problems)))


def _read_revocations(file: Path, name: str) -> tuple[list[Any], list[Problem]]:
    """Return the entries of a file's list, and the problems that may hide others."""
    document, lists = Document(), Document()
    content = read_bytes(file, name, document)
    if document.is_complete and not MAY_REVOKE_PATTERN.search(content):
        return [], []
    if is_readable := document.is_complete:
        parse(content, name, document)
    matches = [] if document.is_complete else list(REVOKED_LIST_PATTERN.finditer(content))
    blocks = b"".join(match[1] for match in matches)
    if blocks:
        parse(blocks, name, lists)
    entries = [*document.data.get("revoked", ()), *lists.data.get("revoked", ())]
    problems = [p for p in document.problems if re.match(r"revoked(\[|$)", p.path)]
    if not all(map(is_revocation, entries)):
        location = document.get_location(("revoked",))
        problems.append(Problem(location, "revoked", REVOCATION_MESSAGE))
    has_ends = all(AFTER_LIST_PATTERN.match(content, match.end()) for match in matches)
    is_list_complete = is_readable and blocks and has_ends and not lists.problems
    if not document.is_complete and not is_list_complete:
        problems.append(document.problems[-1])
    return entries, problems
