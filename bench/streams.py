"""Streams as providers send them, built once."""

import json
from collections.abc import Iterator

READ_BYTES = 65536
WORDS = ("The", " quick", " brown", " fox", " jumps", " over", " the", " lazy", " dog", ",\n", " twice", ".")


def words(count: int) -> list[str]:
    return [WORDS[n % len(WORDS)] for n in range(count)]


def _sse(objects: Iterator[dict[str, object]], *, named: bool = False, done: bool = False) -> bytes:
    out = []
    for value in objects:
        name = f"event: {value['type']}\n" if named else ""
        out.append(f"{name}data: {json.dumps(value, separators=(',', ':'))}\n\n")
    return ("".join(out) + ("data: [DONE]\n\n" if done else "")).encode()


def chat_completions(tokens: int) -> bytes:
    head = {"id": "chatcmpl-Bqk3fEXAMPLE0123456789abcdef", "object": "chat.completion.chunk", "created": 1763500000,
            "model": "gpt-5.5-2026-08-07", "service_tier": "default", "system_fingerprint": "fp_0123456789"}  # fmt: skip

    def chunks() -> Iterator[dict[str, object]]:
        def choice(delta: dict[str, str], reason: str | None = None) -> list[dict[str, object]]:
            return [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]

        yield {**head, "choices": choice({"role": "assistant", "content": ""})}
        for word in words(tokens):
            yield {**head, "choices": choice({"content": word}), "obfuscation": "aB3dE5"}
        yield {**head, "choices": choice({}, "stop")}
        yield {
            **head,
            "choices": [],
            "usage": {"prompt_tokens": 9, "completion_tokens": tokens, "total_tokens": 9 + tokens},
        }

    return _sse(chunks(), done=True)


def messages(tokens: int) -> bytes:
    def events() -> Iterator[dict[str, object]]:
        yield {"type": "message_start", "message": {"id": "msg_01", "type": "message", "role": "assistant",
               "model": "claude-opus-4-8", "content": [], "stop_reason": None, "stop_sequence": None,
               "usage": {"input_tokens": 9, "output_tokens": 1}}}  # fmt: skip
        yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        for word in words(tokens):
            yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}}
        yield {"type": "content_block_stop", "index": 0}
        yield {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None},
               "usage": {"output_tokens": tokens}}  # fmt: skip
        yield {"type": "message_stop"}

    return _sse(events(), named=True)


def responses(tokens: int) -> bytes:
    answer = {"id": "resp_01", "object": "response", "created_at": 1763500000, "model": "gpt-5.5", "output": [],
              "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}  # fmt: skip
    text = "".join(words(tokens))
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {"id": "msg_01", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    usage = {"input_tokens": 9, "output_tokens": tokens, "total_tokens": 9 + tokens,
             "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}  # fmt: skip
    place = {"item_id": "msg_01", "output_index": 0, "content_index": 0}

    def events() -> Iterator[dict[str, object]]:
        yield {"type": "response.created", "response": {**answer, "status": "in_progress"}}
        yield {"type": "response.output_item.added", "output_index": 0,
               "item": {**item, "status": "in_progress", "content": []}}  # fmt: skip
        yield {"type": "response.content_part.added", **place, "part": {**part, "text": ""}}
        for word in words(tokens):
            yield {"type": "response.output_text.delta", **place, "delta": word, "logprobs": []}
        yield {"type": "response.output_text.done", **place, "text": text, "logprobs": []}
        yield {"type": "response.content_part.done", **place, "part": part}
        yield {"type": "response.output_item.done", "output_index": 0, "item": item}
        yield {
            "type": "response.completed",
            "response": {**answer, "status": "completed", "output": [item], "usage": usage},
        }

    numbered = ({**event, "sequence_number": n} for n, event in enumerate(events()))
    return _sse(numbered, named=True)


def reads(stream: bytes, size: int = READ_BYTES) -> list[bytes]:
    return [stream[at : at + size] for at in range(0, len(stream), size)]
