"""The configuration: what a file may say, what is said of a file that may not, and what is never said."""

import os
import string
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from headrace.config import Config, ModelRef, home_dir, load, parse_model
from headrace.config.known import READY_MADE, SIGN_IN
from headrace.config.schema import (
    FileConfig,
    Moa,
    ModelConfig,
    PresetEntry,
    ProviderEntry,
    Sessions,
    Stall,
    Streaming,
    ToolRule,
    Tools,
    WhenBusy,
)
from headrace.errors import ConfigError
from headrace.limits import CONFIG_MAX_BYTES, CONFIG_MAX_PROBLEMS
from headrace.wire.dialect import Dialect

CANARY = "Kanarienvogel7Xq2Zt9Lm4"


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Config]:
    def _read(text: str | bytes, **env: str) -> Config:
        data = text.encode() if isinstance(text, str) else text
        (tmp_path / "config.yaml").write_bytes(data)
        return load(tmp_path, env)

    return _read


@pytest.fixture
def refusal(read: Callable[..., Config]) -> Callable[..., str]:
    def _refusal(text: str | bytes, **env: str) -> str:
        with pytest.raises(ConfigError) as caught:
            read(text, **env)
        return str(caught.value)

    return _refusal


# --- a file that is right -----------------------------------------------------------------------------


def test_no_file_is_an_empty_configuration(tmp_path):
    config = load(tmp_path / "nothing" / "here", {})
    assert config.model is None
    assert config.fallback_models == ()
    assert set(config.providers) == set(READY_MADE)
    assert config.streaming.retries == 2
    assert config.streaming.stall == Stall(connect_s=10, first_event_s=180, gap_s=90, no_progress_s=600)
    assert config.streaming.cursor == " ▉"


@pytest.mark.parametrize(
    "text", ["", "# nothing yet\n", "---\n", "providers:\nmodels:\nstreaming:\n  stall:\n"]
)
def test_sections_without_content_are_empty_ones(read, tmp_path, text):
    assert read(text) == load(tmp_path / "nothing", {})


def test_every_key_is_read(read):
    config = read(
        """
        model: openrouter:anthropic/claude-opus
        fallback_models: [openai:gpt-5.5, local, "local:/models/a b.gguf", "ollama:llama3.2:3b"]
        providers:
          house:
            protocol: messages
            base_url: https://models.example.org/v1/
            api_keys_env: [FIRST_KEY, SECOND_KEY]
            auth: bearer
            headers: {X-Team: "${TEAM}-1"}
        models:
          openrouter:anthropic/claude-opus: {max_tokens: 16000, temperature: null, reasoning_effort: high,
              streams: false, think: off, tool_markup: hermes, cumulative: true, context_tokens: 200000}
        streaming:
          enabled: false
          retries: 0
          stall: {connect_s: 1, first_event_s: 2.5, gap_s: 1e3, no_progress_s: 4}
          continue_cut: never
          transport: edit
          edit_interval: 0.5
          buffer_threshold: 1
          cursor: ""
        """
    )
    assert config.model == ModelRef("openrouter", "anthropic/claude-opus")
    assert [str(ref) for ref in config.fallback_models] == [
        "openai:gpt-5.5",
        "local",
        "local:/models/a b.gguf",
        "ollama:llama3.2:3b",
    ]
    house = config.provider("house")
    assert (house.protocol, house.base_url, house.auth) == (
        "messages",
        "https://models.example.org/v1",
        "bearer",
    )
    assert house.keys({"FIRST_KEY": "one", "SECOND_KEY": " two\n"}) == ("one", "two")
    assert house.sent_headers({"TEAM": "blue"}) == {"X-Team": "blue-1"}
    settings = config.model_settings(config.model)
    assert (settings.max_tokens, settings.reasoning_effort, settings.streams) == (16000, "high", False)
    assert settings.dialect == Dialect(think="off", tool_markup="hermes", cumulative=True)
    assert config.model_settings(ModelRef("openai", "gpt-5.5")) == ModelConfig()
    streaming = config.streaming
    assert (streaming.enabled, streaming.retries, streaming.continue_cut) == (False, 0, "never")
    assert streaming.stall == Stall(connect_s=1, first_event_s=2.5, gap_s=1000, no_progress_s=4)
    assert (streaming.transport, streaming.edit_interval, streaming.cursor) == ("edit", 0.5, "")


