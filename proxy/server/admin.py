"""The admin listener: access control, metrics, health, log level, explanations of calls."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from math import nan
from types import MappingProxyType

import orjson
from aiohttp import web

from proxy.policy.review.call_history import CallHistory
from proxy.policy.review.decision import CallExplanation
from proxy.runtime.frozen import frozen
from proxy.server.console import (
    API_PATH,
    Console,
    is_cross_site_request,
    is_public,
    make_error_response,
)
from proxy.server.sessions import COOKIE_NAME, Sessions, has_valid_token
from proxy.telemetry.log import LogLevel

RenderMetrics = Callable[[str], tuple[bytes, str]]
GZIP_LEVEL = 1  # nearly as small as level 6, in a fifth of the time
EXPLAIN_PATH = "/explain/"
NO_CANDIDATE = "No candidate policy is loaded. Start with headrace serve --candidate FOLDER."
LOG_LEVEL = "/loglevel"
DEFAULT_LEVEL_S = 900.0
OPEN_PATHS = ("/healthz", "/readyz")  # no data, and probes have no token
LISTED_PATHS = (
    *("/", "/api/v1/", "/metrics", "/healthz", "/readyz", "/loglevel", "/explain/{request_id}"),
    "/candidate",
)


@dataclass(slots=True)
class Readiness:
    """Readiness for new calls: it begins when all is loaded, and ends with a shutdown.

    ``listen`` is the address at which calls are served, once it is known.
    """

    ready: bool = False
    stopping: bool = False
    listen: str = ""

    def is_ready(self) -> bool:
        return self.ready

    def is_stopping(self) -> bool:
        return self.stopping

    def stop(self) -> None:
        """Record that a shutdown has begun."""
        self.ready, self.stopping = False, True


@frozen
class AdminSources:
    """Sources of the admin pages.

    - ``emit_pending``: emits all finished calls before a page is built.
    - ``update_gauges``: updates gauges on the event loop.
    - ``render_metrics``: returns the metrics in the best accepted format. It blocks.
    - ``explain_candidate``: compares a candidate policy, None without one.
    - ``console``: None if the console is off.
    """

    emit_pending: Callable[[], None]
    update_gauges: Callable[[], Awaitable[None]]
    render_metrics: RenderMetrics
    levels: LogLevel
    calls: CallHistory
    explain_candidate: Callable[[], CallExplanation] | None = None
    console: Console | None = None


def make_admin_handler(
    sources: AdminSources, readiness: Readiness, access: AdminAccess
) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
    """Return the request handler. Its pages contain no keys, prompts and responses."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        path = request.raw_path.partition("?")[0]
        refused = access.find_refusal(request.method, path, request.headers, request.cookies)
        if refused is not None:
            is_api = sources.console is not None and path.startswith(API_PATH)
            return make_error_response(*refused) if is_api else _make_refusal(*refused)
        sources.emit_pending()
        if sources.console is not None and sources.console.is_console_path(path):
            return await sources.console.handle(request, path)
        if path == "/metrics" and request.method in ("GET", "HEAD"):
            await sources.update_gauges()
            body, headers = await asyncio.to_thread(
                _render_metrics, sources.render_metrics, request.headers
            )
            return web.Response(body=body, headers=headers)
        return _respond(sources, readiness, request, path)

    return handle


def _respond(
    sources: AdminSources, readiness: Readiness, request: web.BaseRequest, path: str
) -> web.Response:
    if path == LOG_LEVEL and request.method == "PUT":
        return _set_log_level(sources.levels, request)
    if request.method not in ("GET", "HEAD"):
        return _make_refusal(405, "Use GET or HEAD.", allow="GET, HEAD")
    as_json = "json" in request.headers.get("accept", "")
    if path.startswith(EXPLAIN_PATH):
        return _explain(sources.calls, path.removeprefix(EXPLAIN_PATH), request, as_json=as_json)
    if path == LOG_LEVEL:
        return _render_log_level(sources.levels)
    if path == "/candidate" and sources.explain_candidate is not None:
        return _render_explanation(sources.explain_candidate(), as_json=as_json)
    status, text = {
        "/healthz": (200, "alive"),
        "/readyz": (200, "ready") if readiness.ready else (503, "not ready"),
        "/candidate": (404, NO_CANDIDATE),
    }.get(path, (404, f"Unknown path. Available paths: {', '.join(LISTED_PATHS)}."))
    return web.Response(status=status, text=f"{text}\n")


def _make_refusal(status: int, reason: str, **headers: str) -> web.Response:
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    return web.Response(status=status, text=f"{reason}\n", headers=headers)


