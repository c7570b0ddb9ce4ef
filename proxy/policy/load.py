"""A folder of YAML files, checked against the schema: all problems at once, each with its place."""

from __future__ import annotations

import difflib
import hashlib
import re
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from proxy.policy import schema
from proxy.policy.source import Document, Path_, PolicyError, Problem, read_file

REVISION_LENGTH = 12
SAID = {
    "bool_type": "must be true or false",
    "dict_type": "must be a mapping",
    "int_type": "must be a whole number",
    "list_type": "must be a list",
    "model_type": "must be a mapping",
    "string_type": "must be text",
    "too_short": "must have at least one item",
}


@dataclass(frozen=True, slots=True)
class Loaded:
    """Policies of the right shape. ``document`` knows where each part was written."""

    policies: schema.Policies
    document: Document
    revision: str


def load(folder: Path) -> Loaded:
    """Read a folder. Raises ``PolicyError`` with everything that is wrong in shape."""
    document = Document()
    files = list(_files(folder))
    if not files:
        raise PolicyError([Problem(folder.name, 1, 1, "", "holds no .yaml file")])
    digest = hashlib.sha256()
    for file in files:
        shown = file.relative_to(folder).as_posix()
        digest.update(shown.encode() + b"\0")
        read_file(file, shown, document)
        digest.update(_content(file))
    policies = _checked(document)
    if policies is None or document.problems:
        raise PolicyError(document.problems)
    return Loaded(policies, document, digest.hexdigest()[:REVISION_LENGTH])


def _files(folder: Path) -> Iterable[Path]:
    """All YAML files but those of the policy tests and hidden ones, in a fixed order."""
    found = (p for p in folder.rglob("*") if p.suffix in (".yaml", ".yml") and p.is_file())
    for file in sorted(found):
        parts = file.relative_to(folder).parts
        if parts[0] != "tests" and not any(part.startswith(".") for part in parts):
            yield file


def _content(file: Path) -> bytes:
    try:
        return hashlib.sha256(file.read_bytes()).digest()
    except OSError:
        return b""


def _checked(document: Document) -> schema.Policies | None:
    try:
        return schema.Policies.model_validate(document.data)
    except ValidationError as error:
        unread = {problem.path for problem in document.problems}
        for detail in error.errors(include_url=False):
            path = tuple(part for part in detail["loc"] if part != "[key]")
            if ".".join(map(str, path)) not in unread:
                _complain(document, path, detail)
        return None


def _complain(document: Document, path: Path_, detail: ErrorDetails) -> None:
    if detail["type"] == "extra_forbidden":
        document.complain(path, "is not known" + maybe(str(path[-1]), known_keys(path[:-1])))
    elif detail["type"] == "missing":
        document.complain(path[:-1], f"{path[-1]} is missing")
    elif "[key]" in detail["loc"]:
        document.complain(path, "is not a name: use a-z, 0-9, dot, dash and underscore, at most 64")
    elif detail["type"] in SAID:
        document.complain(path, SAID[detail["type"]])
    elif detail["type"] == "literal_error":
        words = re.findall(r"'(.*?)'", detail["msg"])
        document.complain(path, f"must be {' or '.join(words)}{maybe(str(detail['input']), words)}")
    else:
        message = detail["msg"].removeprefix("Value error, ")
        document.complain(path, message.replace("Input should be", "must be"))


def maybe(word: str, known: Iterable[str]) -> str:
    """Give ``, did you mean …?`` for the nearest known word, or nothing."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f", did you mean {near[0]}?" if near else ""


def known_keys(path: Path_) -> list[str]:
    """Give the keys that the schema knows at a path."""
    kind: Any = schema.Policies
    for part in path:
        kind = _inside(kind, part)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [field.alias or name for name, field in kind.model_fields.items()]
    return []


def _inside(kind: Any, part: str | int) -> Any:
    """Give the type of one part of a type: a field of a model, an item of a list or a mapping."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        field = kind.model_fields.get(str(part))
        return _bare(field.annotation) if field else None
    arguments = get_args(kind)
    return _bare(arguments[-1]) if arguments else None


def _bare(kind: Any) -> Any:
    """Take off ``Annotated`` and ``| None``."""
    while get_origin(kind) in (Annotated, Union, types.UnionType):
        inner = [each for each in get_args(kind) if each is not type(None)]
        kind = inner[0]
    return kind


def secret(ref: str, environ: Mapping[str, str]) -> str:
    """Give what ``${VARIABLE}`` or ``file:/path`` stands for. Raises ``ValueError`` naming it."""
    if ref.startswith("${"):
        name = ref[2:-1]
        if not environ.get(name):
            raise ValueError(f"the environment variable {name} is not set")
        return environ[name]
    file = Path(ref.removeprefix("file:"))
    try:
        content = file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise ValueError(f"the file {file} cannot be read") from None
    if not content:
        raise ValueError(f"the file {file} is empty")
    return content
