"""`headrace config`: a first file from a few answers, what a file comes to, and what is never written or shown."""

import io
import os
import re
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.config import ModelRef, Streaming, load
from headrace.config.known import READY_MADE
from headrace.config.offers import EXAMPLES, offers
from headrace.config.template import MODEL_NAME_MAX_CHARS, Answers, answers, render
from headrace.doors.terminal.config import check, init, show_path
from headrace.doors.terminal.questions import TRIES_MAX
from headrace.errors import ConfigError

CANARY = "Kanarienvogel7Xq2Zt9Lm4"
KNOWN = load(Path("/nothing/is/here"), {})


class Said(NamedTuple):
    status: int
    out: str
    err: str


def asked(home: Path, typed: str = "", env: dict[str, str] | None = None, **flags: object) -> Said:
    out, err = io.StringIO(), io.StringIO()
    status = init(home, env or {}, io.StringIO(typed), out, err, **flags)  # type: ignore[arg-type]
    return Said(status, out.getvalue(), err.getvalue())


def checked(home: Path, text: str | None = None, **env: str) -> Said:
    if text is not None:
        (home / "config.yaml").write_text(text, encoding="utf-8")
    out, err = io.StringIO(), io.StringIO()
    return Said(check(home, env, out, err), out.getvalue(), err.getvalue())


def refused(home: Path, **flags: object) -> str:
    with pytest.raises(ConfigError) as caught:
        asked(home, **flags)  # type: ignore[arg-type]
    return str(caught.value)


def names(home: Path) -> list[str]:
    return sorted(path.name for path in home.iterdir())


# --- the text -----------------------------------------------------------------------------------------

ODD = [
    *"abcXYZ019.-_/:'\"#@`*&!|>%[]{},?\\~= ",
    *("é", "晴", "🦔", ": ", " #", "''", "- ", "<<", "null", "\u00df"),
]
MODEL_NAMES = st.one_of(
    st.lists(st.sampled_from(ODD), min_size=1, max_size=30).map("".join),
    st.text(min_size=1, max_size=30),
    st.sampled_from(["true", "1", "1:30", "null", "a: b", "a #b", "'", "''", "-", "? x", "x" * 400]),
).filter(lambda name: name.isprintable() and name == name.strip())
REFS = st.one_of(
    st.just(ModelRef("local", "")),
    st.builds(ModelRef, st.sampled_from(["local", *READY_MADE]), MODEL_NAMES),
)
ANSWERS = st.builds(Answers, REFS, st.lists(REFS, max_size=4).map(tuple))


@given(ANSWERS)
def test_the_text_loads_to_the_same_answers(tmp_path_factory, wanted):
    home = tmp_path_factory.getbasetemp()
    (home / "config.yaml").write_text(render(wanted, KNOWN), encoding="utf-8")
    config = load(home, {})
    assert config.model == wanted.model
    assert config.fallback_models == wanted.fallbacks
    assert (config.providers, config.models, config.streaming) == (KNOWN.providers, {}, Streaming())


@given(ANSWERS)
def test_the_examples_in_the_text_are_right_and_hold_the_defaults(tmp_path_factory, wanted):
    home = tmp_path_factory.getbasetemp()
    text = re.sub(r"^#(?=[^# \n]| {2,}\S)", "", render(wanted, KNOWN), flags=re.MULTILINE)
    (home / "config.yaml").write_text(text, encoding="utf-8")
    config = load(home, {})
    assert config.model_settings(wanted.model).max_tokens == 16000
    assert config.provider("house").key_names == ("HOUSE_KEY",)
    assert config.streaming == Streaming()


@pytest.mark.parametrize(
    ("model", "fallbacks", "words"),
    [
        ("gpt-5.5", (), "a model is written"),
        ("opneai:x", (), "openai:x"),
        ("codex:x", (), "ChatGPT"),
        ("openai:a\nb", (), "a model is written"),
        ("openai:" + "x" * MODEL_NAME_MAX_CHARS, (), f"at most {MODEL_NAME_MAX_CHARS}"),
        ("local", ("nope:x",), "no provider is named"),
        ("local", ("local",), "its own fallback"),
    ],
)
def test_answers_that_cannot_be_meant_are_refused(model, fallbacks, words):
    with pytest.raises(ConfigError, match=re.escape(words)):
        answers(model, fallbacks, KNOWN)


def test_a_fallback_given_twice_is_one():
    assert answers("openai:x", ("local", "local"), KNOWN).fallbacks == (ModelRef("local", ""),)


def test_every_provider_is_offered_with_an_example():
    assert set(EXAMPLES) == set(READY_MADE)
    for offer in offers(KNOWN, {}):
        if offer.name != "local":
            assert answers(f"{offer.name}:{offer.example}", (), KNOWN)


