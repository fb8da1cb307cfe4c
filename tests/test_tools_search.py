"""Searching real folders, with ripgrep and without: both find the same and are bounded the same."""

import asyncio
import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.limits import SEARCH_LINE_MAX_CHARS, SEARCH_MAX_MATCHES, SEARCH_TEXT_MAX_CHARS
from headrace.ports import Deadline, ToolResult
from headrace.runtime.clock import SystemClock
from headrace.tools.grepping import glob_pattern
from headrace.tools.search_files import SearchFiles
from tests.tooling import ENV, bare, gone, marked, there

SEARCH = SearchFiles()
WITHOUT = {**ENV, "PATH": "/nowhere"}
"""Where no ripgrep is."""
WAYS = [
    pytest.param(ENV, id="ripgrep", marks=pytest.mark.skipif(shutil.which("rg") is None, reason="needs rg")),
    pytest.param(WITHOUT, id="without"),
]
ways = pytest.mark.parametrize("env", WAYS)


async def found(
    folder: Path, env: dict[str, str], clock: SystemClock | None = None, **arguments: str
) -> ToolResult:
    return await SEARCH.run(arguments, bare(folder, SEARCH, arguments, env=env, clock=clock))


async def lines(folder: Path, env: dict[str, str], **arguments: str) -> list[str]:
    result = await found(folder, env, **arguments)
    assert result.ok, result.text
    return result.text.splitlines()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for path, text in {
        "a.py": "x = 1\n# TODO: rename\n",
        "b.md": "todo later\r\nTODO now\r\n",
        "src/deep/c.py": "TODO deep",
        "src/d.ts": "// TODO ts\n",
        ".hidden/e.py": "TODO hidden\n",
        ".env": "TODO secret\n",
        "node_modules/f.py": "nothing\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(text.encode())
    (tmp_path / "g.bin").write_bytes(b"\0\1TODO binary\n")
    (tmp_path / "latin.txt").write_bytes(b"TODO caf\xe9\n")
    return tmp_path


@ways
async def test_lines_with_their_places_in_the_order_of_paths(tree: Path, env: dict[str, str]) -> None:
    assert await lines(tree, env, pattern="TODO") == [
        "a.py:2: # TODO: rename",
        "b.md:2: TODO now",
        "latin.txt:1: TODO caf\ufffd",
        "src/d.ts:1: // TODO ts",
        "src/deep/c.py:1: TODO deep",
    ]  # fmt: skip


@ways
@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({"pattern": "(?i)todo", "path": "b.md"}, ["b.md:1", "b.md:2"]),
        ({"pattern": "TODO", "path": "src"}, ["src/d.ts:1", "src/deep/c.py:1"]),
        ({"pattern": "TODO", "glob": "*.py"}, ["a.py:2", "src/deep/c.py:1"]),
        ({"pattern": "TODO", "glob": "**/*.{ts,md}"}, ["b.md:2", "src/d.ts:1"]),
        ({"pattern": r"TODO\b.*(now|ts)$"}, ["b.md:2", "src/d.ts:1"]),
        ({"pattern": "TODO", "path": "src/../a.py"}, ["a.py:2"]),
        ({"pattern": "-e", "path": "."}, []),
        ({"pattern": "--files"}, []),
        ({"pattern": "nowhere"}, []),
    ],
)
async def test_what_is_asked_for(
    tree: Path, env: dict[str, str], arguments: dict[str, str], names: list[str]
) -> None:
    told = await lines(tree, env, **arguments)
    if not names:
        assert told == ["No line matches."]
    else:
        assert [":".join(line.split(":")[:2]) for line in told] == names


@ways
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"pattern": "("}, "cannot be read"),
        ({"pattern": "a\nb"}, "for one line"),
        ({"pattern": "a\0b"}, "zero byte"),
        ({"pattern": "x", "glob": "a\0--pre=sh"}, "zero byte"),
        ({"pattern": "x", "path": "missing"}, "No such file or directory"),
    ],
)
async def test_what_cannot_be_searched_for(
    tree: Path, env: dict[str, str], arguments: dict[str, str], said: str
) -> None:
    result = await found(tree, env, **arguments)
    assert not result.ok
    assert said in result.text


