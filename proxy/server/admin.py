"""The admin listener, on its own port: who may ask, metrics, health, log level, explanations."""

from __future__ import annotations

import asyncio
import gzip
import hmac
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from math import nan
from typing import Any, Protocol

import orjson
from aiohttp import web

from proxy.runtime.frozen import frozen

Render = Callable[[str], tuple[bytes, str]]
GZIP_LEVEL = 1  # most of what there is to gain, at a fifth of the time
EXPLAIN = "/explain/"
NO_CANDIDATE = "No candidate policy is loaded. Start with headrace serve --candidate FOLDER.\n"
LOG_LEVEL = "/loglevel"
LEVEL_S = 900.0
OPEN = ("/healthz", "/readyz")  # they say nothing, and probes have no token
PATHS = ("/metrics", "/healthz", "/readyz", "/loglevel", "/explain/{request_id}", "/candidate")


class LogLevels(Protocol):
    """How much is logged."""

    @property
    def name(self) -> str: ...

    @property
    def left_s(self) -> float: ...

    def put(self, level: str, seconds: float) -> None:
        """Raises ``ValueError``."""


class ExplanationPage(Protocol):
    """Why a call was decided as it was, as data and as a text."""

    def data(self) -> dict[str, Any]: ...

    def text(self) -> str: ...


class CallExplainer(Protocol):
    """The last calls, each by its request id and the name of its key."""

    def callers(self, request_id: str) -> list[str]: ...

    def explain(self, request_id: str, caller: str | None = None) -> ExplanationPage | None: ...


@dataclass(slots=True)
class Readiness:
    """Whether new calls are welcome: policies are in force, listeners are up, no stop is asked."""

    ready: bool = False

    def is_ready(self) -> bool:
        return self.ready


@frozen
class AdminSources:
    """What the port shows: the exposition of metrics, why a call was decided as it was, and what
    a candidate would decide otherwise, where there is one.

    ``settle`` has all calls that have ended be told of before anything is shown. ``look`` reads on
    the loop the gauges that show the present; ``render`` returns the exposition in the best form of
    those accepted, and blocks.
    """

    settle: Callable[[], None]
    look: Callable[[], Awaitable[None]]
    render: Render
    levels: LogLevels
    calls: CallExplainer
    candidate: Callable[[], ExplanationPage] | None = None


def admin_handler(
    sources: AdminSources, readiness: Readiness, access: Access
) -> Callable[[web.BaseRequest], Awaitable[web.Response]]:
    """Return the handler of the admin port. Nothing it shows holds a key, a prompt or an answer."""

    async def handle(request: web.BaseRequest) -> web.Response:
        path = request.raw_path.partition("?")[0]
        refused = access.refuses(request.method, path, request.headers)
        if refused is not None:
            return _refusal(*refused)
        sources.settle()
        if path == LOG_LEVEL and request.method == "PUT":
            return _put_level(sources.levels, request)
        if request.method not in ("GET", "HEAD"):
            return _refusal(405, "Use GET or HEAD.", allow="GET, HEAD")
        if path == "/metrics":
            await sources.look()
            body, headers = await asyncio.to_thread(_exposed, sources.render, request.headers)
            return web.Response(body=body, headers=headers)
        if path == "/readyz":
            ready = readiness.ready
            status, text = (200, "ready\n") if ready else (503, "not ready\n")
            return web.Response(status=status, text=text)
        as_json = "json" in request.headers.get("accept", "")
        if path.startswith(EXPLAIN):
            return _explained(sources.calls, path.removeprefix(EXPLAIN), request, as_json=as_json)
        return _page(sources, path, as_json=as_json)

    return handle


def _refusal(status: int, reason: str, **headers: str) -> web.Response:
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    return web.Response(status=status, text=f"{reason}\n", headers=headers)


def _page(sources: AdminSources, path: str, *, as_json: bool) -> web.Response:
    if path == "/healthz":
        return web.Response(text="alive\n")
    if path == LOG_LEVEL:
        return _level(sources.levels)
    if path == "/candidate":
        if sources.candidate is None:
            return web.Response(status=404, text=NO_CANDIDATE)
        return _shown(sources.candidate(), as_json=as_json)
    return web.Response(status=404, text=f"Unknown path. Available paths: {', '.join(PATHS)}.\n")


