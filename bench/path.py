"""The whole path without sockets: decode, event, append, two followers, one of which encodes chunks again."""

from bench import streams
from bench.measure import cpu_us, table
from headrace.errors import Cause
from headrace.events import (
    LOG_VERSION,
    AttemptStarted,
    CallStarted,
    PartGrew,
    TurnClosed,
    TurnOpened,
    user_message,
)
from headrace.turn.folds import Folded
from headrace.turn.log import Log
from headrace.wire import chat_chunks, chat_completions


def _turn(pieces: list[bytes]) -> int:
    log = Log("turn")
    reader, chunks = Folded(), chat_chunks.Chunks("chatcmpl-1", 1763500000, "headrace")
    written = bytearray()
    shown = 0

    def fold() -> None:
        reader.catch_up(log.since(reader.seq))

    def encode() -> None:
        nonlocal shown
        batch = log.since(shown)
        shown += len(batch)
        frames = [chunks.content(r.event.text) for r in batch if type(r.event) is PartGrew]
        written.extend(b"".join(frames))

    log.watch(fold)
    log.watch(encode)
    opening = (
        TurnOpened(LOG_VERSION, (user_message("?"),)),
        CallStarted(1, "reply", "p:m"),
        AttemptStarted(1, 1, "p:m"),
    )
    log.extend(opening, 0.0)
    decoder = chat_completions.Decoder()
    for piece in pieces:
        log.extend(decoder.feed(piece), 0.0)
    log.extend(decoder.close(), 0.0)
    log.append(TurnClosed("stop", Cause("answered", "")), 0.0)
    assert reader.outcome == "stop"
    return len(written)


def run() -> None:
    rows = []
    base = 0.0
    for tokens in (1_000, 10_000, 100_000):
        pieces = streams.reads(streams.chat_completions(tokens))
        cost = cpu_us(lambda p=pieces: _turn(p), tokens, repeats=max(3, 50_000 // tokens))  # type: ignore[misc]
        base = base or cost
        rows.append((f"{tokens:,} tokens", cost, cost / base))
    table("Decode, append, two followers, encode: CPU us per token", ("answer", "us", "x"), rows)
