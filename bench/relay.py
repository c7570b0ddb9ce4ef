"""Reference proxy: an untuned aiohttp application that forwards requests without reading them.

``python -m bench.relay PORT UPSTREAM_URL``
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping

import aiohttp
from aiohttp import web
from yarl import URL

HOP_BY_HOP = frozenset(
    {"connection", "content-length", "host", "keep-alive", "te", "trailer", "transfer-encoding"}
    | {"accept-encoding", "proxy-connection", "upgrade"}
)


def end_to_end(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in HOP_BY_HOP}


async def main(port: int, upstream: str) -> None:
    async with aiohttp.ClientSession() as session:

        async def relay(request: web.Request) -> web.StreamResponse:
            url, body = URL(upstream + request.path_qs), await request.read()
            headers = end_to_end(request.headers)
            exchange = session.request(request.method, url, data=body, headers=headers)
            async with exchange as upstream_response:
                status, headers = upstream_response.status, end_to_end(upstream_response.headers)
                if b'"stream":true' not in body:
                    content = await upstream_response.read()
                    return web.Response(body=content, status=status, headers=headers)
                response = web.StreamResponse(status=status, headers=headers)
                await response.prepare(request)
                async for chunk in upstream_response.content.iter_any():
                    await response.write(chunk)
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