@pytest.mark.parametrize(
    ("written", "meant"), [("off", "off"), ("'off'", "off"), ("draft", "draft"), ("auto", "auto")]
)
def test_off_is_a_word_and_not_a_boolean(read, written, meant):
    assert read(f"streaming: {{transport: {written}}}").streaming.transport == meant


def test_an_anchor_may_be_used_again(read):
    config = read("models:\n  openai:a: &usual {max_tokens: 9}\n  openai:b: *usual\n")
    assert config.model_settings(ModelRef("openai", "b")).max_tokens == 9


def test_a_byte_order_mark_is_no_part_of_the_first_key(read):
    assert read(b"\xef\xbb\xbfmodel: local\r\n").model == ModelRef("local", "")


def test_keys_are_text_as_written(read):
    assert "123" in read("providers: {123: {base_url: 'http://h/v1'}}").providers
    assert "on" in read("providers: {on: {base_url: 'http://h/v1'}}").providers


# --- providers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", READY_MADE)
def test_a_ready_made_provider_needs_its_key_alone(read, name):
    provider = read(f"model: {name}:some/model").provider(name)
    assert provider.base_url.startswith(("https://", "http://127.0.0.1:"))
    if provider.base_url.startswith("http:"):
        assert provider.keys({}) == ()
        return
    (variable,) = provider.key_names
    assert provider.keys({variable: CANARY}) == (CANARY,)
    with pytest.raises(ConfigError, match=f"{name} needs {variable}, .* export {variable}="):
        provider.keys({})


def test_how_a_key_is_sent_follows_from_the_protocol(read):
    config = read(
        """
        providers:
          a: {base_url: "http://a/v1", protocol: messages, api_key_env: A}
          b: {base_url: "http://b/v1", api_key_env: B}
          c: {base_url: "http://c/v1"}
          ollama: {api_key_env: OLLAMA_KEY}
          deepseek: {protocol: messages, base_url: https://api.deepseek.com/anthropic/v1}
          anthropic: {protocol: chat_completions}
          openai: {api_key_env: null}
        """
    )
    sent = {
        name: config.provider(name).auth
        for name in ("a", "b", "c", "ollama", "deepseek", "anthropic", "openai")
    }
    assert sent == {
        "a": "x-api-key",
        "b": "bearer",
        "c": "none",
        "ollama": "bearer",
        "deepseek": "x-api-key",
        "anthropic": "bearer",
        "openai": "none",
    }


def test_an_entry_overrides_only_what_it_gives(read):
    config = read(
        """
        providers:
          anthropic: {headers: {X-Mine: "1"}}
          openai: {base_url: "http://127.0.0.1:9/v1"}
          gemini: {api_keys_env: [A, B]}
        """
    )
    assert config.provider("anthropic").headers == {"anthropic-version": "2023-06-01", "X-Mine": "1"}
    assert config.provider("anthropic").key_names == ("ANTHROPIC_API_KEY",)
    assert config.provider("openai").protocol == "responses"
    assert config.provider("openai").base_url == "http://127.0.0.1:9/v1"
    assert config.provider("gemini").key_names == ("A", "B")
    newer = read("providers: {anthropic: {headers: {Anthropic-Version: '2030-01-01'}}}").provider("anthropic")
    assert newer.headers == {"Anthropic-Version": "2030-01-01"}


def test_a_missing_or_broken_variable_is_named_and_its_value_is_not(read):
    provider = read(
        "providers: {a: {base_url: 'http://a', api_keys_env: [A, B], headers: {X: '${C}'}}}"
    ).provider("a")
    with pytest.raises(ConfigError, match=r"needs B, .* export B=\.\.\."):
        provider.keys({"A": CANARY, "B": "  "})
    for broken in (f"{CANARY}\n{CANARY}", f"{CANARY} x", f"“{CANARY}”"):
        with pytest.raises(ConfigError, match="A holds characters") as caught:
            provider.keys({"A": broken, "B": "b"})
        assert CANARY not in str(caught.value)
    with pytest.raises(ConfigError, match="needs C, "):
        provider.sent_headers({})
    with pytest.raises(ConfigError, match="C holds characters") as caught:
        provider.sent_headers({"C": f"{CANARY}\r\nX: y"})
    assert CANARY not in str(caught.value)
    assert provider.sent_headers({"C": "two words"}) == {"X": "two words"}


