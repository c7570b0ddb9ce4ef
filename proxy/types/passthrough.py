"""Paths that a deployment passes on as they are, such as ``/v1/rerank``: what is listed of each,
and what a call to one says beside its body.

A path is compared as it was sent, and is plain: no escape, no dots, no empty part.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Protocol

from proxy.runtime.frozen import frozen

MOST_PATH = 1024  # characters of a path
MOST_QUERY = 2048  # characters of a query
MOST_VALUE = 256  # of one value in it
REPEATABLE = frozenset({"DELETE", "GET", "PUT"})
"""Methods that may be sent twice: the second time changes nothing."""
SAMPLE = "x"
_VALUE = "[A-Za-z0-9][A-Za-z0-9._~:@=+-]{0,255}"
_NAMED = re.compile(r"\{([a-z_]+)\}")


class Upload(Protocol):
    """The body of a request that is passed on piece by piece. ``length`` is what its head says of
    it, in bytes, None for one in chunks; ``begun`` once a byte of it was asked for: from then on
    nobody can send it again."""

    @property
    def length(self) -> int | None: ...

    @property
    def begun(self) -> bool: ...

    async def read(self) -> bytes:
        """Return the next bytes, none at the end. Raise ``Refused``."""


@frozen
class PassedRequest:
    """What a call says beside its body: its path and its query as they were sent, and of which type
    its body is."""

    path: str
    query: str = ""
    media_type: str = ""


def _sample(route: str) -> str:
    return _NAMED.sub(SAMPLE, route)


def sample_request(route: str) -> PassedRequest:
    """Return a request that fits a route, in which a client names nothing that is real."""
    return PassedRequest(_sample(route))


@frozen
class PassedPath:
    """A path that is passed on. ``route`` has names in braces where a client names something;
    ``upstream_route`` is that at the upstream, where it is another one. Of a query only ``queries``
    pass. A body has ``most_bytes`` at the most. What is ``repeatable`` may be sent again whatever
    its method. ``most_cost`` are the nano-USD that one call may cost, None where nobody says.
    ``fields`` are the only fields of a body that pass, None for any."""

    route: str
    methods: frozenset[str] = frozenset({"POST"})
    upstream_route: str | None = None
    queries: frozenset[str] = frozenset()
    most_bytes: int = 512 * 1024 * 1024
    repeatable: bool = False
    most_cost: int | None = None
    fields: frozenset[str] | None = None
    pattern: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        pieces = _NAMED.split(self.route)
        for index, piece in enumerate(pieces):
            pieces[index] = f"(?P<{piece}>{_VALUE})" if index % 2 else re.escape(piece)
        object.__setattr__(self, "pattern", re.compile("".join(pieces)))

    @property
    def sample(self) -> str:
        """A path that fits, in which a client names nothing that is real."""
        return _sample(self.route)

    @property
    def names(self) -> list[str]:
        """What a client names in it."""
        return _NAMED.findall(self.route)

    def fits(self, path: str) -> re.Match[str] | None:
        """Return the match of a path; None for one that is another, or is too long."""
        return self.pattern.fullmatch(path) if len(path) <= MOST_PATH else None

    def may_repeat(self, method: str) -> bool:
        """True if a request may be sent again that may have been taken."""
        return self.repeatable or method in REPEATABLE


@frozen
class BoundedUpload:
    """An upload of ``most_bytes`` at the most, whatever its head says."""

    upload: Upload
    most_bytes: int


def fill(route: str, values: Mapping[str, str]) -> str:
    """Return the path of a route with values in the places of their names."""
    return _NAMED.sub(lambda named: values[named[1]], route)


@frozen
class PassedPaths:
    """Those of one deployment, or of all. One without names goes before those that it fits."""

    paths: tuple[PassedPath, ...] = ()

    @classmethod
    def of(cls, paths: Iterable[PassedPath]) -> PassedPaths:
        return cls(tuple(sorted(paths, key=lambda each: (len(each.names), each.route))))

    @classmethod
    def merge(cls, each: Iterable[PassedPaths]) -> PassedPaths:
        """Return those of several deployments, each once."""
        return cls.of(dict.fromkeys(path for paths in each for path in paths.paths))

    def find(self, method: str, path: str) -> PassedPath | None:
        """Return the first that a request fits."""
        for each in self.paths:
            if method in each.methods and each.fits(path):
                return each
        return None

    def methods(self, path: str) -> Sequence[str]:
        """Return the methods for which a path is listed."""
        return sorted({method for each in self.paths if each.fits(path) for method in each.methods})
