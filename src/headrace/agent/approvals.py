"""What a tool call may do: decided by rules alone, before it runs, the same for every door.

Theory of operation. A call is judged on what it would touch, never on what a prompt or a result says. The first rule
that fits decides; without one, the tool's mode does; without that, the defaults:

    reading inside the working folder    allow        fetching, asking the person, nothing at all    allow
    writing inside it, running commands, ask          anything outside the folder                    deny
    remembering

"Outside" is decided on resolved paths, so a symbolic link or `..` leads nowhere, and no rule but one that names a path
outside opens it. Where the answer is `ask` and nobody is there to be asked, the call is denied, and the model is told.

A rule errs to the safe side, which is not the same side for all of them. One that allows fits what is surely meant: a
path there or below; a single plain command that begins with its words. One that asks or denies fits what may be meant:
a command in which its words stand anywhere, after `;` or behind a path or within quotes. And what it holds back in a
folder it holds back for the folder as well, because a search goes down into it.
"""

import re
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from headrace.ports import Touch

Mode = Literal["allow", "ask", "deny"]

_STRICTNESS: Final[dict[Mode, int]] = {"deny": 0, "ask": 1, "allow": 2}
_SHELL: Final = frozenset(";|&<>`$()\n\r{}")
"""What may begin or hide another command."""
_BLANK: Final = re.compile(r"[ \t]+")
"""What a shell splits words at. A no-break space is part of a word to it."""
_BETWEEN: Final = re.compile(r"[\s;|&<>`$(){}=]+")
_QUOTING: Final = re.compile(r"[\"'\\]")


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`then` for calls of `tool` whose path or command begins with the given prefix."""

    tool: str
    path: str = ""
    """Resolved, like what it is held against."""
    command: str = ""
    then: Mode


class Rules(msgspec.Struct, frozen=True):
    modes: Mapping[str, Mode] = {}
    rules: tuple[Rule, ...] = ()
    assume_yes: bool = False
    """What would be asked is allowed; what is denied stays denied."""


class Judged(msgspec.Struct, frozen=True):
    mode: Mode
    why: str


def judge(tool: str, touch: Touch, *, real_path: str, folder: str, rules: Rules) -> Judged:
    """`real_path` is the resolved target of a read or a write, `folder` the resolved working folder."""
    own = [rule for rule in rules.rules if rule.tool == tool]
    fitting = next((at for at, rule in enumerate(own) if _fits(rule, touch, real_path, folder)), len(own))
    held = [_by(rule) for rule in own[:fitting] if _holds_back(rule, touch, real_path)]
    decided = (
        _by(own[fitting]) if fitting < len(own) else _without_a_rule(tool, touch, real_path, folder, rules)
    )
    judged = min((*held, decided), key=lambda each: _STRICTNESS[each.mode])
    if judged.mode == "ask" and rules.assume_yes:
        return Judged("allow", "what would be asked was allowed beforehand")
    return judged


def _by(rule: Rule) -> Judged:
    about = rule.path or rule.command
    return Judged(rule.then, f"a rule for {rule.tool}{f' and {about}' if about else ''} says so")


def _without_a_rule(tool: str, touch: Touch, real_path: str, folder: str, rules: Rules) -> Judged:
    if on_disk(touch) and not within(real_path, folder):
        return Judged("deny", f"{touch.target} is outside the working folder {folder}")
    mode = rules.modes.get(tool)
    if mode is not None:
        return Judged(mode, f"{tool} is set to {mode}")
    return Judged("ask" if touch.kind in ("write", "run", "remember") else "allow", "by default")


def on_disk(touch: Touch) -> bool:
    """Whether its target is a path."""
    return touch.kind in ("read", "write")


def within(path: str, folder: str) -> bool:
    """Whether a resolved path is the folder or lies in it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _fits(rule: Rule, touch: Touch, real_path: str, folder: str) -> bool:
    if rule.path:
        return on_disk(touch) and within(real_path, rule.path)
    if rule.command:
        fits = _is_command if rule.then == "allow" else _has_words
        return touch.kind == "run" and fits(touch.target, rule.command)
    # A rule for all calls of a tool does not open what is outside the folder.
    return not on_disk(touch) or within(real_path, folder)


def _holds_back(rule: Rule, touch: Touch, real_path: str) -> bool:
    """Whether what it is about lies within the path: it decides nothing there, but nothing bolder is decided."""
    return bool(rule.path) and on_disk(touch) and within(rule.path, real_path)


def _is_command(command: str, prefix: str) -> bool:
    """Whether it is a single plain command that begins with the words of `prefix`."""
    if not _SHELL.isdisjoint(command):
        return False
    words, wanted = _BLANK.split(command.strip(" \t")), prefix.split()
    return bool(wanted) and words[: len(wanted)] == wanted


def _has_words(command: str, prefix: str) -> bool:
    """Whether the words of `prefix` stand in it one after the other, the first of them perhaps behind a path."""
    words, wanted = _words(command), _words(prefix)
    if not wanted:
        return True
    return any(
        wanted[0] in (word, word.rpartition("/")[2]) and words[at + 1 : at + len(wanted)] == wanted[1:]
        for at, word in enumerate(words)
    )


def _words(command: str) -> list[str]:
    return [word for word in _BETWEEN.split(_QUOTING.sub("", command)) if word]