def test_signed_in_providers_lead_to_one_with_a_key(refusal, read):
    for name in SIGN_IN:
        for text in (f"model: {name}:some-model", f"providers: {{{name}: {{}}}}"):
            said = refusal(text)
            assert f"{name} sign" in said
            assert "sign" in said
            assert any(
                ready in said for ready in ("`openai`", "`anthropic`", "`gemini`", "`openrouter`", "`xai`")
            )
    own = read("model: codex:x\nproviders: {codex: {base_url: 'http://127.0.0.1:9/v1'}}")
    assert own.provider("codex").base_url == "http://127.0.0.1:9/v1"


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("{path: a}", "tool is missing"),
        ("{tool: terminal, path: a, command: ls}", "either path or command"),
        ("{tool: terminal, than: allow}", "did you mean `then`"),
    ],
)
def test_a_rule_that_cannot_fit_is_refused(refusal, rule, words):
    said = refusal(f"tools: {{rules: [{rule}]}}")
    assert "tools.rules[0]" in said
    assert words in said


def test_prices_are_a_section_or_null(read, refusal):
    model = "models: {'openai:x': {prices: %s}}"
    ref = ModelRef("openai", "x")
    assert read(model % "null").model_settings(ref).prices is None
    prices = read(model % "{input: 3, output: 15}").model_settings(ref).prices
    assert (prices.input, prices.output, prices.cache_read) == (3.0, 15.0, None)
    assert "did you mean `input`" in refusal(model % "{inptu: 3}")
    assert "keys with values" in refusal(model % "3")


# --- mixtures -----------------------------------------------------------------------------------------

REVIEW = """
moa:
  default_preset: review
  presets:
    review:
      reference_models:
        - {provider: openai, model: gpt-5.5}
        - {provider: local}
      aggregator: {provider: openrouter, model: anthropic/claude-opus-4.8}
"""


def test_a_mixture_is_read_with_its_defaults(read):
    config = read(f"model: 'moa:'\n{REVIEW}")
    assert config.model == ModelRef("moa", "review")
    preset = config.presets["review"]
    assert preset.references == (ModelRef("openai", "gpt-5.5"), ModelRef("local", ""))
    assert preset.aggregator == ModelRef("openrouter", "anthropic/claude-opus-4.8")
    assert (preset.deadline_s, preset.quorum, preset.fanout, preset.show_advice) == (30, 1, "turn", "summary")
    assert read(f"{REVIEW}      quorum: all\n").presets["review"].quorum == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("      quorum: 3", ["moa.presets.review.quorum", "at most 2"]),
        ("      quorum: 0", ["moa.presets.review.quorum", "or one of all"]),
        ("      deadline_s: -1", ["moa.presets.review.deadline_s"]),
        ("      fanout: never", ["moa.presets.review.fanout", "one of turn, step"]),
        ("      aggregater: {}", ["did you mean `aggregator`"]),
        ("model: moa:reviw", ['no mixture is named "reviw"; did you mean moa:review?']),
        ("fallback_models: ['moa:review']", ["fallback_models[0]", "cannot be a fallback"]),
        ("models: {'moa:review': {max_tokens: 3}}", ["its models have theirs"]),
    ],
)
def test_a_mixture_that_does_not_fit_is_refused_by_its_path(refusal, text, words):
    said = refusal(REVIEW + text)
    assert all(word in said for word in words), said


