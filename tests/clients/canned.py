"""A server of canned bytes: it proves a recipe with every client before a door is built on it.

The model a client names is the recipe; `gpt-5` is a model that behaves, for what checks conformance: it calls a tool
when told to, and some checks are made of models with such names alone. Each recipe is what the wire carries for it: of a stream the pieces, one write
each; of an answer in one piece the status and the body. Text comes first everywhere, so that what breaks, breaks in the
middle; `...-early` breaks before any text.
"""

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from aiohttp import web

Piece = bytes | None
"""What is written at once; None cuts the connection there and then."""

KEEPALIVE: Final = b": keepalive\n\n"
DONE: Final = b"data: [DONE]\n\n"
TEXT: Final = ("Hello", " from", " here")
CALL: Final = {"id": "call_1", "name": "weather", "arguments": '{"city": "Kinlochleven"}'}
USAGE: Final = {
    "prompt_tokens": 5,
    "completion_tokens": 5,
    "total_tokens": 10,
    "completion_tokens_details": {"reasoning_tokens": 2},
}
ERROR: Final = {
    "message": "The provider broke the answer off.",
    "type": "server_error",
    "param": None,
    "code": "upstream_closed",
}
FATE: Final = {"failed": True, "partial": True, "completed": False, "error_code": "upstream_closed"}
STATUSES: Final = (400, 401, 429, 502, 503)
BEHAVES: Final = "gpt-5"


def data(value: Any) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()


# --- chat completions ---------------------------------------------------------------------------------------------


def chunk(delta: dict[str, Any] | None, finish: str | None = None, **beside: Any) -> bytes:
    choices = (
        [] if delta is None else [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]
    )
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1763500000, "model": "canned"}
    return data({**head, "choices": choices, **beside})


ROLE: Final = chunk({"role": "assistant", "content": ""})
SAID: Final = tuple(chunk({"content": text}) for text in TEXT)
USED: Final = chunk(None, usage=USAGE)
TERMINAL: Final = chunk({}, "error", error=ERROR, headrace=FATE)
BARE: Final = data({"error": ERROR})
WITHIN: Final = chunk(None, error=ERROR)
PROGRESS: Final = chunk(None, headrace={"progress": "running a tool"})


def _called() -> Iterator[bytes]:
    function = {"name": CALL["name"], "arguments": ""}
    yield chunk({"tool_calls": [{"index": 0, "id": CALL["id"], "type": "function", "function": function}]})
    for piece in (CALL["arguments"][:7], CALL["arguments"][7:]):
        yield chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})


CHAT_STREAMS: Final[dict[str, tuple[Piece, ...]]] = {
    "stop": (ROLE, *SAID, chunk({}, "stop"), USED, DONE),
    "length": (ROLE, *SAID, chunk({}, "length", headrace={"error_code": "output_truncated"}), USED, DONE),
    "content-filter": (ROLE, *SAID, chunk({}, "content_filter"), USED, DONE),
    "tool-calls": (ROLE, *_called(), chunk({}, "tool_calls"), USED, DONE),
    "keepalive": (
        KEEPALIVE,
        ROLE,
        KEEPALIVE,
        SAID[0],
        KEEPALIVE * 2,
        *SAID[1:],
        chunk({}, "stop"),
        USED,
        DONE,
    ),
    "reasoning": (
        ROLE,
        chunk({"reasoning_content": "running a tool\n"}),
        *SAID,
        chunk({}, "stop"),
        USED,
        DONE,
    ),
    "progress": (ROLE, PROGRESS, SAID[0], PROGRESS, *SAID[1:], PROGRESS, chunk({}, "stop"), USED, DONE),
    "bare-terminal": (ROLE, *SAID, BARE, TERMINAL, DONE),
    "within-terminal": (ROLE, *SAID, WITHIN, TERMINAL, DONE),
    "terminal": (ROLE, *SAID, TERMINAL, DONE),
    "bare": (ROLE, *SAID, BARE, DONE),
    "within": (ROLE, *SAID, WITHIN, DONE),
    "bare-terminal-early": (ROLE, BARE, TERMINAL, DONE),
    "within-terminal-early": (ROLE, WITHIN, TERMINAL, DONE),
    "terminal-early": (ROLE, TERMINAL, DONE),
    "bare-terminal-mid-call": (ROLE, *list(_called())[:2], BARE, TERMINAL, DONE),
    "within-terminal-mid-call": (ROLE, *list(_called())[:2], WITHIN, TERMINAL, DONE),
    "finish-error": (ROLE, *SAID, chunk({}, "error"), DONE),
    "cut": (ROLE, *SAID, None),
    "eof": (ROLE, *SAID),
    "eof-done": (ROLE, *SAID, DONE),
    "null-error": (
        ROLE,
        *(chunk({"content": text}, error=None) for text in TEXT),
        chunk({}, "stop"),
        USED,
        DONE,
    ),
}