@ways
@pytest.mark.parametrize("argument", ["pattern", "glob", "path"])
async def test_no_argument_is_an_option_or_a_command(tree: Path, env: dict[str, str], argument: str) -> None:
    (tree / "evil.sh").write_text("#!/bin/sh\ntouch " + str(tree / "pwned") + "\ncat\n")
    (tree / "evil.sh").chmod(0o755)
    for value in ("--pre=./evil.sh", "-f/etc/passwd", "$(touch pwned)", "; touch pwned", "`touch pwned`"):
        arguments = {"pattern": "TODO", argument: value}
        result = await found(tree, env, **arguments)
        assert "root:" not in result.text
    assert not (tree / "pwned").exists()


@ways
async def test_links_lead_nowhere(tmp_path: Path, env: dict[str, str]) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("TODO secret\n")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "folder").symlink_to(tmp_path / "outside")
    (inside / "file.txt").symlink_to(tmp_path / "outside" / "secret.txt")
    (inside / "loop").symlink_to(inside)
    assert await lines(inside, env, pattern="TODO") == ["No line matches."]


@ways
@pytest.mark.parametrize("what", ["folder", "file"])
async def test_a_link_that_took_the_place_of_what_was_judged_is_not_followed(
    tmp_path: Path, env: dict[str, str], what: str
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "notes").write_text("TODO secret\n")
    inside = tmp_path / "inside"
    (inside / "sub").mkdir(parents=True)
    (inside / "sub" / "notes").write_text("TODO mine\n")
    path = "sub" if what == "folder" else "sub/notes"
    arguments = {"pattern": "TODO", "path": path}
    judged = bare(inside, SEARCH, arguments, env=env)
    shutil.rmtree(inside / "sub")
    if what == "folder":
        (inside / "sub").symlink_to(tmp_path / "outside")
    else:
        (inside / "sub").mkdir()
        (inside / "sub" / "notes").symlink_to(tmp_path / "outside" / "notes")
    result = await SEARCH.run(arguments, judged)
    assert "secret" not in result.text
    assert not result.ok
    assert "link" in result.text


@ways
async def test_pipes_devices_and_what_may_not_be_read_are_passed_over(
    tree: Path, env: dict[str, str]
) -> None:
    os.mkfifo(tree / "pipe")
    (tree / "locked.txt").write_text("TODO locked\n")
    (tree / "locked.txt").chmod(0)
    told = await asyncio.wait_for(lines(tree, env, pattern="TODO rename|: rename"), 10)
    assert told == ["a.py:2: # TODO: rename"]