def test_what_works_at_once_is_offered_first():
    env = {"GROQ_API_KEY": CANARY, "ANTHROPIC_API_KEY": CANARY, "OPENAI_API_KEY": " "}
    offered = [offer.name for offer in offers(KNOWN, env)]
    assert offered[:4] == ["anthropic", "groq", "local", "openai"]
    assert sorted(offered) == sorted(["local", *READY_MADE])


# --- init ---------------------------------------------------------------------------------------------


def test_enter_alone_gives_a_working_configuration(tmp_path):
    home = tmp_path / "deep" / "home"
    said = asked(home, "\n\n\n", {"OPENAI_API_KEY": CANARY})
    assert said.status == 0
    assert load(home, {}).model == ModelRef("openai", "gpt-5.5")
    assert load(home, {}).fallback_models == ()
    assert f"{home}/config.yaml is written." in said.out
    assert said.out.endswith('Try: headrace ask "Hi"\n')
    assert stat.S_IMODE((home / "config.yaml").stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert names(home) == ["config.yaml"]


def test_enter_alone_without_any_key_is_the_embedded_model(tmp_path):
    said = asked(tmp_path, "\n")
    assert (said.status, load(tmp_path, {}).model) == (0, ModelRef("local", ""))
    assert "export" not in said.out


@pytest.mark.parametrize("provider", ["3", "anthropic", "Anthropic"])
def test_everything_can_be_answered(tmp_path, provider):
    said = asked(tmp_path, f"{provider}\n claude-x:1 \nYes\n")
    config = load(tmp_path, {})
    assert config.model == ModelRef("anthropic", "claude-x:1")
    assert config.fallback_models == (ModelRef("local", ""),)
    assert "needs ANTHROPIC_API_KEY, which is not set: export ANTHROPIC_API_KEY=..." in said.out
    assert said.out.endswith('Then try: headrace ask "Hi"\n')


def test_a_model_may_be_given_with_its_provider(tmp_path):
    asked(tmp_path, "openai\nopenai:gpt-x\n\n")
    assert load(tmp_path, {}).model == ModelRef("openai", "gpt-x")


def test_a_last_line_needs_no_line_break(tmp_path):
    assert asked(tmp_path, "openai\ngpt-x\ny").status == 0


def test_an_answer_that_does_not_fit_is_asked_for_again(tmp_path):
    said = asked(tmp_path, "99\nantropic\ncodex\nollama\na\x07b\nqwen3:8b\nperhaps\nn\n")
    assert said.status == 0
    assert load(tmp_path, {}).model == ModelRef("ollama", "qwen3:8b")
    for words in (
        "the numbers go from 1 to 13",
        "did you mean",
        "ChatGPT",
        "a model is written",
        "  y or n\n",
    ):
        assert words in said.out


def test_answers_that_never_fit_end_the_questions(tmp_path):
    said = asked(tmp_path, "what\n" * 100)
    assert (said.status, names(tmp_path)) == (1, [])
    assert f"Nothing was written. (no answer fitted in {TRIES_MAX} tries)" in said.err


@pytest.mark.parametrize("typed", ["", "openai\n", "openai\ngpt-x\n"])
def test_the_end_of_the_input_leaves_without_writing(tmp_path, typed):
    said = asked(tmp_path / "home", typed)
    assert (said.status, names(tmp_path)) == (1, [])
    assert "Nothing was written. (the input ended)" in said.err


def test_input_that_is_not_text_leaves_without_writing(tmp_path):
    out, err = io.StringIO(), io.StringIO()
    stdin = io.TextIOWrapper(io.BytesIO(b"caf\xe9\n"), encoding="utf-8")
    assert init(tmp_path, {}, stdin, out, err) == 1
    assert "Nothing was written. (what came in is not UTF-8 text)" in err.getvalue()


class Interrupted(io.StringIO):
    """A person who answers so much and then presses Ctrl-C."""

    def readline(self, size: int | None = -1, /) -> str:  # type: ignore[override]
        if line := super().readline(-1 if size is None else size):
            return line
        raise KeyboardInterrupt


def test_ctrl_c_leaves_without_writing(tmp_path):
    err = io.StringIO()
    assert init(tmp_path, {}, Interrupted("openai\n"), io.StringIO(), err) == 130
    assert "Nothing was written." in err.getvalue()
    assert names(tmp_path) == []


def test_flags_ask_nothing(tmp_path):
    said = asked(tmp_path, model="openai:a 'b' #c: d", fallbacks=["local", "ollama:llama3.2:3b"])
    config = load(tmp_path, {})
    assert config.model == ModelRef("openai", "a 'b' #c: d")
    assert [str(ref) for ref in config.fallback_models] == ["local", "ollama:llama3.2:3b"]
    assert "Which provider" not in said.out


def test_flags_that_do_not_fit_write_nothing(tmp_path):
    assert "a model is written" in refused(tmp_path, model="gpt")
    assert "--fallback needs --model" in refused(tmp_path, fallbacks=["local"])
    assert "HEADRACE_STREAM_RETRIES" in refused(
        tmp_path, env={"HEADRACE_STREAM_RETRIES": "many"}, model="local"
    )
    assert names(tmp_path) == []


def test_a_file_that_is_there_stays(tmp_path):
    (tmp_path / "config.yaml").write_text("model: local\n")
    assert "--force" in refused(tmp_path, model="openai:x")
    assert (tmp_path / "config.yaml").read_text() == "model: local\n"
    assert names(tmp_path) == ["config.yaml"]


def test_force_keeps_the_old_file_beside_the_new_one(tmp_path):
    (tmp_path / "config.yaml").write_text(f"not: even right {CANARY}\n")
    said = asked(tmp_path, model="openai:x", force=True)
    assert load(tmp_path, {}).model == ModelRef("openai", "x")
    assert (tmp_path / "config.yaml.bak").read_text() == f"not: even right {CANARY}\n"
    assert stat.S_IMODE((tmp_path / "config.yaml.bak").stat().st_mode) == 0o600
    assert f"The old one is kept as {tmp_path}/config.yaml.bak." in said.out
    assert names(tmp_path) == ["config.yaml", "config.yaml.bak"]
    assert CANARY not in said.out + said.err


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "dotfiles.yaml").write_text("model: local\n")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.yaml").symlink_to("../dotfiles.yaml")
    asked(tmp_path / "home", model="openai:x", force=True)
    assert (tmp_path / "home" / "config.yaml").is_symlink()
    assert "model: openai:x" in (tmp_path / "dotfiles.yaml").read_text()
    assert (tmp_path / "home" / "config.yaml.bak").read_text() == "model: local\n"


