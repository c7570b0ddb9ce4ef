"""What stands below a key of a model says what it means: editors and the pages show it.

It is read from the source when somebody asks. pydantic would read it where the class is made, for
each class of each start.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from textwrap import dedent

from pydantic import BaseModel


@cache
def descriptions_of(model: type[BaseModel]) -> Mapping[str, str]:
    """Return what is said of each key of a model, by the name of its field: in the field itself, or
    below it in the class, or in that of its bases which says the key last."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        annotated = inspect.get_annotations(base)
        found = {name: text for name, text in found.items() if name not in annotated}
        if issubclass(base, BaseModel):
            found |= _written_in(base)
    fields = model.model_fields
    own = {name: field.description for name, field in fields.items() if field.description}
    return {name: text for name, text in found.items() if name in fields} | own


def _written_in(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """Yield the keys that have a text below them in the source of a class; nothing for one that
    is made of others and has no source."""
    try:
        source = inspect.getsource(model)
    except OSError:
        return
    [written] = ast.parse(dedent(source)).body
    body = written.body if isinstance(written, ast.ClassDef) else []
    for key, text in pairwise(body):
        if (
            isinstance(key, ast.AnnAssign)
            and isinstance(key.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        ):
            yield key.target.id, inspect.cleandoc(text.value.value)
