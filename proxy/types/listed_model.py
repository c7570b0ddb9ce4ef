"""A model as lists of models tell of it."""

from __future__ import annotations

from datetime import date

from proxy.frozen import frozen


@frozen
class ListedModel:
    """One name that a key may call. ``is_main`` is true of deployments, and of one name for each
    model; a list of all names has the others too."""

    id: str
    owner: str
    created: date
    is_main: bool = False