def chat_whole(recipe: str) -> tuple[int, dict[str, Any]]:
    finish = {"length": "length", "content-filter": "content_filter", "tool-calls": "tool_calls"}.get(
        recipe, "stop"
    )
    if recipe not in ("stop", "length", "content-filter", "tool-calls", "reasoning"):
        return 502, {"error": ERROR, "headrace": {**FATE, "partial_text": "".join(TEXT)}, "usage": USAGE}
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "".join(TEXT),
        "refusal": None,
        "annotations": [],
    }
    if recipe == "reasoning":
        message["reasoning_content"] = "running a tool\n"
    if recipe == "tool-calls":
        function = {"name": CALL["name"], "arguments": CALL["arguments"]}
        message |= {
            "content": None,
            "tool_calls": [{"id": CALL["id"], "type": "function", "function": function}],
        }
    return 200, {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1763500000,
        "model": "canned",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
        "usage": USAGE,
        **({"headrace": {"error_code": "output_truncated"}} if recipe == "length" else {}),
    }


# --- responses ----------------------------------------------------------------------------------------------------


def message_item(status: str, text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}] if text else []
    return {"id": "msg_1", "type": "message", "status": status, "role": "assistant", "content": content}


def call_item(status: str, arguments: str) -> dict[str, Any]:
    called = {"call_id": CALL["id"], "name": CALL["name"], "arguments": arguments}
    return {"id": "fc_1", "type": "function_call", "status": status, **called}


def resource(status: str, output: list[dict[str, Any]], **other: Any) -> dict[str, Any]:
    ended = status not in ("in_progress", "queued")
    counts = {"input_tokens": 5, "output_tokens": 3, "total_tokens": 8}
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1763500000,
        "completed_at": 1763500001 if status == "completed" else None,
        "status": status,
        "incomplete_details": None,
        "model": "canned",
        "previous_response_id": None,
        "instructions": None,
        "output": output,
        "error": None,
        "tools": [],
        "tool_choice": "auto",
        "truncation": "disabled",
        "parallel_tool_calls": True,
        "text": {"format": {"type": "text"}},
        "top_p": 1,
        "presence_penalty": 0,
        "frequency_penalty": 0,
        "top_logprobs": 0,
        "temperature": 1,
        "reasoning": {"effort": None, "summary": None},
        "usage": {**counts, **details} if ended else None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "store": True,
        "background": False,
        "service_tier": "default",
        "metadata": {},
        "safety_identifier": None,
        "prompt_cache_key": None,
        **other,
    }


WHOLE: Final = "".join(TEXT)
FAILED: Final = {"code": "server_error", "message": ERROR["message"]}
BROKEN: Final = resource("failed", [message_item("incomplete", WHOLE)], error=FAILED)
TOLD: Final = {"type": "headrace:progress", "text": "running a tool"}

Event = dict[str, Any]


def _opened() -> list[Event]:
    begun = resource("in_progress", [])
    return [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]


def _thought() -> list[Event]:
    place = {"item_id": "rs_1", "output_index": 0, "summary_index": 0}
    part = {"type": "summary_text", "text": ""}
    told = {"type": "summary_text", "text": "running a tool\n"}
    item = {"id": "rs_1", "type": "reasoning", "summary": []}
    return [
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.reasoning_summary_part.added", **place, "part": part},
        {"type": "response.reasoning_summary_text.delta", **place, "delta": told["text"]},
        {"type": "response.reasoning_summary_text.done", **place, "text": told["text"]},
        {"type": "response.reasoning_summary_part.done", **place, "part": told},
        {"type": "response.output_item.done", "output_index": 0, "item": {**item, "summary": [told]}},
    ]


