"""What errors mean, and what the ends of replies mean."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.errors import CAUSES, CallError, CauseCode
from headrace.limits import ERROR_TEXT_MAX_CHARS
from headrace.wire import finish
from headrace.wire.failures import CODES, NO_REASON, STATUS, call_error, clip, of_error, of_status


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "bad_request"),
        (401, "key_rejected"),
        (402, "payment_required"),
        (403, "forbidden"),
        (404, "model_not_found"),
        (408, "request_timeout"),
        (409, "conflict"),
        (413, "request_too_large"),
        (418, "bad_request"),
        (425, "too_early"),
        (429, "rate_limited"),
        (500, "server_error"),
        (502, "server_error"),
        (503, "overloaded"),
        (524, "server_error"),
        (529, "overloaded"),
        (302, "provider_error"),
    ],
)
def test_a_status_has_a_cause(status: int, code: CauseCode) -> None:
    assert of_status(status) == code
    assert of_error({}, status).code == code


OPENAI = {
    "message": "You exceeded your quota",
    "type": "insufficient_quota",
    "param": None,
    "code": "insufficient_quota",
}
OPENROUTER = {"code": 429, "message": "Provider returned error", "metadata": {"raw": "slow down"}}
GOOGLE = {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}


@pytest.mark.parametrize(
    ("error", "status", "code", "message"),
    [
        pytest.param({"error": OPENAI}, 429, "quota_exhausted", "You exceeded your quota", id="openai"),
        pytest.param(OPENAI, None, "quota_exhausted", "You exceeded your quota", id="openai-inner"),
        pytest.param({"error": OPENROUTER}, 200, "rate_limited", "Provider returned error", id="openrouter"),
        pytest.param({"error": GOOGLE}, None, "overloaded", "The model is overloaded.", id="google"),
        pytest.param([{"error": GOOGLE}], 503, "overloaded", "The model is overloaded.", id="google-list"),
        pytest.param(
            {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
            None, "overloaded", "Overloaded", id="anthropic",
        ),
        pytest.param(
            {"object": "error", "message": "too long", "type": "BadRequestError", "param": None, "code": 400},
            None, "bad_request", "too long", id="vllm-flat",
        ),
        pytest.param({"error": "model 'x' not found"}, 404, "model_not_found", "model 'x' not found", id="ollama"),
        pytest.param({"error": "slow", "code": 503}, None, "overloaded", "slow", id="text-with-code"),
        pytest.param({"error": None, "message": "odd", "code": 502}, None, "server_error", "odd", id="error-null"),
        pytest.param({"error": True, "message": "odd"}, 500, "server_error", "odd", id="error-true"),
        pytest.param({"detail": "Not Found"}, 404, "model_not_found", "Not Found", id="fastapi"),
        pytest.param(
            {"detail": [{"loc": ["body"], "msg": "field required"}]},
            422, "bad_request", '[{"loc":["body"],"msg":"field required"}]', id="fastapi-list",
        ),
        pytest.param("upstream went away", 502, "server_error", "upstream went away", id="text"),
        pytest.param({"code": "429", "message": "m"}, None, "rate_limited", "m", id="digits"),
        pytest.param({"code": "4²9", "message": "m"}, None, "provider_error", "m", id="digits-that-are-none"),
        pytest.param({"code": True, "message": "m"}, None, "provider_error", "m", id="bool"),
        pytest.param({"type": "invalid_request_error", "message": "m"}, None, "bad_request", "m", id="broad-alone"),
        pytest.param({"type": "invalid_request_error", "message": "m"}, 404, "model_not_found", "m", id="broad"),
        pytest.param(
            {"type": "invalid_request_error", "code": "context_length_exceeded", "message": "m"},
            400, "request_too_large", "m", id="precise",
        ),
        pytest.param({"type": "tokens", "code": "rate_limit_exceeded", "message": "m"}, None, "rate_limited", "m", id="both"),
        pytest.param({}, None, "provider_error", NO_REASON, id="empty"),
        pytest.param(None, None, "provider_error", NO_REASON, id="null"),
        pytest.param([], None, "provider_error", NO_REASON, id="empty-list"),
    ],
)  # fmt: skip
def test_an_error_has_a_cause(error: Any, status: int | None, code: CauseCode, message: str) -> None:
    cause = of_error(error, status)
    assert (cause.code, cause.message) == (code, message)


def test_what_a_program_may_want_is_kept() -> None:
    error = {
        "message": "m",
        "type": "invalid_request_error",
        "code": "unsupported_parameter",
        "param": "top_k",
    }
    cause = call_error({"error": error}, 400).cause
    assert (cause.code, cause.provider_code, cause.parameter, cause.status) == (
        "parameter_rejected", "unsupported_parameter", "top_k", 400,
    )  # fmt: skip
    assert of_error({"code": 502}).provider_code == "502"
    assert of_error({"code": 502}, 200).status == 502


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(sorted(CODES)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "message", "code", "type", "status", "param", "detail", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@given(JSON, st.none() | st.integers(100, 599))
@example({"error": {"code": "5٣٤"}}, None)
@example({"message": {"a": "\ud83d"}}, None)
def test_anything_has_a_cause(error: Any, status: int | None) -> None:
    cause = of_error(error, status)
    assert cause.code in CAUSES
    assert 0 < len(cause.message) <= ERROR_TEXT_MAX_CHARS
    assert len(cause.provider_code) <= 80
    json.dumps([cause.message, cause.provider_code, cause.parameter], ensure_ascii=False).encode()


@given(st.text(st.characters(), max_size=40), st.integers(2, 20))
def test_a_quote_is_short_and_printable(text: str, most: int) -> None:
    quote = clip(text, most)
    assert len(quote) <= most
    assert quote.isprintable()
    assert clip(quote, most) == quote


def test_a_page_of_html_does_not_become_a_message() -> None:
    assert len(of_error("<html>\n" * 10**6).message) == ERROR_TEXT_MAX_CHARS


def test_every_code_is_a_cause() -> None:
    assert {*CODES.values(), *STATUS.values()} <= set(CAUSES)


ENDS = {
    "stop": ["", "stop", "STOP", "end_turn", "stop_sequence", "eos", "eos_token", "completed"],
    "tool_calls": ["tool_calls", "tool_use", "function_call"],
    "length": ["length", "max_tokens", "MAX_TOKENS", "max_output_tokens", "model_length", "model_context_window_exceeded"],
    "content_filter": ["content_filter", "SAFETY", "sensitive", "RECITATION", "blocklist", "PROHIBITED_CONTENT", "spii", "content_filter: OTHER"],
    "refused": ["refusal"],
    "pause": ["pause_turn"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("end", "reason"), [(end, reason) for end, reasons in ENDS.items() for reason in reasons]
)
def test_a_finish_reason_has_a_meaning(end: str, reason: str) -> None:
    plain = "stop" if end == "tool_calls" else end
    with_calls = "tool_calls" if end == "stop" else end
    assert finish.meaning(reason, has_calls=False) == plain
    assert finish.meaning(reason, has_calls=True) == with_calls
    assert finish.is_ordinary(reason) is (end in ("stop", "tool_calls"))


def test_every_finish_reason_in_the_table_is_tested() -> None:
    assert {reason.lower() for reasons in ENDS.values() for reason in reasons} >= set(finish._REASONS)


@pytest.mark.parametrize("has_calls", [True, False])
@pytest.mark.parametrize(
    "reason", [*sorted(finish._ERRORS), "ERROR", "function_call_filter: MALFORMED_FUNCTION_CALL"]
)
def test_an_error_is_never_an_end(reason: str, has_calls: bool) -> None:
    end = finish.meaning(reason, has_calls=has_calls)
    assert isinstance(end, CallError)
    assert end.cause.code == "finish_error"
    assert not finish.is_ordinary(reason)


@given(st.text(max_size=200).filter(lambda text: text.lower() not in finish._REASONS))
@example("stopped")
@example(":")
@example("stop: not really")
@example(" stop")
@example("null")
def test_a_reason_nobody_knows_is_never_an_end(reason: str) -> None:
    end = finish.meaning(reason, has_calls=False)
    assert isinstance(end, CallError)
    assert end.cause.code in ("finish_unknown", "finish_error")
    assert len(end.cause.message) < 400
