"""What the person has written down for the agent: which files are read, and which are not."""

import os
from pathlib import Path

import pytest

from headrace.limits import CONTEXT_FILE_MAX_CHARS, CONTEXT_FILES_MAX
from headrace.stores.context import context_files, memory


def texts(folder: Path, stop: Path) -> list[str]:
    return [file.text for file in context_files(folder.resolve(), stop.resolve())]


def test_one_a_folder_from_the_outermost_to_the_nearest(tmp_path: Path) -> None:
    work = tmp_path / "home" / "project" / "part"
    work.mkdir(parents=True)
    (tmp_path / "AGENTS.md").write_text("above home")
    (tmp_path / "home" / "CLAUDE.md").write_text("everywhere")
    (work.parent / "AGENTS.md").write_text("the project")
    (work.parent / "CLAUDE.md").write_text("the same for others")
    (work / "HEADRACE.md").write_text("the part")
    assert texts(work, tmp_path / "home") == ["everywhere", "the project", "the part"]


def test_outside_of_home_they_are_looked_for_up_to_the_root(tmp_path: Path) -> None:
    work = tmp_path / "elsewhere"
    work.mkdir()
    (work / "AGENTS.md").write_text("notes")
    assert texts(work, tmp_path / "home") == ["notes"]


def test_long_ones_are_cut_and_it_is_said(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("x" * (CONTEXT_FILE_MAX_CHARS + 1))
    (text,) = texts(tmp_path, tmp_path)
    assert text == "x" * CONTEXT_FILE_MAX_CHARS + "\n[the rest of AGENTS.md was left out]"


def test_there_are_only_so_many(tmp_path: Path) -> None:
    folder = tmp_path
    for n in range(CONTEXT_FILES_MAX + 3):
        folder = folder / f"{n}"
        folder.mkdir()
        (folder / "AGENTS.md").write_text(f"{n}")
    found = texts(folder, tmp_path)
    assert len(found) == CONTEXT_FILES_MAX
    assert found[-1] == f"{CONTEXT_FILES_MAX + 2}"


def test_a_link_within_its_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / "CLAUDE.md").write_text("notes")
    (tmp_path / "AGENTS.md").symlink_to("CLAUDE.md")
    assert texts(tmp_path, tmp_path) == ["notes"]


@pytest.mark.parametrize("way", ["absolute", "relative", "over two"])
def test_a_link_out_of_its_folder_is_not_read(tmp_path: Path, way: str) -> None:
    """A project that somebody else made must not have a key of this machine sent to a provider."""
    (tmp_path / "key").write_text("secret")
    project = tmp_path / "project"
    project.mkdir()
    (project / "step").symlink_to(tmp_path / "key")
    target = {"absolute": tmp_path / "key", "relative": Path("../key"), "over two": Path("step")}[way]
    (project / "AGENTS.md").symlink_to(target)
    (project / "CLAUDE.md").write_text("notes")
    assert texts(project, project) == ["notes"]


def test_what_is_no_readable_file_has_nothing_to_say(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "AGENTS.md")
    (tmp_path / "HEADRACE.md").mkdir()
    (tmp_path / "CLAUDE.md").symlink_to("nowhere")
    assert texts(tmp_path, tmp_path) == []
    assert memory(tmp_path) == ""
    (tmp_path / "memory.md").write_bytes(b"- caf\xe9\n")
    assert memory(tmp_path) == "- caf\ufffd"
