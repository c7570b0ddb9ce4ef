"""The shape of a dialect: what a wire format says, both ways, as tables and pure functions.

A client's dialect reads a request into OpenAI's form and writes an answer out of it; an upstream's
writes the request and reads the answer. So six dialects need six readers and six writers, never
one translator for each pair.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from proxy.dialects.fields import Fields
from proxy.errors import ProxyError
from proxy.types import Call, Door, Endpoint, Json, Secret
from proxy.types.guard import Verdicts

Headers = Mapping[str, str]  # names in lower case
Rule = Callable[[Json], None]  # raises BadField when fields do not fit each other


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error in a dialect's own form; ``body`` also serves as the data of an error event."""

    status: int
    body: Json
    headers: tuple[tuple[str, str], ...] = ()


def ok(verdicts: Verdicts) -> int:
    return 200


def unchanged(endpoint: Endpoint, body: Json) -> Json:
    return body


@dataclass(frozen=True, slots=True)
class Client:
    """How clients of the dialect ask and are answered.

    ``greet`` adds to the door what the dialect's own headers say. ``to_hub`` puts a checked body
    into OpenAI's form; ``named`` finds a model and a deployment in one name.
    ``whole`` rewords an answer; None means that OpenAI's form passes untouched. ``tell`` adds what
    guards said to a whole answer and to an error, and where it ``tells_streams`` to the chunk that
    finishes a choice; ``status`` is that of an answer, which they may change.
    ``headers`` gives those of an answer, by its document (None for a stream), its attempts and
    what the cache had to do with it.
    ``done`` says whether a stream ends with ``[DONE]``, ``always_usage`` whether its last chunk
    carries usage unasked.
    """

    routes: Mapping[tuple[str, str], Endpoint]
    credential: Callable[[Headers], Secret | None]
    greet: Callable[[Headers, Door], Door]
    refuse: Callable[[ProxyError, str], Refusal]
    rules: Mapping[Endpoint, tuple[Rule, ...]] = field(default_factory=dict)
    to_hub: Callable[[Endpoint, Json], Json] = unchanged
    whole: Callable[[Call, Mapping[int, Json]], Json] | None = None
    tell: Callable[[Json, Verdicts], Json] | None = None
    tells_streams: bool = False
    status: Callable[[Verdicts], int] = ok
    headers: Callable[[Json | None, int, str], tuple[tuple[str, str], ...]] | None = None
    named: Callable[[str], tuple[str, str | None]] | None = None
    done: bool = True
    always_usage: bool = False


@dataclass(frozen=True, slots=True)
class Server:
    """How an upstream of the dialect is asked, and what its answers need to become OpenAI's form.

    ``prefix`` goes before ``paths`` when a ``base_url`` has no path of its own. ``shown`` are the
    response headers (or prefixes ending in ``-``) that a client of the same dialect may see.
    ``usage_option`` says whether usage in streams must be asked for.
    """

    prefix: str
    paths: Mapping[Endpoint, str]
    authorize: Callable[[str], tuple[str, str]]
    from_hub: Callable[[Endpoint, Json], Json] = unchanged
    to_hub: Callable[[Json], Json] | None = None
    streams: bool = True
    usage_option: bool = True
    shown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Dialect:
    """One wire format. ``fields`` are the request fields that it knows, by endpoint."""

    name: str
    fields: Mapping[Endpoint, Fields]
    client: Client
    server: Server
