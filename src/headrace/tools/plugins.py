"""Tools that other packages bring, found through the entry point group `headrace.tools`.

Theory of operation. An entry point names a tool, or something to call without arguments that returns one or several.
A package that cannot be loaded, or whose tool does not fit the port, is named with its reason, and the others are used:
a broken plug-in costs its own tools and nothing else. `docs/tools.md` has a complete example.
"""

import logging
import re
from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from headrace.ports import Tool, ToolSpec

GROUP: Final = "headrace.tools"
_NAME: Final = re.compile(r"[A-Za-z_][\w-]{0,63}", re.ASCII)
_log = logging.getLogger(__name__)


class Unfit(Exception):
    """What an entry point gave is not a tool; the message says what is missing."""


def third_party(taken: Iterable[str] = (), say: Callable[[str], None] = _log.warning) -> tuple[Tool, ...]:
    """Every tool that is installed beside headrace. `taken`: names that are in use already; `say` hears of each tool
    that cannot be used, and why."""
    names = set(taken)
    found: list[Tool] = []
    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)):
        try:
            for tool in _loaded(point):
                _checked(tool, names)
                names.add(tool.spec.name)
                found.append(tool)
        except (Exception, SystemExit) as error:  # noqa: BLE001 -- what others' code raises is not known
            reason = str(error) if isinstance(error, Unfit) else f"{type(error).__name__}: {error}"
            say(f"The tool {point.name} of {_package(point)} cannot be used: {reason}")
    return tuple(found)


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value


def _loaded(point: EntryPoint) -> Iterable[Any]:
    given = point.load()
    if isinstance(given, type) or (callable(given) and not hasattr(given, "spec")):
        given = given()
    return given if isinstance(given, (list, tuple)) else (given,)


def _checked(tool: Any, names: set[str]) -> None:
    missing = [name for name in ("spec", "only_reads", "touches", "run", "close") if not hasattr(tool, name)]
    if missing:
        raise Unfit(f"{type(tool).__name__} has no {', '.join(missing)}.")
    spec = tool.spec
    if not isinstance(spec, ToolSpec):
        raise Unfit("its spec is not a headrace.ports.ToolSpec.")
    if not _NAME.fullmatch(spec.name):
        raise Unfit(f"{spec.name!r} is no name for a tool: up to 64 letters, digits, '_' and '-'.")
    if spec.name in names:
        raise Unfit(f"there is a tool named {spec.name} already.")
    if spec.parameters.get("type") != "object":
        raise Unfit('its parameters are not a JSON schema of {"type": "object"}.')
