"""A body is taken as it was sent, wherever it is split, however it is framed and whatever ends it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import aiohttp
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.providers.body import Body
from tests.rawserver import RawServer, Sent, endless, http, raw_server

BODIES = st.lists(st.binary(min_size=1, max_size=300), max_size=6)
CUTS = st.lists(st.floats(0, 1), max_size=5)


def chunked(pieces: list[bytes]) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in [*pieces, b""])


def framed(framing: str, pieces: list[bytes]) -> bytes:
    match framing:
        case "chunked":
            return chunked(pieces)
        case "length":
            return http(b"".join(pieces))
        case _:
            return endless(b"".join(pieces))


def split(data: bytes, cuts: list[float]) -> tuple[bytes, ...]:
    places = sorted({0, len(data), *(round(cut * len(data)) for cut in cuts)})
    return tuple(data[a:b] for a, b in pairwise(places))


@asynccontextmanager
async def response_of(
    server: RawServer, session: aiohttp.ClientSession
) -> AsyncIterator[aiohttp.ClientResponse]:
    async with session.post(f"http://127.0.0.1:{server.port}/", data=b"?") as response:
        yield response


@asynccontextmanager
async def answered(
    sent: Sent | bytes, read_bufsize: int = 256 * 1024
) -> AsyncIterator[aiohttp.ClientResponse]:
    async with (
        raw_server([sent]) as server,
        aiohttp.ClientSession(read_bufsize=read_bufsize) as session,
        response_of(server, session) as response,
    ):
        yield response


def line_of(response: aiohttp.ClientResponse) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
    connection = response.connection
    assert connection is not None
    assert connection.transport is not None
    assert connection.protocol is not None
    return connection.transport, connection.protocol


class Taking:
    """Takes everything; has enough after each of the first `pauses` pieces."""

    def __init__(self, pauses: int = 0) -> None:
        self.pieces: list[bytes] = []
        self._pauses = pauses

    def __call__(self, data: bytes) -> bool:
        self.pieces.append(data)
        self._pauses -= 1
        return self._pauses >= 0

    @property
    def ended(self) -> bool:
        return self.pieces[-1:] == [b""]


async def read_all(body: Body, taking: Taking) -> None:
    while not taking.ended:
        await body.read()


@given(st.sampled_from(["chunked", "length", "close"]), BODIES, CUTS, st.integers(0, 3))
@example("chunked", [], [], 0)
@example("length", [], [], 0)
@example("close", [], [], 0)
def test_what_is_sent_is_taken_once_and_in_order(
    framing: str, pieces: list[bytes], cuts: list[float], pauses: int
) -> None:
    async def taken() -> Taking:
        sent = Sent(split(framed(framing, pieces), cuts), "close" if framing == "close" else "keep")
        async with answered(sent) as response:
            taking = Taking(pauses)
            await read_all(Body(response, taking), taking)
            return taking

    taking = asyncio.run(taken())
    assert b"".join(taking.pieces) == b"".join(pieces)
    assert taking.pieces.count(b"") == 1


@given(st.sampled_from(["chunked", "length"]), BODIES.filter(bool), st.floats(0, 1), CUTS)
def test_of_a_body_that_breaks_off_all_that_came_is_taken_and_its_end_is_raised(
    framing: str, pieces: list[bytes], place: float, cuts: list[float]
) -> None:
    whole = framed(framing, pieces)
    body_at = whole.index(b"\r\n\r\n") + 4
    end = body_at + round(place * (len(whole) - 1 - body_at))

    async def taken() -> Taking:
        sent = Sent(split(whole[:end], cuts), "close")
        async with answered(sent) as response:
            taking = Taking()
            with pytest.raises(aiohttp.ClientError):
                await read_all(Body(response, taking), taking)
            return taking

    taking = asyncio.run(taken())
    text, said = b"".join(taking.pieces), b"".join(pieces)
    assert said.startswith(text)
    assert not taking.ended
    if framing == "length":
        assert text == said[: end - body_at]


async def test_a_connection_is_its_own_again_and_serves_the_next_request() -> None:
    async with raw_server([chunked([b"one", b"two"])]) as server, aiohttp.ClientSession() as session:
        for _ in range(3):
            async with response_of(server, session) as response:
                taking = Taking()
                await read_all(Body(response, taking), taking)
                assert b"".join(taking.pieces) == b"onetwo"
        assert server.connections == 1


async def test_what_take_raises_is_raised_where_the_body_is_read() -> None:
    def take(_: bytes) -> bool:
        raise ValueError("no")

    async with answered(Sent((chunked([b"one"])[:-5],), "hold")) as response:
        transport, protocol = line_of(response)
        with pytest.raises(ValueError, match="no"):
            await Body(response, take).read()
        assert transport.get_protocol() is protocol


async def test_a_body_whose_framing_cannot_be_read_is_a_connection_that_broke() -> None:
    async with answered(Sent((chunked([b"one"])[:-5], b"zz\r\n"), "hold", 0.1)) as response:
        taking = Taking()
        with pytest.raises(aiohttp.ClientError):
            await asyncio.wait_for(read_all(Body(response, taking), taking), 10)
        assert not taking.ended


async def test_a_connection_that_is_closed_while_it_is_read_wakes_the_reader() -> None:
    async with answered(Sent((chunked([b"one"])[:-5],), "hold")) as response:
        _, protocol = line_of(response)
        body = Body(response, Taking())
        reading = asyncio.create_task(body.read())
        await asyncio.sleep(0)
        protocol.close()  # type: ignore[attr-defined]
        with pytest.raises(aiohttp.ClientError):
            await asyncio.wait_for(reading, 10)
        with pytest.raises(aiohttp.ClientError):  # nobody listens any more
            await asyncio.wait_for(body.read(), 10)


async def test_who_takes_may_stop_who_reads() -> None:
    async with answered(chunked([b"one", b"two"])) as response:
        taken: list[bytes] = []

        def take(data: bytes) -> bool:
            taken.append(data)
            reading.cancel()
            return True

        reading = asyncio.create_task(Body(response, take).read())
        await asyncio.wait([reading])
        assert reading.cancelled()
        assert len(taken) == 1


async def test_who_stops_reading_leaves_the_connection_as_it_was() -> None:
    async with answered(Sent((chunked([b"one"])[:-5],), "hold")) as response:
        transport, protocol = line_of(response)
        arrived = asyncio.Event()
        taking = Taking()

        def take(data: bytes) -> bool:
            arrived.set()
            return taking(data)

        reading = asyncio.create_task(Body(response, take).read())
        await arrived.wait()
        assert transport.get_protocol() is not protocol
        reading.cancel()
        await asyncio.wait([reading])
        assert reading.cancelled()
        assert transport.get_protocol() is protocol
        assert taking.pieces == [b"one"]


async def test_a_body_that_fills_the_readers_buffer_many_times_comes_whole() -> None:
    said = bytes(range(256)) * 4096
    pieces = [said[at : at + 40_000] for at in range(0, len(said), 40_000)]
    async with answered(chunked(pieces), read_bufsize=1024) as response:
        taking = Taking()
        await read_all(Body(response, taking), taking)
    assert b"".join(taking.pieces) == said
