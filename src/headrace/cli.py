"""The command line: `headrace COMMAND ...`.

Theory of operation. Parsing needs nothing but the standard library, so `--help` and `--version` are instant; a command
imports what it needs when it runs. Every failure a person can meet ends as one line on standard error and an exit
status: 0 for an answer that ended as it should, 2 for a command line or a configuration that has to change, and one for
each other outcome (`headrace ask --help` lists them).
"""

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.app import App
    from headrace.doors.terminal.plain import Printer
    from headrace.runtime.question import Acting
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
    _mend_streams()
    try:
        return _obey(argv)
    except BrokenPipeError:
        # Whoever read our output is gone; what is still buffered must not raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _obey(argv: Sequence[str] | None) -> int:
    try:
        arguments = _parser().parse_args(argv)
    finally:
        sys.stdout.flush()  # help is printed while parsing, and then the program is left
    from headrace.errors import HeadraceError  # after parsing, so that --help stays instant

    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()
    except HeadraceError as error:
        from headrace.views.asides import harmless

        print(f"headrace: {harmless(str(error))}", file=sys.stderr)
        return 2 if error.who == "user" else 1
    except KeyboardInterrupt:
        return 130
    return status


def _mend_streams() -> None:
    """A standard stream that was closed reads and writes nothing; one that cannot show a character shows another."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # opened in this order, each takes the number that is free
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115, PTH123 - for as long as the process lives
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


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
    _add_serve(commands)
    _add_follow(commands)
    _add_sessions(commands)
    _add_models(commands)
    _add_doctor(commands)
    _add_config(commands)
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
    chat.add_argument(
        "--yes", action="store_true", help="allow what would be asked about; what is denied stays denied"
    )
    tools = chat.add_mutually_exclusive_group()
    tools.add_argument(
        "--tools", action="store_true", default=None, help="give the model tools, whichever it is"
    )
    tools.add_argument("--no-tools", dest="tools", action="store_false", help="give the model no tools")
    chat.add_argument("--skip-context-files", action="store_true", help="do not read AGENTS.md and its kin")
    chat.add_argument(
        "--skip-memory", action="store_true", help="do not read what the agent was told to remember"
    )
    chat.set_defaults(run=_chat, acts=True)


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
    ask.set_defaults(run=_ask, session="", acts=False)


def _add_serve(commands: Any) -> None:
    serve = commands.add_parser(
        "serve",
        help="open the API: OpenAI-compatible, resumable",
        description="Open the API for chat clients, SDKs and coding clients. It prints `ready http://host:port`\n"
        "when it listens. The agent works in the folder it is started in. Every request needs the key that is\n"
        "printed on the first start and kept in the home folder, or the one in HEADRACE_API_KEY.",
        epilog="examples:\n  headrace serve\n  headrace serve --port 0         # any free port\n"
        "  HEADRACE_API_KEY=... headrace serve --host 0.0.0.0",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    serve.add_argument("--host", metavar="ADDRESS", help="where to listen; 127.0.0.1 unless configured")
    serve.add_argument("--port", metavar="N", type=_port, help="the port; 8700 unless configured, 0 for any")
    serve.set_defaults(run=_serve)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port from 0 to 65535")
    return int(text)


def _serve(arguments: argparse.Namespace) -> int:
    from headrace.app import App
    from headrace.doors.api.server import Server, serve

    async def work() -> int:
        app = App.from_env(os.environ)
        try:
            server = Server(app, os.environ, Path.cwd(), arguments.host, arguments.port)
            return await serve(server, sys.stdout, sys.stderr)
        finally:
            await app.close()

    return _run(work())


def _add_follow(commands: Any) -> None:
    follow = commands.add_parser(
        "follow",
        help="watch a turn that was started elsewhere, answer what it asks, stop it",
        description="Attach to a turn that a server runs (`headrace serve`), whoever has started it: what it has said\n"
        "is shown again, then what it says as it comes, and what it asks can be answered here. With a session,\n"
        "it is the turn that runs in it, or its latest; with nothing, the one that runs on the server.\n\n"
        "Ctrl-C leaves, and the turn goes on. A second Ctrl-C within two seconds stops the turn, as --stop does.",
        epilog="examples:\n  headrace follow                 # the turn that runs\n"
        "  headrace follow trip            # the session trip\n"
        "  headrace follow trip --keep     # and every turn that comes after\n"
        "  headrace follow --stop trip\n"
        "  headrace follow turn_19a3 --json --after 120\n"
        f"  headrace follow --url http://192.168.1.5:8700\n\n{_STATUS}"
        "A follower that leaves has the status 0.\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    follow.add_argument("name", nargs="?", default="", metavar="SESSION or TURN", help="what to follow")
    follow.add_argument("--after", metavar="N", type=_count, default=0, help="show what came after event N")
    either = follow.add_mutually_exclusive_group()
    either.add_argument(
        "--keep", action="store_true", help="go on with the session's next turns, until Ctrl-C"
    )
    either.add_argument("--stop", action="store_true", help="stop the turn instead")
    follow.add_argument(
        "--json",
        action="store_true",
        help="print the turn's log instead, one JSON object a line; ask nothing",
    )
    follow.add_argument(
        "--thoughts", action="store_true", help="show the model's reasoning on standard error"
    )
    follow.add_argument("--url", metavar="URL", help="the server; the one of this configuration if left out")
    follow.set_defaults(run=_follow)


def _count(text: str) -> int:
    if not text.isdecimal() or len(text) > 12:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of an event")
    return int(text)


def _follow(arguments: argparse.Namespace) -> int:
    from headrace.config import home_dir, load
    from headrace.doors.terminal.follow import Wanted, follow
    from headrace.doors.terminal.remote import Server, address, address_of, key_of
    from headrace.runtime.clock import SystemClock

    async def work() -> int:
        home = home_dir(os.environ)
        api = load(home, os.environ).api
        url = address(arguments.url) if arguments.url else address_of(api)
        wanted = Wanted(
            arguments.name, arguments.after, keep=arguments.keep, stop=arguments.stop,
            as_json=arguments.json, thoughts=arguments.thoughts, elsewhere=bool(arguments.url),
        )  # fmt: skip
        async with Server(url, key_of(api, home, os.environ), SystemClock()) as server:
            return await follow(server, wanted, sys.stdin, sys.stdout, sys.stderr)

    return _run(work())


def _add_sessions(commands: Any) -> None:
    sessions = commands.add_parser(
        "sessions",
        help="list, read, search, export and delete kept conversations",
        description="Conversations that were given a name (`headrace chat --session NAME`): list, read, search,\n"
        "export and delete them. It works beside processes that are writing.",
        epilog="examples:\n  headrace sessions\n  headrace sessions show trip\n"
        '  headrace sessions search "wheel water"\n'
        "  headrace sessions export trip --format markdown > trip.md\n  headrace sessions delete trip",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sessions.set_defaults(run=_sessions_list, json=False)
    verbs = sessions.add_subparsers(metavar="VERB")
    listing = _add_verb(
        verbs, "list", "what is kept, latest first (the default)", "headrace sessions list --json"
    )
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.set_defaults(run=_sessions_list)
    show = _add_verb(verbs, "show", "read one again", "headrace sessions show trip")
    show.add_argument("name", help="the name it is kept under")
    show.set_defaults(run=_sessions_show)
    search = _add_verb(
        verbs,
        "search",
        "find turns by their words, or by how words begin",
        "headrace sessions search wheel wat",
    )
    search.add_argument("text", nargs="+", help="every word has to occur")
    search.set_defaults(run=_sessions_search)
    export = _add_verb(
        verbs,
        "export",
        "print one to be kept elsewhere",
        "headrace sessions export trip --format markdown > trip.md",
    )
    export.add_argument("name", help="the name it is kept under")
    export.add_argument(
        "--format",
        choices=("jsonl", "markdown"),
        default="jsonl",
        help="its events (the default), or a document",
    )
    export.set_defaults(run=_sessions_export)
    delete = _add_verb(verbs, "delete", "delete one for good", "headrace sessions delete trip")
    delete.add_argument("name", help="the name it is kept under")
    delete.set_defaults(run=_sessions_delete)


def _add_verb(verbs: Any, name: str, does: str, example: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(
        name,
        help=does,
        description=f"{does[0].upper()}{does[1:]}.",
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return parser


def _sessions_list(arguments: argparse.Namespace) -> int:
    from headrace.config import home_dir
    from headrace.doors.terminal.sessions import list_sessions

    return list_sessions(home_dir(os.environ), sys.stdout, sys.stderr, as_json=arguments.json)


def _sessions_show(arguments: argparse.Namespace) -> int:
    from headrace.config import home_dir
    from headrace.doors.terminal.sessions import show

    return show(home_dir(os.environ), arguments.name, sys.stdout, sys.stderr)


def _sessions_search(arguments: argparse.Namespace) -> int:
    from headrace.config import home_dir
    from headrace.doors.terminal.sessions import search

    return search(home_dir(os.environ), " ".join(arguments.text), sys.stdout, sys.stderr)


def _sessions_export(arguments: argparse.Namespace) -> int:
    from headrace.config import home_dir
    from headrace.doors.terminal.sessions import export

    return export(home_dir(os.environ), arguments.name, sys.stdout, sys.stderr, arguments.format)


def _sessions_delete(arguments: argparse.Namespace) -> int:
    from headrace.config import home_dir
    from headrace.doors.terminal.sessions import delete

    return delete(home_dir(os.environ), arguments.name, sys.stderr)


def _add_models(commands: Any) -> None:
    models = commands.add_parser(
        "models",
        help="list models, fetch and remove the embedded ones",
        description="List what is configured and known, fetch the weights of an embedded model, or remove them.",
        epilog="examples:\n  headrace models\n  headrace models list --provider openrouter\n"
        "  headrace models fetch larger\n  headrace models rm larger\n\n"
        "A GGUF file of your own is the model local:/path/to/file.gguf and needs no fetching.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    models.set_defaults(run=_models_list, json=False, provider=None)
    verbs = models.add_subparsers(metavar="VERB")
    listing = _add_verb(
        verbs,
        "list",
        "what is configured and known (the default)",
        "headrace models list --provider openrouter | grep opus",
    )
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.add_argument("--provider", metavar="NAME", help="ask this provider what it serves")
    listing.set_defaults(run=_models_list)
    fetch = _add_verb(
        verbs, "fetch", "fetch the weights of an embedded model ahead of time", "headrace models fetch larger"
    )
    fetch.add_argument("name", help="default, larger or tiny; `headrace models` lists them")
    fetch.set_defaults(run=_models_fetch)
    remove = _add_verb(verbs, "rm", "remove the weights of an embedded model", "headrace models rm larger")
    remove.add_argument("name", help="the model whose weights go")
    remove.set_defaults(run=_models_remove)


def _models_list(arguments: argparse.Namespace) -> int:
    from headrace.config import home_dir
    from headrace.doors.terminal.models import list_known, list_served
    from headrace.providers.embedded import weights
    from headrace.views.models import EmbeddedModel

    home = home_dir(os.environ)
    if arguments.provider:
        work = list_served(
            home, os.environ, arguments.provider, sys.stdout, sys.stderr, as_json=arguments.json
        )
        return _run(work)
    there = {model.name for model, _ in weights.installed(home)}
    embedded = [EmbeddedModel(m.name, m.size, m.name in there, m.title) for m in weights.MODELS.values()]
    return list_known(home, os.environ, embedded, sys.stdout, as_json=arguments.json)


def _models_fetch(arguments: argparse.Namespace) -> int:
    from headrace.config import home_dir
    from headrace.doors.terminal.fetching import FetchBar
    from headrace.providers.embedded import weights
    from headrace.runtime.clock import SystemClock

    async def work() -> int:
        bar = FetchBar(sys.stderr, f"the model {arguments.name}")
        try:
            clock = SystemClock()
            name = _embedded_name(arguments.name)
            path = await weights.fetch(name, home_dir(os.environ), bar, env=os.environ, clock=clock)
        finally:
            bar.end()
        print(path)
        return 0

    return _run(work())


def _models_remove(arguments: argparse.Namespace) -> int:
    from headrace.config import home_dir
    from headrace.providers.embedded import weights

    freed = weights.remove(_embedded_name(arguments.name), home_dir(os.environ))
    print(f"{freed / 1e6:.0f} MB freed")
    return 0


def _embedded_name(text: str) -> str:
    """A model's name, also where it is written as in a configuration: local:larger, or local."""
    return "" if text == "local" else text.removeprefix("local:")