@pytest.mark.parametrize(
    ("slot", "words"),
    [
        ("{provider: moa, model: other}", "cannot be part of a mixture"),
        ("{provider: opnai, model: x}", 'did you mean "openai:x"?'),
        ("{provider: openai}", "model is missing"),
        ("{model: gpt-5.5}", "provider is missing"),
        ("{provider: openai, model: x, temperature: 1}", "unknown key"),
        ("openai:gpt-5.5", "keys with values"),
    ],
)
@pytest.mark.parametrize("place", ["reference_models", "aggregator"])
def test_an_invalid_slot_is_an_error_with_its_path(refusal, place, slot, words):
    ok = "{provider: openai, model: x}"
    references, aggregator = (f"[{ok}, {slot}]", ok) if place == "reference_models" else (f"[{ok}]", slot)
    said = refusal(
        f"model: moa:p\nmoa: {{presets: {{p: {{reference_models: {references}, aggregator: {aggregator}}}}}}}"
    )
    where = "moa.presets.p." + ("reference_models[1]" if place == "reference_models" else "aggregator")
    assert where in said
    assert words in said
    assert "no mixture" not in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model: moa:x", "no mixture is configured"),
        ("model: 'moa:'", "no mixture is configured"),
        ("moa: {presets: {p: {aggregator: {provider: local}}}}", "a list of 1 to"),
        ("moa: {presets: {p: {reference_models: [{provider: local}]}}}", "aggregator is missing"),
        ("moa: {default_preset: q}", "there is no preset"),
        (REVIEW.replace("default_preset: review", "") + "model: 'moa:'", "there are moa:review"),
    ],
)
def test_what_is_missing_of_a_mixture_is_said(refusal, text, words):
    assert words in refusal(text)


# --- models by reference ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("opnai:gpt-5.5", ['"opnai"', 'did you mean "openai:gpt-5.5"?']),
        ("Open_AI:x", ['did you mean "openai:x"?']),
        ("gpt-5.5", ["<provider>:<model>", '"gpt-5.5"']),
        ("openai/gpt-5.5", ['did you mean "openai:gpt-5.5"?']),
        ("openai", ["the model's name is missing"]),
        ("openai:", ["the model's name is missing"]),
        ("openai: gpt", ["<provider>:<model>"]),
        ("openai:a\nb", [r'"openai:a\nb"']),
        ("local:", ["local:<file>"]),
        ("moa", ["moa:<preset>"]),
        ("", ["<provider>:<model>"]),
        ("zzz:x", ["known are openai, anthropic", "<provider>:<model>"]),
    ],
)
def test_a_model_that_names_nothing_is_refused_with_what_was_meant(text, words):
    with pytest.raises(ConfigError) as caught:
        parse_model(text, load(Path("/nowhere"), {}))
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_a_reference_reads_back_as_itself():
    config = load(Path("/nowhere"), {})
    for text in ("local", "local:/a/b.gguf", "openrouter:a/b:free", "ollama:llama3.2:3b"):
        assert str(parse_model(text, config)) == text


@pytest.mark.parametrize(
    ("name", "words"), [("opnai", "openai"), ("codex", "sign"), ("local", "kind of model")]
)
def test_an_unknown_provider_is_refused_by_name(name, words):
    with pytest.raises(ConfigError, match=words):
        load(Path("/nowhere"), {}).provider(name)


# --- values that do not fit ---------------------------------------------------------------------------

