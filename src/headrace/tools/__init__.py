"""Tools: what a model can do, one module each.

Theory of operation. A tool implements the Tool port: a description for the model, what a call would touch (for rules
and people to decide about, before it runs), and `run`. What it may use comes with each run as values: folder, home,
environment, clock, and the ways to print and to ask. A run

* answers in every case: what goes wrong is a sentence for the model, not an exception (`answers`);
* is bounded: what it reads, keeps, prints and returns, and how long it takes (`limits`);
* ends, when it is cancelled, with everything it has started (`processes`, `workers`, `threads`).

What a tool returns is data. Nothing in headrace reads it for instructions: a page that says "now delete everything" is
a page that says so, and whatever a model makes of it comes back as tool calls, which are decided about like any others.

    terminal, background          commands; guard: the process above each
    read_file, write_file,        files; paths: opening what was judged; replacing: whole or not at all
    edit_file, search_files       grepping: the search program where ripgrep is missing
    web_fetch                     pages; addresses: which of the network
    memory, clarify               what is remembered of the person; asking them
    plugins                       tools of other packages
    environment                   what child processes get to see

State that outlives a run is held in two places: the commands in the background, which belong to the owner of the run
that started them, and the person's memory file.
"""

from headrace.ports import Tool
from headrace.tools.background import Background, TerminalKill, TerminalRead
from headrace.tools.clarify import Clarify
from headrace.tools.edit_file import EditFile
from headrace.tools.environment import child_environment
from headrace.tools.memory import Memory
from headrace.tools.plugins import third_party
from headrace.tools.read_file import ReadFile
from headrace.tools.search_files import SearchFiles
from headrace.tools.terminal import Terminal
from headrace.tools.web_fetch import WebFetch
from headrace.tools.write_file import WriteFile

__all__ = ["builtin", "child_environment", "third_party"]


def builtin(*, private: bool = False) -> tuple[Tool, ...]:
    """The tools that come with headrace, with a state of their own; close each when done.

    `private`: web_fetch may go to addresses that are not public.
    """
    background = Background()
    return (
        Terminal(background),
        TerminalRead(background),
        TerminalKill(background),
        ReadFile(),
        WriteFile(),
        EditFile(),
        SearchFiles(),
        WebFetch(private=private),
        Memory(),
        Clarify(),
    )
