"""Questions at the start, one line each.

Theory of operation. A question is a line with its default in brackets; an empty line takes the default, so a person
who only presses Enter has a configuration that works. Answers are read as plain lines, from a person or a pipe. One
that does not fit is asked for again, a few times. Whoever ends the input or presses Ctrl-C has given no answers:
`NoAnswers` says how they left.
"""

from collections.abc import Callable, Sequence
from typing import Final, TextIO, TypeVar

from headrace.config import Config
from headrace.config.offers import Offer
from headrace.config.resolved import LOCAL, unknown_provider
from headrace.config.showing import looks_secret
from headrace.config.template import Answers, answers
from headrace.errors import ConfigError, UserError

# Wrong answers to one question; a pipe that sends nothing else would be asked for ever.
TRIES_MAX: Final = 5
# Read of one line; far more than the longest name of a model.
ANSWER_MAX_CHARS: Final = 4096

T = TypeVar("T")


class NoAnswers(UserError):
    """The person left, or answered nothing that fits."""


def ask(offered: Sequence[Offer], known: Config, stdin: TextIO, stdout: TextIO) -> Answers:
    """Ask everything. Raises NoAnswers; Ctrl-C goes through as KeyboardInterrupt."""
    asking = _Asking(stdin, stdout)
    offer = _provider(offered, known, asking)
    if offer.name == LOCAL:
        return answers(LOCAL, (), known)
    model = _model(offer, known, asking)
    fall_back = asking.yes(f"If {offer.name} cannot answer, ask the local model instead?")
    return answers(model, (LOCAL,) if fall_back else (), known)


def _provider(offered: Sequence[Offer], known: Config, asking: "_Asking") -> Offer:
    width = max(len(offer.name) for offer in offered)
    asking.say("Which provider shall answer? Enter takes what stands in [brackets], Ctrl-C leaves.\n")
    for number, offer in enumerate(offered, start=1):
        asking.say(f"  {number:>2}  {offer.name:<{width}}  {offer.about}\n")

    def chosen(text: str) -> Offer:
        wanted = text.lower()
        for number, offer in enumerate(offered, start=1):
            if wanted in (offer.name, str(number)):
                return offer
        if wanted.isdecimal():
            raise ConfigError(f"the numbers go from 1 to {len(offered)}")
        raise ConfigError(unknown_provider(wanted, known.providers))

    return asking.answer(f"Provider [{offered[0].name}]: ", offered[0].name, chosen)


def _model(offer: Offer, known: Config, asking: "_Asking") -> str:
    def named(text: str) -> str:
        name = text.removeprefix(f"{offer.name}:")
        answers(f"{offer.name}:{name}", (), known)
        if looks_secret(name) and not asking.yes(
            "That looks like a key, which has no place here. Is it a model?"
        ):
            raise ConfigError("a key is exported as an environment variable and not written down")
        return f"{offer.name}:{name}"

    return asking.answer(
        f"Model, by the name {offer.name} gives it [{offer.example}]: ", offer.example, named
    )


class _Asking:
    """Puts questions on one stream and reads answers from another."""

    def __init__(self, stdin: TextIO, stdout: TextIO) -> None:
        self._in = stdin
        self._out = stdout

    def say(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()

    def yes(self, question: str) -> bool:
        def meant(text: str) -> bool:
            if text.lower() not in ("y", "yes", "n", "no"):
                raise ConfigError("y or n")
            return text.lower().startswith("y")

        return self.answer(f"{question} y/n [n]: ", "n", meant)

    def answer(self, question: str, default: str, read: Callable[[str], T]) -> T:
        """The first answer that `read` takes; it raises ConfigError for one that does not fit."""
        for _ in range(TRIES_MAX):
            self.say(question)
            text = self._line() or default
            try:
                return read(text)
            except ConfigError as error:
                self.say(f"  {error}\n")
        raise NoAnswers(f"no answer fitted in {TRIES_MAX} tries")

    def _line(self) -> str:
        try:
            line = self._in.readline(ANSWER_MAX_CHARS)
        except UnicodeDecodeError:
            raise NoAnswers("what came in is not UTF-8 text") from None
        if not line:
            raise NoAnswers("the input ended")
        if not self._in.isatty():
            self.say("\n")  # a terminal shows the line that was typed; a pipe does not
        return line.strip()