def _explained(
    calls: CallExplainer, request_id: str, request: web.BaseRequest, *, as_json: bool
) -> web.Response:
    """Explain a call; where several keys have used its id, say by ``?key=NAME`` whose it is."""
    caller, callers = request.query.get("key"), calls.callers(request_id)
    if caller is None and len(callers) > 1:
        text = f"Several keys used this request id. Add ?key=NAME, one of: {', '.join(callers)}.\n"
        return web.Response(status=300, text=text)
    return _shown(calls.explain(request_id, caller), as_json=as_json)


def _put_level(levels: LogLevels, request: web.BaseRequest) -> web.Response:
    """Have another level for a while: ``?level=debug&seconds=600``."""
    seconds = request.query.get("seconds", str(LEVEL_S))
    try:
        levels.put(request.query.get("level", ""), _number(seconds))
    except ValueError as error:
        return web.Response(status=400, text=f"{error}\n")
    return _level(levels)


def _number(text: str) -> float:
    """Return a number; none at all is NaN, which lies within no bounds."""
    try:
        return float(text)
    except ValueError:
        return nan


def _level(levels: LogLevels) -> web.Response:
    level = {"level": levels.name, "seconds_left": round(levels.left_s)}
    return web.Response(body=orjson.dumps(level), content_type="application/json")


def _exposed(render: Render, accepted: Mapping[str, str]) -> tuple[bytes, dict[str, str]]:
    """Return the exposition and its headers. Prometheus takes it compressed."""
    body, media_type = render(accepted.get("accept", ""))
    headers = {"content-type": media_type, "vary": "accept, accept-encoding"}
    if "gzip" not in accepted.get("accept-encoding", ""):
        return body, headers
    return gzip.compress(body, GZIP_LEVEL), {**headers, "content-encoding": "gzip"}


def _shown(page: ExplanationPage | None, *, as_json: bool) -> web.Response:
    """A tree for people, JSON for those that accept it."""
    if page is None:
        text = "No recent call has this request id. Older calls are not kept.\n"
        return web.Response(status=404, text=text)
    if as_json:
        body = orjson.dumps(page.data(), option=orjson.OPT_INDENT_2)
        return web.Response(body=body, content_type="application/json")
    return web.Response(text=page.text() + "\n")


@frozen
class Access:
    """The ``hosts`` by whose names the port may be asked, beside addresses and localhost, and the
    ``token`` that it wants, if any."""

    token: str | None = field(default=None, repr=False)
    hosts: tuple[str, ...] = ()

    def refuses(self, method: str, path: str, headers: Mapping[str, str]) -> tuple[int, str] | None:
        """Return status and reason of a request that may not be answered; None for one that may."""
        if not self._is_known_host(headers.get("Host", "")):
            return 403, "The Host header is not allowed. Add its host to HEADRACE_ADMIN_HOSTS."
        if _is_from_browser_page(method, headers):
            return 403, "Requests from web pages are not allowed."
        if self.token is not None and path not in OPEN and not self._has_token(headers):
            return 401, "Send the token of HEADRACE_ADMIN_TOKEN as Authorization: Bearer TOKEN."
        return None

    def _is_known_host(self, host: str) -> bool:
        """True for a name that nobody else can lead to this address, and where none is given."""
        name, colon, port = host.rpartition(":")
        name = (name if colon and port.isdigit() else host).lower().rstrip(".")
        if name in ("", "localhost", *self.hosts):
            return True
        try:
            return bool(ip_address(name.removeprefix("[").removesuffix("]")))
        except ValueError:
            return False

    def _has_token(self, headers: Mapping[str, str]) -> bool:
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        given = token.strip().encode("utf-8", "surrogateescape")
        wanted = (self.token or "").encode()
        return scheme.lower() == "bearer" and hmac.compare_digest(given, wanted)


def _is_from_browser_page(method: str, headers: Mapping[str, str]) -> bool:
    """True for what a page of another site asks, and for a change that any page asks for."""
    site = headers.get("Sec-Fetch-Site")
    if "Origin" in headers or site in ("cross-site", "same-site"):
        return True
    return method not in ("GET", "HEAD") and site is not None
