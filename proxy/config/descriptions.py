"""What stands below a key of a model says what it means: editors and the pages show it.

It is read from the source when somebody asks. pydantic would read it where the class is made, for
each class of each start.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise

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
            found |= _written_in(base.__module__).get(base.__qualname__, {})
    fields = model.model_fields
    own = {name: field.description for name, field in fields.items() if field.description}
    return {name: text for name, text in found.items() if name in fields} | own


@cache
def _written_in(module: str) -> Mapping[str, Mapping[str, str]]:
    """Return the texts below the keys of each class of a module, by its qualified name; nothing of
    a module that has no source. A source is parsed once, whatever it has of classes."""
    try:
        source = inspect.getsource(sys.modules[module])
    except (KeyError, OSError, TypeError):
        return {}
    return {name: dict(_below(each)) for name, each in _classes(ast.parse(source), "")}


def _classes(node: ast.AST, within: str) -> Iterator[tuple[str, ast.ClassDef]]:
    """Yield each class below a node with its qualified name."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.ClassDef(name=name):
                yield within + name, child
                yield from _classes(child, f"{within}{name}.")
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield from _classes(child, f"{within}{name}.<locals>.")
            case ast.expr():
                pass  # no class is defined in one
            case _:
                yield from _classes(child, within)


def _below(written: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Yield the keys of a class that have a text below them."""
    for key, text in pairwise(written.body):
        if (
            isinstance(key, ast.AnnAssign)
            and isinstance(key.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        ):
            yield key.target.id, inspect.cleandoc(text.value.value)
