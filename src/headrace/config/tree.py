"""A configuration file as it was read, before anything of it is believed."""

from typing import Final

import msgspec

Path = tuple[str | int, ...]
"""From the top of the file to a value: keys, and numbers of list entries."""

Scalar = str | int | float | bool | None


class Node(msgspec.Struct, frozen=True):
    """A value, and where it was written."""

    value: "Scalar | list[Node] | dict[str, Node]"
    line: int
    """Of its key, for the value of a key."""
    size: int = 1
    """How many values it is, itself included and aliases written out."""


EMPTY: Final = Node({}, 1)
