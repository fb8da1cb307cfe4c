"""A bare relay through aiohttp that decodes nothing: what any server in between costs at the least.

`python -m bench.relay UPSTREAM` prints `ready URL`.
"""

import asyncio
import sys

import aiohttp
from aiohttp import web


async def _serve(upstream: str) -> None:
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), read_bufsize=256 * 1024, timeout=aiohttp.ClientTimeout(None)
    )

    async def relay(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        async with session.post(
            f"{upstream}{request.path}", data=body, headers={"Content-Type": "application/json"}
        ) as answer:
            out = web.StreamResponse(headers={"Content-Type": answer.content_type})
            await out.prepare(request)
            async for piece in answer.content.iter_any():
                await out.write(piece)
            await out.write_eof()
            return out

    app = web.Application()
    app.router.add_post("/v1/chat/completions", relay)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"ready http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
