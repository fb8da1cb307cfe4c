"""Reading, writing and editing, on real files of every unpleasant kind."""

import asyncio
import os
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.limits import (
    DIFF_MAX_CHARS,
    EDIT_MAX_BYTES,
    EDIT_PLACES_MOST,
    READ_FILE_MAX_CHARS,
    READ_LINE_MAX_CHARS,
)
from headrace.tools.diffs import unified
from headrace.tools.edit_file import EditFile
from headrace.tools.read_file import ReadFile
from headrace.tools.write_file import WriteFile
from tests.tooling import bare, call, said_no

READ, WRITE, EDIT = ReadFile(), WriteFile(), EditFile()


async def read(folder: Path, path: str, **lines: int) -> str:
    result = await call(READ, folder, path=path, **lines)
    assert result.ok, result.text
    return result.text


# --- reading


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "[the file is empty]"),
        (b"one", "one"),
        (b"one\ntwo\n", "one\ntwo"),
        (b"\n\n", "\n"),
        (b"one\r\ntwo\r\n", "one\ntwo\n[its lines end in CRLF]"),
        (b"\xffa\xc3\n", "\ufffda\ufffd"),
        (b"\xef\xbb\xbfone\n", "\ufeffone"),
        (b"a\rb\n", "a\rb"),
    ],
)
async def test_what_is_read(tmp_path: Path, data: bytes, told: str) -> None:
    (tmp_path / "f").write_bytes(data)
    assert await read(tmp_path, "f") == told


async def test_lines_from_and_to(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("".join(f"line {n}\n" for n in range(1, 11)))
    assert await read(tmp_path, "f", start=9) == "line 9\nline 10\n[lines 9 to 10, where the file ends]"
    assert await read(tmp_path, "f", start=2, end=3) == "line 2\nline 3\n[lines 2 to 3; the file goes on]"
    assert await read(tmp_path, "f", end=10) == "\n".join(f"line {n}" for n in range(1, 11))
    assert await read(tmp_path, "f", start=11) == "[the file ends here]"
    assert "has 10 lines; there is no line 12" in await said_no(READ, tmp_path, path="f", start=12)
    assert "before the start" in await said_no(READ, tmp_path, path="f", start=3, end=2)
    assert "there is no line 1,000,000,000,000" in await said_no(READ, tmp_path, path="f", start=10**12)


@given(
    st.lists(st.text(alphabet="ab \t", max_size=5), max_size=12),
    st.booleans(),
    st.integers(1, 14),
    st.integers(0, 5),
)
def test_stretches_are_those_of_the_lines(lines: list[str], ended: bool, start: int, more: int) -> None:
    text = "\n".join(lines) + ("\n" if ended and lines else "")
    lines = text.removesuffix("\n").split("\n") if text else []
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "f").write_bytes(text.encode())
        result = asyncio.run(call(READ, Path(folder), path="f", start=start, end=start + more))
    wanted = lines[start - 1 : start + more]
    if start > len(lines) + 1:
        assert not result.ok
    else:
        assert [*result.text.split("\n"), ""][: len(wanted)] == wanted
        assert len(result.text.split("\n")) <= len(wanted) + 1


async def test_a_file_is_read_on_piece_by_piece(tmp_path: Path) -> None:
    lines = [f"{n} {'x' * (n % 300)}" for n in range(2000)]
    (tmp_path / "f").write_text("\n".join(lines) + "\n")
    got: list[str] = []
    while True:
        text = await read(tmp_path, "f", start=len(got) + 1)
        assert len(text) < READ_FILE_MAX_CHARS + 200
        *some, note = text.split("\n")
        got += some
        if "to read on: start=" not in note:
            break
        assert int(note.rpartition("=")[2].rstrip("]")) == len(got) + 1
    assert got == lines


async def test_a_line_without_end_is_cut(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"first\n" + "ä".encode() * 3_000_000 + b"\nlast\n")
    first, cut, last = (await read(tmp_path, "f")).split("\n")
    assert (first, last) == ("first", "last")
    assert cut.startswith("ä" * READ_LINE_MAX_CHARS + " [... the line goes on for 5,996,000 bytes]")
    assert len(cut) < READ_LINE_MAX_CHARS + 100


