"""The price of a model that another gateway names beside the one of a target, such as the model
behind a deployment of Azure's: looked up in the package's table, and written at the target."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from datetime import date
from typing import Any, NamedTuple

from proxy import usage
from proxy.dialects import DIALECTS
from proxy.types.providers import BY_WORD


class ListedPrice(NamedTuple):
    """What a policy says as ``price``, in the table of a day."""

    price: Any
    as_of: date | None


def listed_price(upstream: Mapping[str, Any], model: str) -> ListedPrice | None:
    """Return the price of a model, which may begin with the word of its provider, else is one of
    the upstream's; None where the table has none."""
    from proxy.policy.files.price_table import packaged  # noqa: PLC0415  # few name such a model

    word, slash, name = model.partition("/")
    if slash and word in BY_WORD:
        provider: str | None = BY_WORD[word].name
    else:
        provider, name = upstream.get("provider") or price_provider(upstream["dialect"]), model
    table = packaged().sections
    rows = table.prices.get(provider or "", {})
    row = usage.listed(rows, name)
    return None if row is None else ListedPrice(deepcopy(rows[row]), table.price_table.as_of)


def price_provider(dialect: str) -> str | None:
    """Return whose prices count at an upstream that says no provider."""
    found = DIALECTS.get(dialect)
    return dialect if found is None else found.provider
