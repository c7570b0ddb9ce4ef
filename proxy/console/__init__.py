"""Data of the console: recent calls, time series and the state of upstreams, limits and policies.

Everything is read from what the process records anyway, when a page asks for it. The routes and
files of the console are in ``proxy/server/console.py``.
"""

from __future__ import annotations


class InvalidQuery(ValueError):
    """A parameter of a page is invalid. The message names it."""