# --- a disk that refuses ------------------------------------------------------------------------------


@contextmanager
def files_end_after(size: int) -> Iterator[None]:
    """Stands in for a full disk: the system refuses every further byte of a file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [0, 100])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path, size):
    (tmp_path / "config.yaml").write_text("model: local\n")
    with files_end_after(size):
        words = refused(tmp_path, model="openai:x", force=True)
    assert words.startswith(f"{tmp_path}/config.yaml: it cannot be written: File too large.")
    assert (tmp_path / "config.yaml").read_text() == "model: local\n"
    assert set(names(tmp_path)) <= {"config.yaml", "config.yaml.bak"}


def test_a_home_that_is_no_folder_is_told_before_anything_is_asked(tmp_path):
    (tmp_path / "file").write_text("")
    assert "found something that is no folder" in refused(tmp_path / "file")
    assert "Not a directory" in refused(tmp_path / "file" / "home", model="local")
    assert "the path is not one" in refused(Path("x\0y"), model="local")
    (tmp_path / "home" / "config.yaml").mkdir(parents=True)
    assert "found a folder" in refused(tmp_path / "home", model="local", force=True)


def test_a_home_that_cannot_be_made_is_told_in_plain_words():
    words = refused(Path("/proc/no/home"), model="local")
    assert re.match(
        r"/proc/no/home/config\.yaml: it cannot be written: .+\. What was there is as it was\.", words
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_home_that_may_not_be_written_is_told_in_plain_words(tmp_path):
    tmp_path.chmod(0o500)
    assert "it cannot be written: Permission denied" in refused(tmp_path, model="local")


# --- path and check -----------------------------------------------------------------------------------


def test_the_path_is_told_whether_or_not_the_file_is_there(tmp_path):
    out, err = io.StringIO(), io.StringIO()
    assert show_path(tmp_path, out, err) == 0
    assert out.getvalue() == f"{tmp_path}/config.yaml\n"
    assert "no such file" in err.getvalue()
    (tmp_path / "config.yaml").write_text("nonsense: true")
    err = io.StringIO()
    assert show_path(tmp_path, io.StringIO(), err) == 0
    assert err.getvalue() == ""


EVERYTHING = """
model: anthropic:claude-x
fallback_models: [local, house:x, anthropic:other]
providers:
  house: {base_url: "http://h:1/a-secret-path", headers: {X-Key: "CANARY", X-Team: "${TEAM}"}, api_keys_env: [A_KEY, B_KEY]}