WRONG = [
    ("modle: local", ["line 1: modle", "did you mean `model`?"]),
    ("streaming:\n  retrys: 1", ["line 2: streaming.retrys", "did you mean `retries`?"]),
    ("streaming: {stall: {gapS: 1}}", ["streaming.stall.gapS", "did you mean `gap_s`?"]),
    ("zzz: 1", ["zzz: unknown key; known here are model, fallback_models, providers"]),
    ("model: 5", ["model: expected a model as <provider>:<model>", "found 5"]),
    ("model: [a]", ["model: expected", "found a list"]),
    ("fallback_models: local", ["fallback_models: expected a list", 'found "local"']),
    ("fallback_models: [local, true]", ["fallback_models[1]: expected", "found true"]),
    ("fallback_models: [local, opnai:x]", ["fallback_models[1]: no provider", '"openai:x"']),
    ("providers: [a]", ["providers: expected keys with values", "found a list"]),
    ("providers: {'a:b': {base_url: 'http://a'}}", ['providers."a:b": expected a name of small letters']),
    ("providers: {a: {}}", ["providers.a: base_url is missing"]),
    ("providers: {open-router: {}}", ["base_url is missing", "did you mean `openrouter`?"]),
    ("providers: {a: 5}", ["providers.a: expected keys with values", "found 5"]),
    ("providers: {local: {base_url: 'http://a'}}", ["providers.local: the name local is taken"]),
    (
        "providers:\n  openrouter:\n    base_url: openrouter.ai/api",
        ["line 3: providers.openrouter.base_url: expected an address", 'found "openrouter.ai/api"'],
    ),
    ("providers: {a: {base_url: 'http://h/v1/chat/completions'}}", ["without /chat/completions"]),
    ("providers: {a: {base_url: 'http://h:70000/v1'}}", ["a.base_url: there is no such host and port"]),
    ("providers: {a: {base_url: 'http://[:::::]/v1'}}", ["a.base_url: there is no such host and port"]),
    (
        "providers: {a: {base_url: 'http://h/v1', protocol: grpc}}",
        ["one of chat_completions, responses, messages"],
    ),
    ("providers: {openai: {api_key_env: A, api_keys_env: [B]}}", ["give either api_key_env or api_keys_env"]),
    ("providers: {openai: {api_keys_env: []}}", ["api_keys_env: expected at least one name"]),
    ("providers: {ollama: {auth: bearer}}", ["providers.ollama.auth: a key is to be sent"]),
    ("providers: {ollama: {api_key: x}}", ["a key is not written into this file", "api_key_env"]),
    ("providers: {ollama: {headers: {'a b': x}}}", ["expected the name of an HTTP header"]),
    ("providers: {ollama: {headers: {a: 'x${lower}'}}}", ["headers.a: expected `${NAME}`"]),
    ("providers: {ollama: {headers: {a: 'x${OPEN'}}}", ["headers.a: expected `${NAME}`"]),
    ("models: {openai:x: {max_tokens: lots}}", ['models."openai:x".max_tokens: expected', 'found "lots"']),
    ("models: {openai:x: {max_tokens: 0}}", ["1 or more", "found 0"]),
    ("models: {openai:x: {max_tokens: 1.5}}", ["1 or more", "found 1.5"]),
    ("models: {openai:x: {temperature: 9}}", ["a number from 0 to 2 or null", "found 9"]),
    ("models: {openai:x: {temperature: .nan}}", ["a number from 0 to 2", 'found ".nan"']),
    ("models: {openai:x: {think: no}}", ["one of auto, anywhere, prefilled, off", 'found "no"']),
    ("models: {opnai:x: {}}", ['models."opnai:x": no provider', "did you mean"]),
    ("models: {gpt-5.5: {}}", ["<provider>:<model>"]),
    ("streaming: 5", ["streaming: expected keys with values", "found 5"]),
    ("streaming: {enabled: yes}", ["streaming.enabled: expected true or false", 'found "yes"']),
    ("streaming: {enabled: 1}", ["expected true or false", "found 1"]),
    ("streaming: {transport: false}", ["one of auto, draft, edit, off", "found false"]),
    ("streaming: {retries: 11}", ["a whole number from 0 to 10", "found 11"]),
    ("streaming: {retries: -1}", ["a whole number from 0 to 10", "found -1"]),
    ("streaming: {retries: 99999999999999999999999}", ["a whole number from 0 to 10"]),
    ("streaming: {stall: {gap_s: 0}}", ["a number of seconds (more than 0", "found 0"]),
    ("streaming: {stall: {gap_s: 1:30}}", ["a number of seconds", 'found "1:30"']),
    ("streaming: {stall: {gap_s: 1e99}}", ["a number of seconds", "found 1e+99"]),
    ("streaming: {stall: {gap_s: .inf}}", ["a number of seconds", 'found ".inf"']),
    ("streaming: {edit_interval: -1}", ["streaming.edit_interval: expected a number of seconds", "or null"]),
    ("streaming: {cursor: null}", ["streaming.cursor: expected a text", "found nothing"]),
    ('streaming: {cursor: "a\\nb"}', ["streaming.cursor: expected a text", r'found "a\nb"']),
    ('streaming: {cursor: "\\e[2J"}', [r'found "\x1b[2J"']),
    ("- model: local", ["line 1: expected keys with values", "found a list"]),
    ("just words", ["line 1: expected keys with values", 'found "just words"']),
]


@pytest.mark.parametrize(("text", "words"), WRONG, ids=[text for text, _ in WRONG])
def test_a_wrong_value_is_named_with_what_was_expected_and_found(refusal, tmp_path, text, words):
    said = refusal(text)
    assert said.startswith(str(tmp_path / "config.yaml"))
    assert all(word in said for word in words), said


def test_all_problems_are_told_at_once_in_the_order_of_the_file(refusal):
    said = refusal(
        "model: opnai:x\nstreaming:\n  retries: 99\n  retrys: 1\nmodels:\n  openai:y:\n    max_tokens: no\n"
    )
    assert "4 problems" in said
    assert [line.strip().split(":")[0] for line in said.splitlines()[1:]] == [
        "line 1",
        "line 3",
        "line 4",
        "line 7",
    ]