def sparse(path: Path, begins: bytes = b"", ends: bytes = b"") -> None:
    """A file of a gigabyte that takes no room."""
    with path.open("wb") as file:
        file.write(begins)
        file.seek((1 << 30) - len(ends))
        file.write(ends)
        file.truncate(1 << 30)


MEASURE = """
import asyncio, resource, sys
from pathlib import Path
from headrace.tools.{module} import {tool}
from tests.tooling import call
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(asyncio.run(call({tool}(), Path({folder!r}), **{arguments!r})).text[:300])
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.parametrize(
    ("begins", "arguments", "said"),
    [
        (b"", {"path": "f"}, "f is a binary file of 1,073,741,824 bytes, not text."),
        (b"text\n" * 4000, {"path": "f", "end": 2}, "text"),
        (b"text\n" * 4000, {"path": "f", "start": 4003}, "has 4,001 lines; there is no line 4,003"),
    ],
)
async def test_a_gigabyte_is_read_within_a_few_megabytes(
    tmp_path: Path, begins: bytes, arguments: dict[str, object], said: str
) -> None:
    sparse(tmp_path / "f", begins)
    code = MEASURE.format(module="read_file", tool="ReadFile", folder=str(tmp_path), arguments=arguments)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=subprocess.PIPE)
    out, _ = await asyncio.wait_for(process.communicate(), 30)
    *text, megabytes = out.decode().strip().split("\n")
    assert said in "\n".join(text)
    assert int(megabytes) < 48


async def test_reading_a_gigabyte_ends_when_it_is_cancelled(tmp_path: Path) -> None:
    sparse(tmp_path / "f", b"text\n" * 4000)
    reading = asyncio.create_task(call(READ, tmp_path, path="f", start=10**9))
    await asyncio.sleep(0.02)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(reading, 1)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("folder", "is a folder, not a file."),
        ("pipe", "is a pipe, not a file."),
        ("socket", "No such device or address"),
        ("link to /dev/zero", "is a device, not a file."),
        ("nothing", "No such file or directory: "),
        ("nothing/below", "No such file or directory: "),
        ("file/below", "Not a directory: "),
        ("x" * 300, "File name too long: "),
        ("binary", "is a binary file of 4 bytes, not text."),
    ],
)
async def test_what_is_no_text_file_is_named(tmp_path: Path, kind: str, said: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "binary").write_bytes(b"a\0b\n")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link to /dev/zero".replace("/", "_")).symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        path = kind.replace("/dev/zero", "_dev_zero")
        refused = await asyncio.wait_for(said_no(READ, tmp_path, path=path), 5)
    assert said in refused


async def test_what_was_judged_is_opened_and_no_link_that_took_its_place(tmp_path: Path) -> None:
    """Between judging and running, a command puts a link where the file or its folder was."""
    work, secret = tmp_path / "work", tmp_path / "secret"
    for folder in (work / "sub", secret):
        folder.mkdir(parents=True)
    (work / "sub" / "f").write_text("mine\n")
    (work / "f").write_text("mine\n")
    (secret / "f").write_text("canary\n")
    for tool, more in ((READ, {}), (EDIT, {"old": "canary", "new": "x"}), (WRITE, {"content": "x"})):
        for path in ("sub/f", "f"):
            arguments = {"path": path, **more}
            run = bare(work, tool, arguments)
            moved = work / path.partition("/")[0]
            aside = moved.rename(work / "aside")
            moved.symlink_to(secret if path == "sub/f" else secret / "f")
            result = await tool.run(arguments, run)
            assert not result.ok
            assert "canary" not in result.text
            moved.unlink()
            aside.rename(moved)
    assert (secret / "f").read_text() == "canary\n"
    assert [p.name for p in secret.iterdir()] == ["f"]


# --- writing


async def test_a_new_file_in_new_folders(tmp_path: Path) -> None:
    result = await call(WRITE, tmp_path, path="a/b/c.txt", content="one\ntwo\n")
    assert result.text == "Wrote a/b/c.txt, 8 bytes."
    assert (tmp_path / "a/b/c.txt").read_text() == "one\ntwo\n"
    assert result.detail == "--- a/b/c.txt\n+++ a/b/c.txt\n@@ -0,0 +1,2 @@\n+one\n+two\n"


@pytest.mark.parametrize("content", ["", "no line end", "one\r\ntwo\r\n", "ä€😀\u2028\0", "x" * 100_000])
async def test_a_file_holds_exactly_what_was_given(tmp_path: Path, content: str) -> None:
    await call(WRITE, tmp_path, path="f", content=content)
    assert (tmp_path / "f").read_bytes() == content.encode()


async def test_what_was_there_is_replaced_with_its_mode(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old\n")
    (tmp_path / "f").chmod(0o4751)
    result = await call(WRITE, tmp_path, path="f", content="new\n")
    assert result.detail == "--- f\n+++ f\n@@ -1,1 +1,1 @@\n-old\n+new\n"
    assert (
        stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o751
    )  # what somebody else wrote does not run as its owner


async def test_replacing_reaches_through_no_hard_link(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "other").write_text("canary\n")
    os.link(tmp_path / "other", tmp_path / "work" / "f")
    await call(WRITE, tmp_path / "work", path="f", content="new\n")
    assert (tmp_path / "other").read_text() == "canary\n"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("folder", "is a folder, not a file."),
        (".", "is a folder, not a file."),
        ("pipe", "is a pipe, not a file."),
        ("read-only", "is read-only"),
        ("file/below", "Not a directory"),
        ("x" * 300, "File name too long"),
    ],
)
async def test_what_cannot_be_written_is_left_as_it_was(tmp_path: Path, path: str, said: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("here\n")
    (tmp_path / "read-only").write_text("here\n")
    (tmp_path / "read-only").chmod(0o444)
    os.mkfifo(tmp_path / "pipe")
    before = sorted(p.name for p in tmp_path.iterdir())
    assert said in await said_no(WRITE, tmp_path, path=path, content="new\n")
    assert sorted(p.name for p in tmp_path.iterdir()) == before
    assert (tmp_path / "read-only").read_text() == "here\n"


async def test_half_a_character_is_refused(tmp_path: Path) -> None:
    assert "half a character at 1" in await said_no(WRITE, tmp_path, path="f", content="a\ud83d")
    assert not (tmp_path / "f").exists()


async def test_a_full_disk_leaves_what_was_there_whole(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting needs rights that are not given here")
    try:
        (disk / "f").write_text("here\n")
        for tool, arguments in (
            (WRITE, {"content": "x" * 1_000_000}),
            (EDIT, {"old": "here", "new": "x" * 1_000_000}),
        ):
            assert "No space left on device" in await said_no(tool, disk, path="f", **arguments)
            assert (disk / "f").read_text() == "here\n"
            assert [p.name for p in disk.iterdir()] == ["f"]
        assert (await call(WRITE, disk, path="f", content="room again\n")).ok
    finally:
        subprocess.run(["umount", disk], check=True)


async def test_a_reader_sees_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    old, new = "a" * 500_000, "b" * 500_000
    (tmp_path / "f").write_text(old)
    writing = asyncio.create_task(call(WRITE, tmp_path, path="f", content=new))
    seen = set()
    while not writing.done():
        seen.add((tmp_path / "f").read_text())
        await asyncio.sleep(0)
    assert seen <= {old, new}
    assert (tmp_path / "f").read_text() == new


async def test_a_write_that_is_cancelled_is_whole_or_not_at_all(tmp_path: Path) -> None:
    for moment in range(8):
        (tmp_path / "f").write_text("old")
        writing = asyncio.create_task(call(WRITE, tmp_path, path="f", content="b" * 3_000_000))
        await asyncio.sleep(moment * 0.001)
        writing.cancel()
        await asyncio.wait([writing])
        before = (tmp_path / "f").read_text()
        assert before in ("old", "b" * 3_000_000)
        assert [p.name for p in tmp_path.iterdir()] == ["f"]


# --- editing


@given(
    st.text(alphabet="ab\n", max_size=30),
    st.text(alphabet="ab\n", min_size=1, max_size=4),
    st.text(alphabet="abX\n", max_size=4),
)
def test_an_edit_replaces_the_one_place_there_is_and_nothing_else(text: str, old: str, new: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "f"
        file.write_bytes(text.encode())
        result = asyncio.run(call(EDIT, Path(folder), path="f", old=old, new=new))
        after = file.read_bytes().decode()
    places = [at for at in range(len(text)) if text.startswith(old, at)]
    if len(places) != 1 or old == new:
        assert (result.ok, after) == (False, text)
    else:
        assert (result.ok, after) == (True, text[: places[0]] + new + text[places[0] + len(old) :])


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\r\nb\r\nc\r\n", "b\n", "B\nBB\n", b"a\r\nB\r\nBB\r\nc\r\n"),
        (b"a\r\nb\r\n", "a\r\nb", "x\r\ny", b"x\r\ny\r\n"),
        (b"a\r\nb\r\n", "b", "B\nC", b"a\r\nB\r\nC\r\n"),
        (b"a\r\nb\nc\n", "b\nc", "x\ny", b"a\r\nx\ny\n"),
        (b"a\r\nb\nc\n", "a\nb", "x\ny", b"x\r\ny\nc\n"),
        (b"a\nb\n", "a\nb", "x\r\ny", b"x\r\ny\n"),
        (b"\xef\xbb\xbfa\n", "a", "b", b"\xef\xbb\xbfb\n"),
    ],
)
async def test_line_ends_stay_what_they_are(
    tmp_path: Path, before: bytes, old: str, new: str, after: bytes
) -> None:
    (tmp_path / "f").write_bytes(before)
    result = await call(EDIT, tmp_path, path="f", old=old, new=new)
    assert result.ok, result.text
    assert (tmp_path / "f").read_bytes() == after


@pytest.mark.parametrize(
    ("old", "said"),
    [
        ("nowhere", "That text is not in f. Read the file again"),
        ("one  two", "It differs only in white space from line 1."),
        ("one\ntwo", "It differs only in white space from line 1."),
        ("three\nfive", "Its first line is at line 2, but what follows differs."),
        ("four", "occurs 2 times in f, at lines 3, 4."),
        ("aa", f"occurs more than {EDIT_PLACES_MOST} times in f, at lines 5, 5, 5"),
    ],
)
async def test_what_is_not_there_once_changes_nothing(tmp_path: Path, old: str, said: str) -> None:
    text = "one two\nthree\nfour\nfour\n" + "a" * 50 + "\n"
    (tmp_path / "f").write_text(text)
    assert said in await said_no(EDIT, tmp_path, path="f", old=old, new="x")
    assert (tmp_path / "f").read_text() == text


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"a\xffb", "is not UTF-8 text (byte 1)"),
        (b"a" * (EDIT_MAX_BYTES + 1), f"larger than {EDIT_MAX_BYTES:,} bytes"),
    ],
)
async def test_what_cannot_be_edited(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "f").write_bytes(data)
    assert said in await said_no(EDIT, tmp_path, path="f", old="a", new="x")
    assert (tmp_path / "f").read_bytes() == data


async def test_an_edit_says_where_and_shows_a_diff(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("".join(f"line {n}\n" for n in range(1, 21)))
    result = await call(EDIT, tmp_path, path="f", old="line 10\n", new="ten\nand more\n")
    assert result.text == "Edited f, now lines 10 to 11."
    assert result.detail == (
        "--- f\n+++ f\n@@ -7,7 +7,8 @@\n line 7\n line 8\n line 9\n-line 10\n+ten\n+and more\n line 11\n line 12\n line 13\n"
    )


def patched(before: str, diff: str, folder: Path) -> str:
    (folder / "f").write_bytes(before.encode())
    (folder / "d").write_bytes(diff.encode())
    subprocess.run(
        ["patch", "--quiet", "--fuzz=0", "f", "d"], cwd=folder, check=True, capture_output=True, timeout=10
    )
    return (folder / "f").read_bytes().decode()


@pytest.mark.skipif(
    subprocess.run(["which", "patch"], capture_output=True, check=False).returncode != 0, reason="needs patch"
)
@given(*[st.lists(st.sampled_from(["a", "b", "c", "", "d e"]), max_size=14).map("\n".join)] * 2)
def test_a_diff_is_one_that_patch_can_apply(before: str, after: str) -> None:
    diff = unified(before, after, "f")
    assert bool(diff) == (before != after)
    if diff and after:
        with tempfile.TemporaryDirectory() as folder:
            assert patched(before, diff, Path(folder)) == after


def test_a_diff_of_very_much_is_bounded() -> None:
    before, after = ("\n".join(f"{word} {n}" for n in range(50_000)) for word in ("old", "new"))
    diff = unified(before, after, "f")
    assert len(diff) < DIFF_MAX_CHARS + 100
    assert diff.endswith("characters of the diff are not shown]\n")
