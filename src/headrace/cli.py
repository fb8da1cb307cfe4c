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
from typing import Any

from headrace import __version__

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
    _add_ask(commands)
    return parser


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
    ask.add_argument("question", nargs="*", help="the question; what comes on standard input is added to it")
    ask.add_argument(
        "--model", metavar="M", help="which model, as <provider>:<model>, instead of the configured one"
    )
    ask.add_argument(
        "--json", action="store_true", help="print the turn's log instead, one JSON object a line"
    )
    ask.add_argument("--thoughts", action="store_true", help="show the model's reasoning on standard error")
    ask.set_defaults(run=_ask)


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
        turn = app.start([user_message(question)], arguments.model)
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


if __name__ == "__main__":
    sys.exit(main())