def _spoken(place: int = 0) -> list[Event]:
    at = {"item_id": "msg_1", "output_index": place, "content_index": 0}
    part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    return [
        {
            "type": "response.output_item.added",
            "output_index": place,
            "item": message_item("in_progress", ""),
        },
        {"type": "response.content_part.added", **at, "part": part},
        *({"type": "response.output_text.delta", **at, "delta": text, "logprobs": []} for text in TEXT),
    ]


def _closed(status: str = "completed", place: int = 0) -> list[Event]:
    at = {"item_id": "msg_1", "output_index": place, "content_index": 0}
    part = {"type": "output_text", "text": WHOLE, "annotations": [], "logprobs": []}
    return [
        {"type": "response.output_text.done", **at, "text": WHOLE, "logprobs": []},
        {"type": "response.content_part.done", **at, "part": part},
        {"type": "response.output_item.done", "output_index": place, "item": message_item(status, WHOLE)},
    ]


def _calling() -> list[Event]:
    place = {"item_id": "fc_1", "output_index": 0}
    whole = CALL["arguments"]
    done = {"name": CALL["name"], "arguments": whole}
    return [
        {"type": "response.output_item.added", "output_index": 0, "item": call_item("in_progress", "")},
        {"type": "response.function_call_arguments.delta", **place, "delta": whole[:7]},
        {"type": "response.function_call_arguments.delta", **place, "delta": whole[7:]},
        {"type": "response.function_call_arguments.done", **place, **done},
        {"type": "response.output_item.done", "output_index": 0, "item": call_item("completed", whole)},
    ]


def _stopped(reason: str) -> Event:
    output = [message_item("incomplete", WHOLE)]
    return {
        "type": "response.incomplete",
        "response": resource("incomplete", output, incomplete_details={"reason": reason}),
    }


SPOKEN: Final = (*_opened(), *_spoken())
FLAT: Final = {key: ERROR[key] for key in ("code", "message", "param")}
FAILED_NESTED: Final = {"type": "response.failed", "response": BROKEN}
FAILED_BOTH: Final = {**FLAT, **FAILED_NESTED, "error": ERROR}
ERROR_FLAT: Final = {**FLAT, "type": "error"}
ERROR_NESTED: Final = {"type": "error", "error": ERROR}
ERROR_BOTH: Final = {**ERROR_FLAT, "error": ERROR}
ENDED: Final[Event] = {
    "type": "response.completed",
    "response": resource("completed", [message_item("completed", WHOLE)]),
}
THOUGHT: Final[Event] = {
    "type": "response.completed",
    "response": resource("completed", [_thought()[-1]["item"], message_item("completed", WHOLE)]),
}
CALLED: Final[Event] = {
    "type": "response.completed",
    "response": resource("completed", [call_item("completed", CALL["arguments"])]),
}

RESPONSES_STREAMS: Final[dict[str, tuple[Event | Piece, ...]]] = {
    "stop": (*SPOKEN, *_closed(), ENDED),
    "stop-done": (*SPOKEN, *_closed(), ENDED, DONE),
    "length": (*SPOKEN, *_closed("incomplete"), _stopped("max_output_tokens")),
    "content-filter": (*SPOKEN, *_closed("incomplete"), _stopped("content_filter")),
    "tool-calls": (*_opened(), *_calling(), CALLED),
    "keepalive": (KEEPALIVE, *_opened(), KEEPALIVE, *_spoken(), KEEPALIVE, *_closed(), ENDED),
    "reasoning": (*_opened(), *_thought(), *_spoken(1), *_closed(place=1), THOUGHT),
    "progress": (*_opened(), TOLD, *_spoken(), TOLD, *_closed(), TOLD, ENDED),
    "failed": (*SPOKEN, FAILED_NESTED),
    "failed-flat": (*SPOKEN, {**FLAT, **FAILED_NESTED}),
    "failed-error": (*SPOKEN, {**FAILED_NESTED, "error": ERROR}),
    "failed-both": (*SPOKEN, FAILED_BOTH),
    "failed-both-cancelled": (*SPOKEN, {**FAILED_BOTH, "response": {**BROKEN, "status": "cancelled"}}),
    "failed-both-early": (*_opened(), FAILED_BOTH),
    "failed-both-mid-call": (*_opened(), *_calling()[:2], FAILED_BOTH),
    "error-flat": (*SPOKEN, ERROR_FLAT),
    "error-nested": (*SPOKEN, ERROR_NESTED),
    "error-both": (*SPOKEN, ERROR_BOTH),
    "error-then-failed": (*SPOKEN, ERROR_BOTH, FAILED_BOTH),
    "error-then-failed-early": (*_opened(), ERROR_BOTH, FAILED_BOTH),
    "cut": (*SPOKEN, None),
    "eof": SPOKEN,
}