async def test_what_ripgrep_could_not_read_is_said_beside_what_it_found(tmp_path: Path) -> None:
    """It ends with the status of an error then, and was told to say nothing of it."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "rg").write_text("#!/bin/sh\nprintf './a.py\\0002:found\\n'\nexit 2\n")
    (programs / "rg").chmod(0o755)
    told = await lines(tmp_path, {**ENV, "PATH": str(programs)}, pattern="found")
    assert told == ["a.py:2: found", "[some files or folders could not be read]"]


@ways
async def test_names_of_every_kind_come_through(tmp_path: Path, env: dict[str, str]) -> None:
    for name in ("with space", "-n", "a:1:b", "ü", "\u202e"):
        (tmp_path / name).write_text("here\n")
    (tmp_path / os.fsdecode(b"\xff")).write_text("here\n")
    told = await lines(tmp_path, env, pattern="here")
    assert sorted(told) == sorted(
        ["-n:1: here", "a:1:b:1: here", "with space:1: here", "ü:1: here", "\u202e:1: here", "\ufffd:1: here"]
    )


@ways
async def test_folders_nested_without_end_are_gone_into_as_far_as_is_bounded(
    tmp_path: Path, env: dict[str, str]
) -> None:
    deep = os.open(tmp_path, os.O_RDONLY)
    for _ in range(400):
        os.mkdir("d", dir_fd=deep)
        below = os.open("d", os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = below
    os.close(deep)
    (tmp_path / "d" / "z.txt").write_text("TODO\n")
    assert await lines(tmp_path, env, pattern="TODO") == ["d/z.txt:1: TODO"]


# --- bounds


@ways
async def test_very_many_matches_are_bounded_and_said(tmp_path: Path, env: dict[str, str]) -> None:
    (tmp_path / "f").write_text("TODO\n" * 1_000_000)
    told = await lines(tmp_path, env, pattern="TODO")
    assert len(told) == SEARCH_MAX_MATCHES + 1
    assert (
        told[-1] == "[the first 200 lines; there are more: a narrower pattern, path or glob finds the rest]"
    )


@ways
async def test_very_long_lines_are_bounded(tmp_path: Path, env: dict[str, str]) -> None:
    for n in range(300):
        (tmp_path / f"{n:03}").write_text("TODO " + "x" * 100_000 + "\n")
    result = await found(tmp_path, env, pattern="TODO")
    assert len(result.text) < SEARCH_TEXT_MAX_CHARS + 200
    assert max(map(len, result.text.splitlines())) < SEARCH_LINE_MAX_CHARS + 100


@ways
async def test_a_gigabyte_without_a_line_end_is_searched_within_its_bounds(
    tmp_path: Path, env: dict[str, str]
) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 30)
    (tmp_path / "z.txt").write_text("TODO\n")
    assert await lines(tmp_path, env, pattern="TODO") == ["z.txt:1: TODO"]


class Hasty(SystemClock):
    def timeout(self, delay_s: float | None) -> Deadline:
        return super().timeout(None if delay_s is None else delay_s / 100)


async def test_a_pattern_that_never_ends_has_its_time_and_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a" * 60 + "\n")
    mark = "headrace-mark-search"
    result = await found(tmp_path, {**WITHOUT, "MARK": mark}, Hasty(), pattern="(a+)+$|(a|a)+b")
    slow = await found(tmp_path, {**WITHOUT, "MARK": mark}, Hasty(), pattern="(a|a)+b")
    assert "[not all was searched within 60 s; name a folder or a glob]" in slow.text
    assert result.text
    assert not marked(mark)


@ways
async def test_a_search_that_is_cancelled_leaves_no_process(tmp_path: Path, env: dict[str, str]) -> None:
    with (tmp_path / "f").open("wb") as file:
        for _ in range(200):
            file.write(b"a" * (1 << 20) + b"\n")
    mark = f"headrace-mark-{tmp_path.name}"
    running = asyncio.create_task(found(tmp_path, {**env, "MARK": mark}, pattern="(a|b|c)+d"))
    await there(mark)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await gone(mark, 2) < 2


# --- globs


@given(st.text(alphabet="ab*?[]!{},/.-\\", max_size=10), st.text(alphabet="ab/.", max_size=8))
def test_any_glob_is_a_pattern_or_says_what_is_wrong(glob: str, path: str) -> None:
    try:
        glob_pattern(glob).fullmatch(path)
    except re.error as error:
        assert str(error)  # noqa: PT017


@pytest.mark.skipif(shutil.which("rg") is None, reason="needs rg")
@pytest.mark.parametrize(
    "glob",
    [
        "*.py",
        "**/*.py",
        "a/*.py",
        "a/**",
        "*.{py,md}",
        "[ab].py",
        "[!a].py",
        "?.py",
        "a/**/c.py",
        "/a.py",
        "b",
    ],
)
def test_a_glob_means_what_it_means_to_ripgrep(glob: str) -> None:
    names = ["a.py", "b.py", "c.md", "a/c.py", "a/b/c.py", "b/a.py", "ab.py", "b/x"]

    async def both(folder: Path) -> tuple[list[str], list[str]]:
        return (
            await lines(folder, ENV, pattern="x", glob=glob),
            await lines(folder, WITHOUT, pattern="x", glob=glob),
        )

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("x\n")
        one, other = asyncio.run(both(folder))
    assert one == other