def test_the_list_of_problems_is_bounded(refusal):
    said = refusal("\n".join(f"zz{i}: 1" for i in range(500)))
    assert "500 problems" in said
    assert f"and {500 - CONFIG_MAX_PROBLEMS} more" in said
    assert len(said.splitlines()) == CONFIG_MAX_PROBLEMS + 2


# --- text that is no configuration --------------------------------------------------------------------

NOT_YAML = [
    ("a: b: c", ["line 1, column 5", "in quotes"]),
    ("model: local\n\tstreaming: {}", ["line 2, column 1", "tab", "spaces"]),
    ("fallback_models: [local", ["line 1", "never closed"]),
    ("streaming: {retries: 1", ["line 1", "never closed"]),
    ("model: 'local", ["line 1", "quote", "never closed"]),
    ("model: @local", ["line 1, column 8", "begins with `@`", "quotes"]),
    ("model: `x`", ["begins with ```"]),
    ("model: %x", ["begins with `%`"]),
    ('model: "\\q"', ["escape", "single quotes"]),
    ('model: "\\xZZ"', ["escape", "single quotes"]),
    ("model: local\nfoo\nstreaming: {}", ["line 3", "the line above has no `key: value` form"]),
    ("model: local\n streaming: {}", ["line 2", "indent"]),
    ("streaming:\n    retries: 1\n  gap: 2", ["line 3", "indentation"]),
    ("model: 'a' b", ["line 1, column 12", "quotes"]),
    ("model: - x", ["list entry"]),
    ("model: &", ["`&` or `*` must be in quotes"]),
    ("model: *x", ["no anchor of this name above"]),
    ("model: |x", ["`|` or `>`"]),
    ("model: !!python/object/apply:os.system [ls]", ["line 1, column 8", "tags"]),
    ("model: !x!y z", ["tags"]),
    ("%YAML 3.0\n---\nmodel: local", ["%YAML"]),
    ("%YAML 1." + "9" * 5000 + "\n---\na", ["this is not YAML"]),
    ('model: "\\UFFFFFFFF"', ["this is not YAML"]),
    ('model: "\\ud800"', ["line 1, column 8", "surrogate"]),
    ("model: local\n---\nmodel: local", ["line 2", "second document"]),
    ("---\n...\n---\nmodel: local", ["second document"]),
    ("? [a]\n: b", ["a key must be plain text"]),
    ("model: local\nmodel: moa:x", ["line 2, column 1: the key model is there twice, first on line 1"]),
    ("streaming: {retries: 1, 'retries': 2}", ["the key retries is there twice"]),
    ("a: &a [*a]", ["no anchor of this name above"]),
    ("a: " + "[" * 1000 + "]" * 1000, ["nested more than 32 levels"]),
    ("a: " + "[" * 20000, ["nested more than 32 levels"]),
    ("\n".join(["- " * 1000]), ["nested more than 32 levels"]),
    ("[" + "1," * 20000 + "]", ["more than 10,000 values"]),
    ("model: lo\x00cal", ["line 1", "control character (U+0000)"]),
    ("model: local\n\n# \x1b[2J", ["line 3", "control character (U+001B)"]),
]


@pytest.mark.parametrize(("text", "words"), NOT_YAML, ids=[text[:40] for text, _ in NOT_YAML])
def test_text_that_is_not_yaml_is_refused_in_plain_words(refusal, tmp_path, text, words):
    said = refusal(text)
    assert said.startswith(str(tmp_path / "config.yaml"))
    assert all(word in said for word in words), said


def test_aliases_that_double_each_other_are_refused_before_they_are_followed(refusal):
    lines = ["a0: &a0 [x, x]"] + [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 200)]
    assert "counting what aliases repeat" in refusal("\n".join(lines))


def test_a_file_that_cannot_be_read_is_refused_in_plain_words(refusal, tmp_path):
    assert "line 2: this is not UTF-8 text" in refusal(b"model: local\n# caf\xe9\n")
    assert "not UTF-8" in refusal("model: local".encode("utf-16"))
    assert "larger than 128 KiB" in refusal(b"#" * (CONFIG_MAX_BYTES + 1))