def _explain(
    calls: CallHistory, request_id: str, request: web.BaseRequest, *, as_json: bool
) -> web.Response:
    """Explain a call. If several keys used the request id, the query ``?key=NAME`` selects one."""
    caller, callers = request.query.get("key"), calls.list_callers(request_id)
    if caller is None and len(callers) > 1:
        text = f"Several keys used this request id. Add ?key=NAME, one of: {', '.join(callers)}.\n"
        return web.Response(status=300, text=text)
    return _render_explanation(calls.explain(request_id, caller), as_json=as_json)


def _set_log_level(levels: LogLevel, request: web.BaseRequest) -> web.Response:
    """Set the log level temporarily: ``?level=debug&seconds=600``."""
    seconds = request.query.get("seconds", str(DEFAULT_LEVEL_S))
    try:
        levels.set_temporarily(request.query.get("level", ""), _parse_number_or_nan(seconds))
    except ValueError as error:
        return web.Response(status=400, text=f"{error}\n")
    return _render_log_level(levels)


def _parse_number_or_nan(text: str) -> float:
    """Parse a number. Other text becomes NaN, which is outside all bounds."""
    try:
        return float(text)
    except ValueError:
        return nan


def _render_log_level(levels: LogLevel) -> web.Response:
    level = {"level": levels.name, "seconds_left": round(levels.remaining_s)}
    return web.Response(body=orjson.dumps(level), content_type="application/json")


def _render_metrics(
    render_metrics: RenderMetrics, accepted: Mapping[str, str]
) -> tuple[bytes, dict[str, str]]:
    body, media_type = render_metrics(accepted.get("accept", ""))
    headers = {"content-type": media_type, "vary": "accept, accept-encoding"}
    if "gzip" not in accepted.get("accept-encoding", ""):
        return body, headers
    return gzip.compress(body, GZIP_LEVEL), {**headers, "content-encoding": "gzip"}


def _render_explanation(page: CallExplanation | None, *, as_json: bool) -> web.Response:
    if page is None:
        text = "No recent call has this request id. Older calls are not kept.\n"
        return web.Response(status=404, text=text)
    if as_json:
        body = orjson.dumps(page.to_json(), option=orjson.OPT_INDENT_2)
        return web.Response(body=body, content_type="application/json")
    return web.Response(text=page.format_tree() + "\n")


@frozen
class AdminAccess:
    """Access control of the admin listener.

    ``hosts`` are accepted ``Host`` names besides localhost and addresses. ``token`` is optional.
    ``sessions`` are the console's, None if it is off.
    """

    token: str | None = field(default=None, repr=False)
    hosts: tuple[str, ...] = ()
    sessions: Sessions | None = None

    def find_refusal(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        cookies: Mapping[str, str] = MappingProxyType({}),
    ) -> tuple[int, str] | None:
        """Return the status and the reason of a refusal, None if the request is admitted."""
        if not self._is_safe_from_dns_rebinding(headers.get("Host", "")):
            return 403, "The Host header is not allowed. Add its host to HEADRACE_ADMIN_HOSTS."
        is_console = self.sessions is not None and Console.is_console_path(path)
        is_foreign = is_cross_site_request if is_console else _is_from_browser_page
        if is_foreign(method, path, headers):
            return 403, "Requests from web pages of other sites are not allowed."
        is_open = path in OPEN_PATHS or (is_console and is_public(path))
        if self.token is None or is_open or has_valid_token(self.token, headers):
            return None
        if self.sessions is not None and self.sessions.is_valid(cookies.get(COOKIE_NAME, "")):
            return None
        return 401, "Send the token of HEADRACE_ADMIN_TOKEN as Authorization: Bearer TOKEN."

    def _is_safe_from_dns_rebinding(self, host: str) -> bool:
        """Return True unless the name may be a DNS rebinding attack."""
        name, colon, port = host.rpartition(":")
        name = (name if colon and port.isdigit() else host).lower().rstrip(".")
        if name in ("", "localhost", *self.hosts):
            return True
        try:
            return bool(ip_address(name.removeprefix("[").removesuffix("]")))
        except ValueError:
            return False


def _is_from_browser_page(method: str, path: str, headers: Mapping[str, str]) -> bool:
    """Return True for cross-site requests, and for changes that any page requests."""
    site = headers.get("Sec-Fetch-Site")
    if "Origin" in headers or site in ("cross-site", "same-site"):
        return True
    return method not in ("GET", "HEAD") and site is not None