def _add_doctor(commands: Any) -> None:
    doctor = commands.add_parser(
        "doctor",
        help="examine a model's endpoint and say what to do about what is wrong",
        description="Ask a model a few small questions and say what its endpoint can do: whether it can be reached,\n"
        "takes the key, really streams, calls tools, says when an answer is complete, and what to do about\n"
        "what is wrong. It makes at most 6 requests, which cost a few hundred tokens.",
        epilog="example:\n  headrace doctor openrouter:anthropic/claude-opus\n\n"
        "exit status:\n  0  no problem was found\n  1  a problem keeps the model from answering\n"
        "  2  wrong command or configuration\n  3  the model answers, with problems\n130  stopped\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    doctor.add_argument(
        "model", nargs="?", metavar="MODEL", help="as <provider>:<model>; the configured one if left out"
    )
    doctor.add_argument("--json", action="store_true", help="print JSON")
    doctor.set_defaults(run=_doctor)


def _doctor(arguments: argparse.Namespace) -> int:
    from headrace.app import App
    from headrace.doors.terminal.doctor import doctor

    async def work() -> int:
        app = App.from_env(os.environ)
        with _fetch_bar(app):
            try:
                return await doctor(app, arguments.model, sys.stdout, as_json=arguments.json)
            finally:
                await app.close()

    return _run(work())