def test_what_is_no_file_is_refused_in_plain_words(tmp_path):
    (tmp_path / "folder" / "config.yaml").mkdir(parents=True)
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / "config.yaml")
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "config.yaml").symlink_to("gone.yaml")
    (tmp_path / "file").write_text("")
    for home, words in (
        ("folder", "found a folder"),
        ("pipe", "no file"),
        ("link", "not there"),
        ("file", "director"),
    ):
        with pytest.raises(ConfigError, match=words):
            load(tmp_path / home, {})
    with pytest.raises(ConfigError, match="cannot be read"):
        load(Path("x\0y"), {})
    with pytest.raises(ConfigError, match="cannot be read"):
        load(Path("x" * 5000), {})


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_refused_in_plain_words(tmp_path):
    (tmp_path / "config.yaml").write_text("")
    (tmp_path / "config.yaml").chmod(0)
    with pytest.raises(ConfigError, match="permissions"):
        load(tmp_path, {})


# --- the environment ----------------------------------------------------------------------------------


def test_the_environment_overrides_the_retries(read, tmp_path):
    assert read("streaming: {retries: 5}", HEADRACE_STREAM_RETRIES="0").streaming.retries == 0
    assert read("streaming: {retries: 5}", HEADRACE_STREAM_RETRIES="").streaming.retries == 5
    assert load(tmp_path / "nothing", {"HEADRACE_STREAM_RETRIES": "10"}).streaming.retries == 10


@pytest.mark.parametrize("wrong", ["11", "-1", "two", "1.0", " 1", "1_0", "٣", "9" * 5000])
def test_a_wrong_override_names_the_variable(refusal, wrong):
    said = refusal("", HEADRACE_STREAM_RETRIES=wrong)
    assert "HEADRACE_STREAM_RETRIES: expected a whole number from 0 to 10; found" in said
    assert len(said) < 300


def test_the_home_folder_comes_from_the_environment_alone():
    assert home_dir({"HEADRACE_HOME": "/srv/h", "HOME": "/home/u"}) == Path("/srv/h")
    assert home_dir({"HEADRACE_HOME": "~/h", "HOME": "/home/u"}) == Path("/home/u/h")
    assert home_dir({"HEADRACE_HOME": "", "HOME": "/home/u"}) == Path("/home/u/.headrace")
    with pytest.raises(ConfigError, match="export HEADRACE_HOME="):
        home_dir({})


# --- secrets ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        f"providers: {{openai: {{api_key: {CANARY}}}}}",
        f"providers: {{openai: {{api_key: [{CANARY}]}}}}",
        f"providers: {{openai: {{api_key_env: {CANARY}}}}}",
        f"providers: {{openai: {{api_key_env: gsk_{CANARY}}}}}",
        f"providers: {{openai: {{api_keys_env: [A, {CANARY}]}}}}",
        f"providers: {{openai: {{api_keys_env: {CANARY}}}}}",
        f"providers: {{openai: {{auth: {CANARY}}}}}",
        f"providers: {{openai: {{{CANARY}: x}}}}",
        f"providers: {{openai: {{{CANARY}: x, {CANARY}: y}}}}",
        f"providers: {{openai: {{base_url: 'https://me:{CANARY}@host/v1'}}}}",
        f"providers: {{openai: {{base_url: 'https://host/v1?k={CANARY}'}}}}",
        f"providers: {{openai: {{headers: {{X: '{CANARY}\\u00e9ä'}}}}}}",
        f"providers: {{openai: {{headers: {{X: '{CANARY}${{lower}}'}}}}}}",
        f"providers: {{openai: {{headers: {CANARY}}}}}",
        f"providers: {{openai: {CANARY}}}",
        f"model: {CANARY}",
        f"model: sk-{CANARY[:6]}",
        f"model: {CANARY}:x",
        f"streaming: {{retries: {CANARY}}}",
        f"{CANARY}: {CANARY}",
        f"{CANARY}",
        f"password: *{CANARY}",
        f"password: !{CANARY} x",
        f"password: '{CANARY}",
        f"password: {CANARY}: x",
        f"password: {{{CANARY}",
        f"{CANARY}\nx: y",
    ],
)
def test_what_may_be_a_secret_is_never_shown(refusal, text):
    said = refusal(text)
    assert CANARY not in said
    assert CANARY[:6] not in said


