"""The command line: `headrace COMMAND ...`.

Theory of operation. Parsing needs nothing but the standard library, so `--help` and `--version` are instant; a command
imports what it needs when it runs. Every failure a person can meet ends as one line on standard error and an exit
status: 0 for an answer that ended as it should, 2 for a command line or a configuration that has to change, and one for
each other outcome (`headrace ask --help` lists them).
"""

import argparse
import os
import sys
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from headrace import __version__

if TYPE_CHECKING:
    from headrace.runtime.turn import Turn

_STATUS = """exit status:
  0  the model finished its answer      5  a limit of the turn was met
  1  error                              6  the provider's content filter ended it
  2  wrong command or configuration     7  the model declined
  3  the answer was cut off             8  the model asks for tools the caller runs
  4  the answer reached its length    130  stopped
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    arguments = _parser().parse_args(argv)
    from headrace.errors import HeadraceError  # noqa: PLC0415 - after parsing, so that --help stays instant

    try:
        status: int = arguments.run(arguments)
    except HeadraceError as error:
        print(f"headrace: {error}", file=sys.stderr)  # noqa: T201
        return 2 if error.who == "user" else 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output is gone; what is still buffered must not raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="headrace",
        description="A self-hosted AI agent whose every answer streams.",
        epilog='example:\n  headrace ask "What is the capital of France?"',
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"headrace {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_chat(commands)
    _add_ask(commands)
    return parser


def _add_chat(commands: Any) -> None:
    chat = commands.add_parser(
        "chat",
        help="talk in this terminal; with a question, answer it and leave",
        description="Talk in this terminal. With a question, or with one piped in, answer it and leave; the answer\n"
        "goes to standard output, everything else to standard error. Ctrl-C stops an answer and keeps\n"
        "what has been shown; a second one leaves.",
        epilog="examples:\n  headrace chat\n"
        '  headrace chat "What is the capital of France?"\n'
        '  git diff | headrace chat --model openai:gpt-5.5 "Review this."\n'
        f"  headrace chat --session trip     # go on with it later\n\n{_STATUS}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_question(chat)
    chat.add_argument("--session", metavar="NAME", default="", help="keep the conversation under this name")
    chat.set_defaults(run=_chat)


def _add_question(command: argparse.ArgumentParser) -> None:
    command.add_argument("question", nargs="*", help="the question; what is piped in is added to it")
    command.add_argument(
        "--model", metavar="M", help="which model, as <provider>:<model>, instead of the configured"
    )
    command.add_argument(
        "--json", action="store_true", help="print the turn's log instead, one JSON object a line"
    )
    command.add_argument(
        "--thoughts", action="store_true", help="show the model's reasoning on standard error"
    )


def _add_ask(commands: Any) -> None:
    ask = commands.add_parser(
        "ask",
        help="put one question and print the answer as it streams",
        description="Put one question and print the answer as it streams. The answer goes to standard output,\n"
        "everything else to standard error.",
        epilog='examples:\n  headrace ask "What is the capital of France?"\n'
        '  git diff | headrace ask --model openai:gpt-5.5 "Review this."\n'
        f'  headrace ask --json "Hi" > turn.jsonl\n\n{_STATUS}',
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_question(ask)
    ask.set_defaults(run=_ask, session="")


def _chat(arguments: argparse.Namespace) -> int:
    talks = not arguments.question and not arguments.json and sys.stdin.isatty()
    return _converse(arguments) if talks else _ask(arguments)


def _converse(arguments: argparse.Namespace) -> int:
    from headrace.app import App  # noqa: PLC0415
    from headrace.doors.terminal.chat import converse  # noqa: PLC0415
    from headrace.events import user_message  # noqa: PLC0415

    app = App.from_env(os.environ)
    session = app.session(arguments.session)

    def start(question: str) -> "Turn":
        return app.start([user_message(question)], arguments.model, session)

    return converse(start, session, app.close, thoughts=arguments.thoughts)


def _ask(arguments: argparse.Namespace) -> int:
    question = _question(arguments.question)
    if not question.strip():
        print("headrace: there is no question; write it behind the command or pipe it in", file=sys.stderr)  # noqa: T201
        return 2
    return _run(_answer(question, arguments))


def _question(words: list[str]) -> str:
    """The words of the command line, and below them what was piped in."""
    parts = [" ".join(words)] if words else []
    if not sys.stdin.isatty():
        parts.append(sys.stdin.read())
    return "\n\n".join(part for part in parts if part.strip())


async def _answer(question: str, arguments: argparse.Namespace) -> int:
    from headrace.app import App  # noqa: PLC0415
    from headrace.doors.terminal import EXIT  # noqa: PLC0415
    from headrace.doors.terminal.plain import Printer, show, show_json, stopping  # noqa: PLC0415
    from headrace.events import user_message  # noqa: PLC0415

    app = App.from_env(os.environ)
    try:
        turn = app.start([user_message(question)], arguments.model, app.session(arguments.session))
        with stopping(turn):
            if arguments.json:
                await show_json(turn, sys.stdout)
            else:
                await show(turn, Printer(sys.stdout, sys.stderr, thoughts=arguments.thoughts))
            closed = await turn.wait()
        return EXIT[closed.outcome]
    finally:
        await app.close()


def _run(work: Coroutine[Any, Any, int]) -> int:
    import asyncio  # noqa: PLC0415

    return asyncio.run(work)