streaming: {enabled: false, retries: 5, stall: {gap_s: 30}, cursor: "", edit_interval: 0.5}
""".replace("CANARY", CANARY)


def test_check_tells_what_a_file_comes_to(tmp_path):
    said = checked(tmp_path, EVERYTHING, A_KEY=CANARY)
    assert said.status == 0
    differences = [
        "enabled is false (default true)",
        "retries is 5 (default 2)",
        "stall.gap_s is 30 (default 90)",
        "edit_interval is 0.5 (default null)",
        'cursor is "" (default " ▉")',
    ]
    assert said.out.splitlines() == [
        f"{tmp_path}/config.yaml is right.",
        "model: anthropic:claude-x",
        "fallbacks: local, house:x, anthropic:other",
        "providers in use:",
        "  anthropic  api.anthropic.com, ANTHROPIC_API_KEY is not set",
        "  house      h:1, A_KEY is set, B_KEY is not set",
        f"streaming: {', '.join(differences)}",
    ]
    assert said.err.splitlines() == [
        "warning: The provider anthropic needs ANTHROPIC_API_KEY, which is not set: export ANTHROPIC_API_KEY=...",
        "warning: The provider house needs B_KEY, which is not set: export B_KEY=...",
        "warning: The provider house needs TEAM, which is not set: export TEAM=...",
    ]


def test_check_warns_of_a_key_that_cannot_be_sent(tmp_path):
    said = checked(tmp_path, "model: openai:x", OPENAI_API_KEY=f"{CANARY} {CANARY}")
    assert "warning: OPENAI_API_KEY holds characters that cannot be sent" in said.err
    assert CANARY not in said.err


def test_check_warns_of_an_embedded_model_that_is_not_there(tmp_path):
    said = checked(
        tmp_path, "model: local:large\nfallback_models: [local:tiny, local:/no/such.gguf, local]\n"
    )
    assert said.status == 0
    first, second = said.err.splitlines()
    assert first.startswith("warning: There is no embedded model called 'large'. Did you mean larger?")
    assert second == "warning: /no/such.gguf: there is no such file. Check the path after local:"


def test_check_without_a_file_tells_the_defaults(tmp_path):
    said = checked(tmp_path)
    assert (said.status, said.err) == (0, "")
    assert f"There is no {tmp_path}/config.yaml; everything has its default." in said.out
    assert "model: local" in said.out
    assert "streaming: as by default" in said.out


def test_check_tells_what_the_environment_overrides(tmp_path):
    assert "retries is 0 (default 2)" in checked(tmp_path, HEADRACE_STREAM_RETRIES="0").out


def test_check_tells_what_is_wrong_as_it_is(tmp_path):
    said = checked(tmp_path, f"modle: openai:x\nproviders: {{openai: {{api_key: {CANARY}}}}}\n")
    assert (said.status, said.out) == (2, "")
    assert said.err.startswith(f"{tmp_path}/config.yaml: 2 problems.\n  line 1: modle: unknown key")
    assert CANARY not in said.err


def test_what_init_wrote_is_right(tmp_path):
    asked(tmp_path, model="groq:a/b", fallbacks=["local"])
    said = checked(tmp_path, GROQ_API_KEY=CANARY)
    assert (said.status, said.err) == (0, "")
    assert "GROQ_API_KEY is set" in said.out


# --- secrets ------------------------------------------------------------------------------------------


def test_no_key_is_ever_shown_or_written(tmp_path):
    env = {entry.api_key_env: CANARY for entry in READY_MADE.values() if isinstance(entry.api_key_env, str)}
    said = asked(tmp_path, f"{CANARY}\nopenai\n\n\n", env)
    assert said.status == 0
    everything = (*said, *checked(tmp_path, **env), *checked(tmp_path, EVERYTHING, **env))
    assert CANARY not in "".join(map(str, everything))
    asked(tmp_path / "other", "openai\n\n\n", env)
    assert CANARY not in (tmp_path / "other" / "config.yaml").read_text()


def test_a_key_pasted_as_the_model_is_asked_about_and_not_written(tmp_path):
    said = asked(tmp_path, f"openai\nsk-{CANARY}\n\ngpt-x\n\n")
    assert "looks like a key" in said.out
    assert load(tmp_path, {}).model == ModelRef("openai", "gpt-x")
    assert CANARY not in said.out + (tmp_path / "config.yaml").read_text()


def test_a_model_that_looks_like_a_key_can_be_meant(tmp_path):
    asked(tmp_path, "ollama\nsk-odd-name\ny\n\n")
    assert load(tmp_path, {}).model == ModelRef("ollama", "sk-odd-name")
    said = asked(tmp_path, model=f"ollama:sk-{CANARY}", force=True)
    assert "looks like a key" in said.err
    assert CANARY not in said.out + said.err