def test_a_printed_configuration_shows_no_secret(read):
    config = read(
        f"providers:\n"
        f"  openai: {{headers: {{X-Key: {CANARY}}}}}\n"
        f"  a: {{base_url: 'http://a', headers: {{X: {CANARY}}}}}\n"
    )
    provider = config.provider("openai")
    assert provider.keys({"OPENAI_API_KEY": CANARY}) == (CANARY,)
    assert CANARY not in repr(config)
    assert CANARY not in str(provider)
    assert CANARY not in str(provider.__rich_repr__())
    assert "OPENAI_API_KEY" in repr(provider)
    assert CANARY not in repr(READY_MADE)


def test_a_wrong_override_that_looks_secret_is_not_shown(refusal):
    assert CANARY not in refusal("", HEADRACE_STREAM_RETRIES=CANARY)


# --- whatever is written ------------------------------------------------------------------------------

KEYS = st.sampled_from(
    [
        *FileConfig.__struct_fields__,
        *("openai", "ollama", "local", "codex", "x", "openai:gpt", "local:/x", "moa:p", "nope:x"),
        *("protocol", "base_url", "api_key_env", "api_keys_env", "auth", "headers", "max_tokens", "think"),
        *("temperature", "tool_markup", "retries", "stall", "gap_s", "transport", "cursor", "enabled"),
    ]
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=12),
    KEYS,
    st.sampled_from(
        ["https://h/v1", "http://h:1/", "http://[::]/", "messages", "A_KEY", "off", "bearer", "${A}"]
    ),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(max_size=8), inner, max_size=6)
    ),
    max_leaves=25,
)


def loads_or_refuses(home: Path, data: bytes) -> None:
    (home / "config.yaml").write_bytes(data)
    try:
        config = load(home, {})
    except ConfigError as error:
        said = str(error)
    else:
        said = f"{home} is fine"
        assert all(provider.base_url for provider in config.providers.values())
        for ref in (config.model, *config.fallback_models, *config.models):
            assert ref is None or parse_model(str(ref), config) == ref
    assert said.startswith(str(home))
    assert said.encode(), "it can be printed"


@given(st.dictionaries(KEYS, TREES, max_size=5) | TREES)
def test_any_data_loads_or_is_refused(tmp_path_factory, data):
    text = yaml.safe_dump(data, allow_unicode=True)
    loads_or_refuses(tmp_path_factory.getbasetemp(), text.encode("utf-8", "surrogatepass"))


@given(
    st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass"))
)
def test_any_bytes_load_or_are_refused(tmp_path_factory, data):
    loads_or_refuses(tmp_path_factory.getbasetemp(), data)


@given(
    st.text(alphabet=string.ascii_lowercase[:4] + "0123456789 \n\t:-[]{}&*!|>'\"\\#%@`?,.~x", max_size=120)
)
def test_anything_made_of_yaml_signs_loads_or_is_refused(tmp_path_factory, text):
    loads_or_refuses(tmp_path_factory.getbasetemp(), text.encode())


def test_importing_the_room_imports_no_yaml():
    code = "import sys, headrace.config; sys.exit('yaml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- what the documentation says ----------------------------------------------------------------------

GUIDE = (Path(__file__).parent.parent / "docs" / "configuration.md").read_text(encoding="utf-8")


def test_the_examples_of_the_documentation_load(read):
    examples = [block.split("```")[0] for block in GUIDE.split("```yaml\n")[1:]]
    assert len(examples) >= 5
    for example in examples:
        read(example)
    assert read(examples[-1]).streaming == read("").streaming


def test_the_documentation_has_every_key_and_every_ready_made_provider():
    sections = (
        ProviderEntry, ModelConfig, Streaming, Stall, Tools, ToolRule, Sessions, WhenBusy, Moa, PresetEntry
    )  # fmt: skip
    for section in sections:
        for key in section.__struct_fields__:
            assert f"| `{key}` |" in GUIDE or key == "stall"
    for name, entry in READY_MADE.items():
        key = f"`{entry.api_key_env}`" if isinstance(entry.api_key_env, str) else "nothing"
        assert f"| `{name}` | {key} | `{entry.protocol}` | `{entry.base_url}` |" in GUIDE
