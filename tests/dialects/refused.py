"""Calls that refuse a field."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from proxy.errors import BadRequest


def refused_param(call: Callable[..., object], *arguments: object, **options: object) -> str | None:
    """Return the field that a call refuses."""
    with pytest.raises(BadRequest) as refused:
        call(*arguments, **options)
    return refused.value.param
