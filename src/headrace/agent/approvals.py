"""What a tool call may do: decided by rules alone, before it runs, the same for every door.

Theory of operation. A call is judged on what it would touch, never on what a prompt or a result says. The first rule
that fits decides; without one, the tool's mode does; without that, the defaults:

    reading inside the working folder    allow        fetching, asking the person, nothing at all    allow
    writing inside it, running commands  ask          anything outside the folder                    deny

"Outside" is decided on resolved paths, so a symbolic link or `..` leads nowhere, and no rule but one that names a path
outside opens it. Where the answer is `ask` and nobody is there to be asked, the call is denied, and the model is told.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from headrace.ports import Touch

Mode = Literal["allow", "ask", "deny"]


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`then` for calls of `tool` whose path or command begins with the given prefix."""

    tool: str
    path: str = ""
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
    on_disk = touch.kind in ("read", "write")
    for rule in rules.rules:
        if rule.tool == tool and _fits(rule, touch, real_path, folder):
            return _asked(Judged(rule.then, f"a rule for {tool} says so"), rules)
    if on_disk and not within(real_path, folder):
        return Judged("deny", f"{touch.target} is outside the working folder {folder}")
    mode = rules.modes.get(tool)
    if mode is not None:
        return _asked(Judged(mode, f"{tool} is set to {mode}"), rules)
    default: Mode = "ask" if touch.kind in ("write", "run") else "allow"
    return _asked(Judged(default, "by default"), rules)


def within(path: str, folder: str) -> bool:
    """Whether a resolved path is the folder or lies in it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _fits(rule: Rule, touch: Touch, real_path: str, folder: str) -> bool:
    if rule.path:
        prefix = rule.path if rule.path.startswith("/") else f"{folder}/{rule.path}"
        return touch.kind in ("read", "write") and within(real_path, prefix.rstrip("/"))
    if rule.command:
        return touch.kind == "run" and _is_command(touch.target, rule.command)
    # A rule for all calls of a tool does not open what is outside the folder.
    return touch.kind not in ("read", "write") or within(real_path, folder)


def _is_command(command: str, prefix: str) -> bool:
    """Word by word, and only for a single plain command: a shell can hide another one behind `;`, `|` or `$(`."""
    if any(mark in command for mark in ";|&<>`$()\n\\{}"):
        return False
    words, wanted = command.split(), prefix.split()
    return words[: len(wanted)] == wanted


def _asked(judged: Judged, rules: Rules) -> Judged:
    if judged.mode == "ask" and rules.assume_yes:
        return Judged("allow", "what would be asked was allowed beforehand")
    return judged
