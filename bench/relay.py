"""The reference: aiohttp's server and client, passing bytes on unread: ``relay PORT UPSTREAM``."""

from __future__ import annotations

import asyncio
import sys

import aiohttp
import uvloop
from aiohttp import web
from yarl import URL


async def main(port: int, upstream: str) -> None:
    url = URL(f"{upstream}/v1/chat/completions")
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(
        connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
    ) as session:

        async def relay(request: web.BaseRequest) -> web.StreamResponse:
            body = await request.read()
            headers = {"content-type": "application/json"}
            async with session.post(url, data=body, headers=headers) as answer:
                if "content-length" in answer.headers:
                    whole = await answer.read()
                    return web.Response(body=whole, content_type="application/json")
                response = web.StreamResponse(headers={"content-type": "text/event-stream"})
                await response.prepare(request)
                async for piece in answer.content.iter_any():
                    await response.write(piece)
                return response

        runner = web.ServerRunner(web.Server(relay, access_log=None))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), sys.argv[2]))
