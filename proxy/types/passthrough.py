"""Passthrough paths such as ``/v1/rerank``, and the requests to them.

Paths are compared as sent and must be plain: no escapes, no dots, no empty segments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Protocol

from proxy.runtime.frozen import frozen

MAX_PATH_CHARS = 1024
MAX_QUERY_CHARS = 2048
MAX_VALUE_CHARS = 256  # of one value in a query
IDEMPOTENT_METHODS = frozenset({"DELETE", "GET", "PUT"})
SAMPLE_SEGMENT = "x"
_VALUE = "[A-Za-z0-9][A-Za-z0-9._~:@=+-]{0,255}"
_PARAMETER = re.compile(r"\{([a-z_]+)\}")


class Upload(Protocol):
    """A request body that is streamed to the upstream.

    ``length`` is the Content-Length in bytes, None for a chunked body. ``has_begun`` is True once a
    byte was requested; then the body cannot be sent again.
    """

    @property
    def length(self) -> int | None: ...

    @property
    def has_begun(self) -> bool: ...

    async def read_chunk(self) -> bytes:
        """Return the next bytes, empty at the end. Raises ``RequestError``."""


@frozen
class PassthroughRequest:
    """Path, query and media type of a passthrough request as sent."""

    path: str
    query: str = ""
    media_type: str = ""


def make_sample_request(route: str) -> PassthroughRequest:
    """Return a request that matches a route, with placeholder values."""
    return PassthroughRequest(_PARAMETER.sub(SAMPLE_SEGMENT, route))


@frozen
class PassthroughPath:
    """A passthrough path of a policy.

    - ``route``: path with parameters in braces.
    - ``upstream_route``: path at the upstream if it differs.
    - ``queries``, ``fields``: query parameters and body fields that are forwarded (``fields`` None:
      all).
    - ``max_bytes``: maximum size of the body.
    - ``repeatable``: requests of any method may be retried.
    - ``max_cost``: maximum cost of a call in nano-USD, None if unknown.
    """

    route: str
    methods: frozenset[str] = frozenset({"POST"})
    upstream_route: str | None = None
    queries: frozenset[str] = frozenset()
    max_bytes: int = 512 * 1024 * 1024
    repeatable: bool = False
    max_cost: int | None = None
    fields: frozenset[str] | None = None
    pattern: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        pieces = _PARAMETER.split(self.route)
        for index, piece in enumerate(pieces):
            pieces[index] = f"(?P<{piece}>{_VALUE})" if index % 2 else re.escape(piece)
        object.__setattr__(self, "pattern", re.compile("".join(pieces)))

    @property
    def sample_path(self) -> str:
        """A matching path with placeholder values."""
        return make_sample_request(self.route).path

    @property
    def parameter_names(self) -> list[str]:
        return _PARAMETER.findall(self.route)

    def match_path(self, path: str) -> re.Match[str] | None:
        return self.pattern.fullmatch(path) if len(path) <= MAX_PATH_CHARS else None

    def may_repeat(self, method: str) -> bool:
        """Return True if a request may be retried although the upstream may have processed it."""
        return self.repeatable or method in IDEMPOTENT_METHODS


@frozen
class BoundedUpload:
    """An upload and its bound. Sending it stops with ``RequestTooLarge`` after ``max_bytes``."""

    upload: Upload
    max_bytes: int


def fill_route(route: str, values: Mapping[str, str]) -> str:
    """Return a route with its parameters replaced by values."""
    return _PARAMETER.sub(lambda match: values[match[1]], route)


@frozen
class PassthroughPaths:
    """Passthrough paths, those without parameters first."""

    paths: tuple[PassthroughPath, ...] = ()

    @classmethod
    def from_paths(cls, paths: Iterable[PassthroughPath]) -> PassthroughPaths:
        return cls(tuple(sorted(paths, key=lambda path: (len(path.parameter_names), path.route))))

    @classmethod
    def merge(cls, groups: Iterable[PassthroughPaths]) -> PassthroughPaths:
        """Return the union of the paths of several deployments."""
        return cls.from_paths(dict.fromkeys(path for paths in groups for path in paths.paths))

    def find(self, method: str, path: str) -> PassthroughPath | None:
        """Return the first path whose route and methods match a request."""
        for candidate in self.paths:
            if method in candidate.methods and candidate.match_path(path):
                return candidate
        return None

    def find_methods(self, path: str) -> Sequence[str]:
        fitting = (route for route in self.paths if route.match_path(path))
        return sorted({method for route in fitting for method in route.methods})
