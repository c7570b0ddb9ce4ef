"""The reference: what one writes first with aiohttp, an application that passes calls on unread:
``python -m bench.relay PORT UPSTREAM``. Nothing in it is tuned."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping

import aiohttp
from aiohttp import web
from yarl import URL

HOPS = frozenset(
    {"connection", "content-length", "host", "keep-alive", "te", "trailer", "transfer-encoding"}
    | {"accept-encoding", "proxy-connection", "upgrade"}
)


def passed_on(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that are not of one connection alone."""
    return {name: value for name, value in headers.items() if name.lower() not in HOPS}


async def main(port: int, upstream: str) -> None:
    async with aiohttp.ClientSession() as session:

        async def relay(request: web.Request) -> web.StreamResponse:
            url, body = URL(upstream + request.path_qs), await request.read()
            headers = passed_on(request.headers)
            async with session.request(request.method, url, data=body, headers=headers) as answer:
                returned = passed_on(answer.headers)
                if b'"stream":true' not in body:
                    whole = await answer.read()
                    return web.Response(body=whole, status=answer.status, headers=returned)
                response = web.StreamResponse(status=answer.status, headers=returned)
                await response.prepare(request)
                async for piece in answer.content.iter_any():
                    await response.write(piece)
                await response.write_eof()
                return response

        application = web.Application(client_max_size=64 * 1024 * 1024)
        application.router.add_route("*", "/{path:.*}", relay)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, backlog=4096).start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