def responses_pieces(recipe: str) -> Iterator[Piece]:
    number = 0
    for entry in RESPONSES_STREAMS[recipe]:
        if not isinstance(entry, dict):
            yield entry
            continue
        yield f"event: {entry['type']}\n".encode() + data({**entry, "sequence_number": number})
        number += 1


def responses_whole(recipe: str) -> tuple[int, dict[str, Any]]:
    match recipe:
        case "stop" | "reasoning":
            return 200, (ENDED if recipe == "stop" else THOUGHT)["response"]
        case "tool-calls":
            return 200, CALLED["response"]
        case "length" | "content-filter":
            reason = "max_output_tokens" if recipe == "length" else "content_filter"
            return 200, _stopped(reason)["response"]
        case "failed-200":
            return 200, BROKEN
        case _:
            return 502, {**BROKEN, "error": ERROR, "headrace": FATE}


# --- the server ---------------------------------------------------------------------------------------------------


async def _stream(request: web.Request, pieces: list[Piece]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
    await response.prepare(request)
    for piece in pieces:
        if piece is None:
            await _abort(request)
            break
        await response.write(piece)
    return response


async def _abort(request: web.Request) -> None:
    """Reset, as a server does that is killed; only after what was written has left."""
    assert request.transport is not None
    while request.transport.get_write_buffer_size():  # noqa: ASYNC110 - a transport offers nothing to wait for
        await asyncio.sleep(0)
    request.transport.close()


class Canned:
    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body, recipe = await self._asked(request)
        if early := _refused(recipe):
            return early
        if body.get("stream"):
            return await _stream(request, list(CHAT_STREAMS[recipe]))
        return _json(*chat_whole(recipe))

    async def responses(self, request: web.Request) -> web.StreamResponse:
        body, recipe = await self._asked(request)
        if early := _refused(recipe):
            return early
        if body.get("stream"):
            return await _stream(request, list(responses_pieces(recipe)))
        status, whole = responses_whole(recipe)
        return _json(status, {**whole, "reasoning": body.get("reasoning")})

    async def resumed(self, request: web.Request) -> web.StreamResponse:
        """What is left of a response; one is stored, and it ended well."""
        after = int(request.query.get("starting_after", -1))
        return await _stream(request, list(responses_pieces("stop"))[after + 1 :])

    async def unknown(self, request: web.Request) -> web.Response:
        """Otherwise `compact` would be an id, and the answer 405 where an endpoint that there is not is 404."""
        return _json(404, {"error": {**ERROR, "message": "There is no such endpoint."}})

    async def _asked(self, request: web.Request) -> tuple[dict[str, Any], str]:
        body = await request.json()
        recipe = body.get("model", "status-400")
        if recipe == BEHAVES:
            recipe = "tool-calls" if body.get("tool_choice") == "required" else "stop"
        self.requests[recipe] += 1
        return body, recipe

    def application(self) -> web.Application:
        application = web.Application()
        application.router.add_post("/v1/chat/completions", self.chat)
        application.router.add_post("/v1/responses", self.responses)
        application.router.add_post("/v1/responses/compact", self.unknown)
        application.router.add_get("/v1/responses/{id}", self.resumed)
        return application


def _refused(recipe: str) -> web.Response | None:
    kind, _, status = recipe.partition("-")
    return _json(int(status), {"error": ERROR}) if kind == "status" else None


def _json(status: int, body: dict[str, Any]) -> web.Response:
    headers = {"x-should-retry": "false"} if status >= 400 else {}
    return web.json_response(body, status=status, headers=headers)


@contextmanager
def canned() -> Iterator[tuple[str, Counter[str]]]:
    """The server on a thread of its own: its base URL, and how often each recipe was asked for."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server = Canned()
    runner = web.AppRunner(server.application())
    try:
        port = asyncio.run_coroutine_threadsafe(_listen(runner), loop).result(10)
        yield f"http://127.0.0.1:{port}/v1", server.requests
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def _listen(runner: web.AppRunner) -> int:
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port: int = runner.addresses[0][1]
    return port