def _add_config(commands: Any) -> None:
    config = commands.add_parser(
        "config",
        help="write, check or find the configuration file",
        description="Write a commented configuration from a few questions, check the one there is, or print its path.",
        epilog="examples:\n  headrace config init\n  headrace config init --model openai:gpt-5.5 --fallback local\n"
        '  headrace config check\n  $EDITOR "$(headrace config path)"',
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = config.add_subparsers(metavar="VERB", required=True)
    init = _add_verb(
        verbs,
        "init",
        "write a commented file from few questions",
        "headrace config init --model openai:gpt-5.5 --fallback local",
    )
    init.add_argument("--model", metavar="M", help="ask nothing; use this model")
    init.add_argument(
        "--fallback", metavar="M", action="append", default=[], help="asked when the model gives no answer"
    )
    init.add_argument(
        "--force", action="store_true", help="write anew; the old file is kept as config.yaml.bak"
    )
    init.set_defaults(run=_config_init)
    check = _add_verb(verbs, "check", "say what is configured, or what is wrong", "headrace config check")
    check.set_defaults(run=_config_check)
    path = _add_verb(verbs, "path", "print where the file is", '$EDITOR "$(headrace config path)"')
    path.set_defaults(run=_config_path)


def _config_init(arguments: argparse.Namespace) -> int:
    from headrace.config import home_dir
    from headrace.doors.terminal.config import init

    return init(
        home_dir(os.environ), os.environ, sys.stdin, sys.stdout, sys.stderr,
        model=arguments.model, fallbacks=arguments.fallback, force=arguments.force,
    )  # fmt: skip


def _config_check(_: argparse.Namespace) -> int:
    from headrace.config import home_dir
    from headrace.doors.terminal.config import check

    return check(home_dir(os.environ), os.environ, sys.stdout, sys.stderr)


def _config_path(_: argparse.Namespace) -> int:
    from headrace.config import home_dir
    from headrace.doors.terminal.config import show_path

    return show_path(home_dir(os.environ), sys.stdout, sys.stderr)


@contextlib.contextmanager
def _fetch_bar(app: "App") -> "Iterator[None]":
    """Show how the embedded model's weights arrive, if they have to be fetched."""
    from headrace.doors.terminal.fetching import FetchBar

    bar = FetchBar(sys.stderr, "the embedded model")
    app.fetch_progress = bar
    try:
        yield
    finally:
        bar.end()


def _chat(arguments: argparse.Namespace) -> int:
    talks = not arguments.question and not arguments.json and sys.stdin.isatty()
    return _converse(arguments) if talks else _ask(arguments)


def _converse(arguments: argparse.Namespace) -> int:
    from headrace.app import App
    from headrace.doors.terminal.chat import converse
    from headrace.events import user_message

    app = App.from_env(os.environ)
    session = app.session(arguments.session)
    answering = _answering(app, arguments.model)

    def start(question: str, printer: "Printer") -> "Turn":
        app.fetch_progress = printer.fetching
        acting, manner = _acting(arguments, attended=True), app.config.sessions.when_busy.people
        return app.start([user_message(question)], arguments.model, session, acting=acting, manner=manner)

    return converse(answering, start, session, app.close, thoughts=arguments.thoughts)


def _answering(app: "App", model: str | None) -> str:
    """Who answers, as a person is told; raises ConfigError where the model cannot be asked."""
    mixture, _ = app.mixture(model)
    name = mixture.name if mixture else app.candidates(model)[0].model_id
    if model is None and app.config.model is None:
        return f"{name}, a small model on this machine, answers; `headrace config init` chooses another."
    return f"{name} answers."


def _ask(arguments: argparse.Namespace) -> int:
    question = _question(arguments.question)
    if not question.strip():
        print("headrace: there is no question; write it behind the command or pipe it in", file=sys.stderr)
        return 2
    return _run(_answer(question, arguments))


def _question(words: list[str]) -> str:
    """The words of the command line, and below them what was piped in."""
    parts = [" ".join(words)] if words else []
    if not sys.stdin.isatty():
        parts.append(_piped_in())
    return "\n\n".join(part for part in parts if part.strip())


def _piped_in() -> str:
    """What standard input holds; raises UserError for more than a question may be."""
    from headrace.errors import UserError
    from headrace.limits import QUESTION_MAX_CHARS

    text = sys.stdin.read(QUESTION_MAX_CHARS + 1)
    if len(text) > QUESTION_MAX_CHARS:
        raise UserError(
            f"what is piped in is longer than {QUESTION_MAX_CHARS:,} characters, which is more than models read; "
            "pipe in less of it"
        )
    return text


async def _answer(question: str, arguments: argparse.Namespace) -> int:
    import asyncio

    from headrace.app import App
    from headrace.doors.terminal import EXIT
    from headrace.doors.terminal.leaving import leaving
    from headrace.doors.terminal.person import Person
    from headrace.doors.terminal.plain import GONE, Printer, show, show_json, stopping
    from headrace.events import user_message

    app = App.from_env(os.environ)
    printer = Printer(sys.stdout, sys.stderr, thoughts=arguments.thoughts)
    app.fetch_progress = printer.fetching
    try:
        person = Person(sys.stdin.fileno()) if sys.stdin.isatty() and not arguments.json else None
        acting = _acting(arguments, attended=person is not None) if arguments.acts else None
        session = app.session(arguments.session)
        with stopping(asyncio.get_running_loop()) as stop:
            turn = app.start([user_message(question)], arguments.model, session, acting=acting)
            stop.watch(turn)
            with leaving(sys.stdout, lambda: turn.stop(GONE)):
                await (show_json(turn, sys.stdout) if arguments.json else show(turn, printer, person))
                closed = await turn.wait()
        if closed.cause == GONE:
            raise BrokenPipeError
        return EXIT[closed.outcome]
    finally:
        await app.close()


def _acting(arguments: argparse.Namespace, *, attended: bool) -> "Acting":
    from headrace.runtime.question import Acting

    return Acting(
        folder=Path.cwd(),
        attended=attended,
        assume_yes=arguments.yes,
        tools=arguments.tools,
        context_files=not arguments.skip_context_files,
        memory=not arguments.skip_memory,
    )


def _run(work: Coroutine[Any, Any, int]) -> int:
    try:
        import asyncio

        return asyncio.run(work)
    finally:
        work.close()  # Ctrl-C may come before it has begun
