"""Admission: what a key, a deployment or a tag may still use.

No kind of limit exists yet: ``Unlimited`` admits every call and has nothing to settle. It is
here so that the pipeline has its order from the first day.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from proxy.record import Record
from proxy.types import Call, Plan


class Unlimited:
    """Admits every call."""

    @asynccontextmanager
    async def admit(self, plan: Plan, call: Call, record: Record) -> AsyncIterator[None]:
        yield
