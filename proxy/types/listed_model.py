"""A model as lists of models tell of it."""

from __future__ import annotations

from datetime import date

from proxy.frozen import frozen


@frozen
class ListedModel:
    """One name by which a key may ask for a model. With ``is_main`` it is the one that stands for
    the model; others are listed for who asks for all. ``created`` is None where nobody knows."""

    id: str
    owner: str
    created: date | None = None
    is_main: bool = False
