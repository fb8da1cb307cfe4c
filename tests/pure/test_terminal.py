"""What a terminal shows of what tools print: line by line as it comes, harmless, and bounded."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.events import ApprovalAsked, ToolFinished, ToolPrinted, ToolStarted
from headrace.limits import TOOL_SHOWN_MAX_LINES
from headrace.views.asides import Aside, Asking
from headrace.views.terminal import TerminalView

BEGIN = ToolStarted(1, 1, "terminal", "{}")


def shown(*events: object) -> list[str]:
    view = TerminalView()
    return [piece.text for piece in view.feed((BEGIN, *events)) if isinstance(piece, Aside)][1:]


def end(status: str = "ok", detail: str = "") -> ToolFinished:
    return ToolFinished(1, 1, status, "", detail)


@given(st.lists(st.text(alphabet="ab", min_size=1, max_size=4), min_size=1, max_size=10), st.data())
def test_lines_are_the_same_however_they_come(lines: list[str], data: st.DataObject) -> None:
    text = "\n".join(lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert shown(*(ToolPrinted(1, 1, piece) for piece in pieces), end()) == [f"  {line}" for line in lines]


def test_a_line_is_shown_when_it_is_whole_and_not_when_its_tool_has_ended() -> None:
    assert shown(ToolPrinted(1, 1, "one\ntw")) == ["  one"]
    assert shown(ToolPrinted(1, 1, "one\ntw"), ToolPrinted(1, 1, "o\n")) == ["  one", "  two"]


def test_tools_side_by_side_do_not_mix_their_lines() -> None:
    printed = [
        ToolPrinted(1, 1, "on"),
        ToolPrinted(1, 2, "tw"),
        ToolPrinted(1, 1, "e\n"),
        ToolPrinted(1, 2, "o\n"),
    ]
    assert shown(*printed) == ["  one", "  two"]


def test_the_rest_of_very_much_is_counted_and_told_at_the_end() -> None:
    told = shown(ToolPrinted(1, 1, "x\n" * 1000), end(detail="exit status 0"))
    assert told[:-2] == ["  x"] * TOOL_SHOWN_MAX_LINES
    assert told[-2:] == [f"  [{1000 - TOOL_SHOWN_MAX_LINES} more lines]", "exit status 0"]


def test_a_line_without_end_and_a_line_that_would_control_the_terminal() -> None:
    assert shown(ToolPrinted(1, 1, "\x1b[2J\x07 evil\n")) == ["  ␛[2J␇ evil"]
    (line,) = shown(*[ToolPrinted(1, 1, "y" * 10_000)] * 100, end())
    assert len(line) <= 202
    assert shown(ToolPrinted(1, 1, "10 %\r20 %\r30 %\n")) == ["  30 %"]


def test_what_a_person_decides_about_is_on_one_line_and_as_it_would_run() -> None:
    summary = 'write_file {\n"content": "if a:\\n    b  # two"\r\n}'
    (asking,) = TerminalView().feed((ApprovalAsked("approval_1", 1, 1, summary, 0.0),))
    assert asking == Asking("approval", "approval_1", 'write_file { "content": "if a:\\n    b  # two" }')


def test_how_a_tool_ended_is_said_once() -> None:
    assert shown(ToolFinished(1, 1, "denied", "Denied: it is outside.", "")) == ["Denied: it is outside."]
    assert shown(ToolFinished(1, 1, "failed", "No such file.", "")) == ["failed: No such file."]
