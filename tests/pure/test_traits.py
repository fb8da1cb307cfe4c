"""What bytes show of a provider's habits."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.views.doctor.wording import QUIRKS, REASONING, USAGE
from headrace.wire import traits
from headrace.wire.call_traits import CallQuirk
from headrace.wire.traits import Form, ReasoningForm, UsagePlace
from tests.pure.wire_helpers import FIXTURES, assert_linear, damaged, fixtures

ALL = [f for protocol in ("chat_completions", "responses", "messages") for f in fixtures(protocol)]


def of(protocol: str, name: str) -> traits.Traits:
    return traits.read((FIXTURES / protocol / name).read_bytes())


@given(st.one_of(damaged(ALL).map(lambda pair: pair[1]), st.binary(max_size=400)))
def test_whatever_comes_is_read(data: bytes) -> None:
    assert traits.read(data).form in get_args(Form)


@pytest.mark.parametrize("fixture", ALL, ids=lambda f: f"{f.protocol}/{f}")
def test_the_form_is_that_of_the_fixture(fixture) -> None:
    form = traits.read(fixture.data).form
    page = fixture.data.lstrip().startswith(b"<")
    assert form == ("page" if page else "events" if fixture.streamed else "document")


@pytest.mark.parametrize(
    ("data", "form"),
    [
        (b"", "nothing"),
        (b" \r\n", "nothing"),
        (b"\xef\xbb\xbf", "nothing"),
        (b"<!doctype html>", "page"),
        (b"[]", "document"),
        (b": hello\n\n", "events"),
        (b"Not found\n\n", "other"),
    ],
)
def test_the_form_of_odd_bytes(data: bytes, form: str) -> None:
    assert traits.read(data).form == form


@pytest.mark.parametrize(
    ("protocol", "name", "markers"),
    [
        ("chat_completions", "openai_text.sse", ["finish_reason", "[DONE]"]),
        ("chat_completions", "openai_text.json", ["finish_reason"]),
        ("chat_completions", "finish_without_done.sse", ["finish_reason"]),
        ("chat_completions", "finish_missing_done.sse", ["[DONE]"]),
        ("chat_completions", "finish_nothing.sse", []),
        ("chat_completions", "error_body.json", ["error"]),
        ("responses", "text.sse", ["response.completed"]),
        ("responses", "no_event_line_done_marker.sse", ["response.completed", "[DONE]"]),
        ("responses", "incomplete_max_output_tokens.sse", ["response.incomplete"]),
        ("responses", "cut_after_item.sse", []),
        ("messages", "text.sse", ["stop_reason", "message_stop"]),
        ("messages", "eof_after_stop_reason.sse", ["stop_reason"]),
        ("messages", "error_overloaded.sse", ["error"]),
    ],
)
def test_markers(protocol: str, name: str, markers: list[str]) -> None:
    assert list(of(protocol, name).markers) == markers


@pytest.mark.parametrize(
    ("name", "quirks"),
    [
        ("openai_text.sse", []),
        ("openai_tools.sse", []),
        ("tool_interleaved.sse", []),
        ("choices_beyond_the_first.sse", []),
        ("comments.sse", ["comments"]),
        ("crlf.sse", ["crlf"]),
        ("cr_only.sse", ["crlf"]),
        ("bom.sse", ["bom"]),
        ("azure_choices_empty_first.sse", ["choices_empty"]),
        ("choice_without_delta.sse", ["delta_missing"]),
        ("content_parts.sse", ["content_parts"]),
        ("role_empty.sse", ["role_empty"]),
        ("cumulative_text.sse", ["cumulative"]),
        ("finish_without_done.sse", ["done_missing"]),
        ("finish_missing_done.sse", ["finish_missing"]),
        ("finish_length_then_stop.sse", ["several_finishes"]),
        ("finish_tool_calls_without_calls.sse", ["calls_announced_only"]),
        ("tool_finish_stop.sse", ["calls_end_with_stop"]),
        ("tool_index_missing_fragments.sse", ["index_missing"]),
        ("tool_index_zero_for_all.sse", ["index_shared", "calls_end_with_stop"]),
        ("tool_index_missing_no_id.sse", ["index_missing", "name_repeated", "call_id_missing"]),
        ("tool_body_same_ids.json", ["call_id_repeated"]),
        ("tool_name_in_every_delta.sse", ["name_repeated"]),
        ("tool_name_in_fragments.sse", ["name_in_pieces"]),
        ("tool_arguments_object.sse", ["arguments_object"]),
        ("tool_function_call_legacy.sse", ["legacy_function_call"]),
    ],
)
def test_quirks(name: str, quirks: list[str]) -> None:
    assert list(of("chat_completions", name).quirks) == quirks


def test_a_final_response_that_repeats_nothing() -> None:
    assert of("responses", "completed_output_empty.sse").quirks == ("output_empty",)


@pytest.mark.parametrize(
    ("protocol", "name", "places"),
    [
        ("chat_completions", "openai_text.sse", ["last_chunk"]),
        ("chat_completions", "usage_every_chunk.sse", ["every_chunk"]),
        ("chat_completions", "usage_in_choice.sse", ["choice"]),
        ("chat_completions", "usage_x_groq.sse", ["x_groq"]),
        ("chat_completions", "openai_text.json", ["document"]),
        ("chat_completions", "finish_length.sse", []),
        ("responses", "text.sse", ["response"]),
        ("messages", "text.sse", ["message_start", "message_delta"]),
    ],
)
def test_where_usage_stands(protocol: str, name: str, places: list[str]) -> None:
    assert list(of(protocol, name).usage) == places


@pytest.mark.parametrize(
    ("protocol", "name", "forms"),
    [
        ("chat_completions", "deepseek_reasoning.sse", ["reasoning_content"]),
        ("chat_completions", "reasoning_both_names.sse", ["reasoning_content", "reasoning"]),
        ("chat_completions", "reasoning_details.sse", ["reasoning", "reasoning_details"]),
        ("chat_completions", "content_parts_thinking.sse", ["content_parts"]),
        ("chat_completions", "think_inline.sse", ["tags"]),
        ("chat_completions", "think_mentioned.sse", []),
        ("responses", "reasoning_summaries.sse", ["summary", "encrypted"]),
        ("responses", "reasoning_text.sse", ["reasoning_text"]),
        ("messages", "thinking_silent_and_redacted.sse", ["thinking", "redacted_thinking"]),
        ("messages", "thinking.json", ["thinking"]),
    ],
)
def test_forms_of_reasoning(protocol: str, name: str, forms: list[str]) -> None:
    assert list(of(protocol, name).reasoning) == forms


def test_the_models_name_can_be_written_as_json() -> None:
    assert "\ud83d" not in of("chat_completions", "lone_model_surrogate.sse").model


def test_everything_that_can_be_seen_has_its_words() -> None:
    quirks = {q for part in get_args(traits.Quirk) for q in get_args(part) or (part,)}
    assert quirks >= set(get_args(CallQuirk))
    assert quirks == set(QUIRKS)
    assert set(get_args(ReasoningForm)) == set(REASONING)
    assert set(get_args(UsagePlace)) == set(USAGE)


def test_reading_costs_what_the_bytes_cost() -> None:
    chunk = b'data: {"choices":[{"index":0,"delta":{"content":"ab"}}]}\n\n'
    assert_linear(lambda n: traits.read(chunk * n), 2000)
