"""Routes of the console on the admin listener: its files, its JSON API and its sessions.

The API is documented in docs/console.md. It only reads: nothing here changes a policy or a counter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import orjson
from aiohttp import web

from proxy.console import InvalidQuery, PageThread, TooManyPages, parse_query
from proxy.console.calls import CallsQuery, RecentCalls
from proxy.console.limits import read_limit_rows
from proxy.console.money import MoneyQuery, build_money_page
from proxy.console.overview import RANGES, build_overview
from proxy.console.policies import PolicyPage
from proxy.console.series import Sources
from proxy.console.trial import parse_trial, run_trial
from proxy.errors import ProxyError
from proxy.ledger.store import LedgerUnusable
from proxy.policy.review import MAX_CALLS
from proxy.server.sessions import COOKIE_NAME, SESSION_S, Sessions, has_valid_token

STATIC_FOLDER = Path(__file__).parents[1] / "console" / "static"
API_PATH = "/api/v1/"
FILES_PATH = "/console/"
SESSION_PATH = f"{API_PATH}session"
READ_METHODS = ("GET", "HEAD")
POLL_S = 0.5
HEARTBEAT_S = 15.0
WRITE_S = 30.0
"""Time in which a browser must accept an event. A slower one is disconnected."""
OVERVIEW_S = 1.0
MAX_STREAMS = 32
MAX_EVENTS = 50
"""Number of calls that are encoded in one step, which takes about a millisecond."""
BODY_S = 10.0
MAX_BODIES = 8
"""Maximum number of concurrent requests to ``try``."""
RESPONSE_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
        "object-src 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Console:
    """Handles console requests that the access control has admitted.

    ``is_stopping`` returns True once a shutdown has begun, which ends all streams.
    """

    def __init__(
        self,
        sources: Sources,
        calls: RecentCalls,
        sessions: Sessions,
        is_stopping: Callable[[], bool],
    ) -> None:
        self.sessions = sessions
        self._sources = sources
        self._calls = calls
        self._is_stopping = is_stopping
        self._thread = PageThread("console")
        self._ledger_thread = PageThread("ledger-pages")  # takes longer
        self._policy = PolicyPage(sources)
        self._files = {
            f"{FILES_PATH}{path.relative_to(STATIC_FOLDER).as_posix()}": path
            for path in STATIC_FOLDER.rglob("*.*")
        }
        self._streams = asyncio.Semaphore(MAX_STREAMS)
        self._bodies = asyncio.Semaphore(MAX_BODIES)
        self._overviews: dict[str, tuple[float, bytes]] = {}
        self._overview_lock = asyncio.Lock()
        self._routes: dict[str, tuple[Handler, tuple[str, ...]]] = {
            "overview": (self._get_overview, READ_METHODS),
            "calls": (self._list_calls, READ_METHODS),
            "calls/stream": (self._stream_calls, ("GET",)),
            "policy": (self._get_policy, READ_METHODS),
            "money": (self._get_money, READ_METHODS),
            "try": (self._run_trial, ("POST",)),
            "session": (self._handle_session, (*READ_METHODS, "POST", "DELETE")),
        }

    def close(self) -> None:
        """Stop building pages."""
        for thread in (self._thread, self._ledger_thread):
            thread.shutdown(wait=False, cancel_futures=True)

    @staticmethod
    def is_console_path(path: str) -> bool:
        return path == "/" or path.startswith((API_PATH, FILES_PATH))

    async def handle(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        name = path.removeprefix(API_PATH)
        handler, methods = self._routes.get(name, (self._get_file_or_call, READ_METHODS))
        if request.method not in methods:
            return make_error_response(405, f"Use {methods[0]}.", allow=", ".join(methods))
        try:
            return await handler(request)
        except TooManyPages:
            text = "Too many pages are open. Try again."
            return make_error_response(503, text, **{"retry-after": "5"})
        except (InvalidQuery, ProxyError) as error:
            return make_error_response(400, str(error))
        except LedgerUnusable as error:
            return make_error_response(503, f"The ledger {error}.")

    async def _get_file_or_call(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.raw_path.partition("?")[0]
        if file := self._files.get(f"{FILES_PATH}index.html" if path == "/" else path):
            return web.FileResponse(file, headers=RESPONSE_HEADERS)
        call_id = path.removeprefix(f"{API_PATH}calls/")
        if call := self._calls.find(call_id):
            return make_json_response(await self._thread.render(self._calls.build_details, call))
        text = "Unknown path. docs/console.md lists the paths of this API."
        if call_id != path:
            text = f"This call is not stored. The console stores the last {MAX_CALLS:,} calls."
        return make_error_response(404, text)

    async def _get_overview(self, request: web.BaseRequest) -> web.Response:
        """Return an overview that is at most ``OVERVIEW_S`` old, so all readers share a build."""
        range_name = request.query.get("range", "15m")
        if range_name not in RANGES:
            raise InvalidQuery(f"range must be one of {', '.join(RANGES)}.")
        async with self._overview_lock:
            now = asyncio.get_running_loop().time()
            built_at, page = self._overviews.get(range_name, (0.0, b""))
            if not page or now - built_at >= OVERVIEW_S:
                limits = await read_limit_rows(self._sources)
                page = await self._thread.render(build_overview, self._sources, range_name, limits)
                self._overviews[range_name] = now, page
        return make_json_response(page)

    async def _list_calls(self, request: web.BaseRequest) -> web.Response:
        after, last_id = parse_query(CallsQuery, request.query).after, self._calls.last_id.encode()
        calls = reversed(self._calls.list_calls_after(after))
        rows = await self._thread.run(lambda: b",".join(map(self._calls.get_row_json, calls)))
        return make_json_response(b'{"last":"%s","calls":[%s]}' % (last_id, rows))

    async def _get_policy(self, request: web.BaseRequest) -> web.Response:
        limits = await read_limit_rows(self._sources)
        return make_json_response(await self._thread.render(self._policy.build_page, limits))

    async def _get_money(self, request: web.BaseRequest) -> web.Response:
        query = parse_query(MoneyQuery, request.query)
        limits = await read_limit_rows(self._sources)
        page = await self._ledger_thread.run(build_money_page, self._sources, query, limits)
        if isinstance(page, str):
            return web.Response(text=page, headers={**RESPONSE_HEADERS, "content-type": "text/csv"})
        return make_json_response(await self._thread.render(lambda: page))

    async def _run_trial(self, request: web.BaseRequest) -> web.Response:
        if self._bodies.locked():
            raise TooManyPages
        async with self._bodies:
            trial = await self._thread.run(parse_trial, await read_body(request))
            page = await run_trial(self._sources, self._thread, trial)
            return make_json_response(await self._thread.render(lambda: page))

    async def _handle_session(self, request: web.BaseRequest) -> web.Response:
        """Begin a session for the admin token as bearer, end it, or return its state."""
        sessions, session = self.sessions, request.cookies.get(COOKIE_NAME, "")
        has_token = sessions.token is None or has_valid_token(sessions.token, request.headers)
        if request.method == "POST":
            if not has_token:
                text = "Wrong token. Enter the value of HEADRACE_ADMIN_TOKEN."
                return make_error_response(401, text)
            return make_session_response(sessions.begin(), SESSION_S)
        if request.method == "DELETE":
            sessions.end(session)
            return make_session_response("", max_age=0)
        is_valid = sessions.is_valid(session)
        state = {"authorized": is_valid or has_token, "can_sign_out": is_valid}
        return make_json_response(orjson.dumps(state))

    async def _stream_calls(self, request: web.BaseRequest) -> web.StreamResponse:
        """Send calls that end after a given one as server-sent events, until a shutdown."""
        last_id = request.headers.get("last-event-id") or request.query.get("after", "")
        after = parse_query(CallsQuery, {"after": last_id}).after
        if self._is_stopping():
            return make_error_response(503, "The proxy is stopping.")
        if self._streams.locked():
            raise TooManyPages
        headers = {**RESPONSE_HEADERS, "content-type": "text/event-stream"}
        response = web.StreamResponse(headers=headers)
        async with self._streams:
            await response.prepare(request)
            try:
                await self._send_calls(response, after)
            except TimeoutError:
                if request.transport is not None:
                    request.transport.abort()
        return response

    async def _send_calls(self, response: web.StreamResponse, after: str) -> None:
        """Write events until a shutdown. Raises ``TimeoutError`` if the browser is too slow."""
        calls, now = self._calls, asyncio.get_running_loop().time
        events, sent_at = b"retry: 1000\n\n", now()
        while not self._is_stopping():
            new_calls = calls.list_calls_after(after)[:MAX_EVENTS]
            for call in new_calls:
                events += b"id: %s\ndata: %s\n\n" % (call.id.encode(), calls.get_row_json(call))
                after = call.id
            if not events and now() - sent_at > HEARTBEAT_S:
                events = b": \n\n"
            if events:
                async with asyncio.timeout(WRITE_S):
                    await response.write(events)
                events, sent_at = b"", now()
            await asyncio.sleep(0 if len(new_calls) == MAX_EVENTS else POLL_S)


def is_public(path: str) -> bool:
    """Return True for the files of the page, which contain no data, and for signing in."""
    return path == SESSION_PATH or not path.startswith(API_PATH)


def is_cross_site_request(method: str, path: str, headers: Mapping[str, str]) -> bool:
    """Return True if another site sent the request. Links to the page itself are not foreign."""
    origin, site = headers.get("Origin"), headers.get("Sec-Fetch-Site")
    if origin is not None and origin.partition("://")[2] != headers.get("Host"):
        return True
    return path.startswith(API_PATH) and site in ("cross-site", "same-site")


async def read_body(request: web.BaseRequest) -> bytes:
    """Return the body of a request, at most the 1 MiB of aiohttp. Raises ``InvalidQuery``."""
    try:
        async with asyncio.timeout(BODY_S):
            return await request.read()
    except TimeoutError:
        raise InvalidQuery(f"The body did not arrive within {BODY_S:g} s.") from None
    except web.HTTPRequestEntityTooLarge:
        raise InvalidQuery("The body is larger than 1,048,576 bytes.") from None


def make_session_response(session: str, max_age: int) -> web.Response:
    response = web.Response(status=204, headers=RESPONSE_HEADERS)
    response.set_cookie(COOKIE_NAME, session, max_age=max_age, httponly=True, samesite="Strict")
    return response


def make_json_response(body: bytes) -> web.Response:
    return web.Response(body=body, headers={**RESPONSE_HEADERS, "content-type": "application/json"})


def make_error_response(status: int, message: str, **headers: str) -> web.Response:
    """Return an error response whose message is shown on the page."""
    body = orjson.dumps({"error": {"message": message}})
    headers = {**RESPONSE_HEADERS, **headers, "content-type": "application/json"}
    return web.Response(status=status, body=body, headers=headers)
