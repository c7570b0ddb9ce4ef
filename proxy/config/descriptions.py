"""Reads the docstrings below the keys of a model, which editors and the docs show.

pydantic can read them too, but for each class at each start. Here they are read on request.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Mapping
from functools import cache
from itertools import pairwise

from pydantic import BaseModel


@cache
def descriptions_of(model: type[BaseModel]) -> Mapping[str, str]:
    """Return the description of each key by the name of its field.

    The description of a ``Field`` wins, then that of the last base class that declares the key.
    """
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        annotated = inspect.get_annotations(base)
        found = {name: text for name, text in found.items() if name not in annotated}
        if issubclass(base, BaseModel):
            found |= _docstrings(base.__module__).get(base.__name__, {})
    fields = model.model_fields
    own = {name: field.description for name, field in fields.items() if field.description}
    return {name: text for name, text in found.items() if name in fields} | own


@cache
def _docstrings(module: str) -> Mapping[str, Mapping[str, str]]:
    """Return the docstrings below the keys of each class of a module."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError):  # the module has no source
        return {}
    return {
        node.name: {
            key.target.id: inspect.cleandoc(text.value.value)
            for key, text in pairwise(node.body)
            if isinstance(key, ast.AnnAssign) and isinstance(key.target, ast.Name)
            if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
            if isinstance(text.value.value, str)
        }
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
