"""JSON as peers send it: strict and fast first, forgiving where a real provider needs it.

msgspec refuses a lone surrogate escape, which providers do send when they cut text between the halves of an emoji;
`parse` then goes the slow way through the standard library and leaves the halves in the strings, for `repair` and
for whoever can join them with the next delta. NaN and Infinity are no JSON, here as there. Everything that cannot
be read raises MalformedStream with a short reason.
"""

import json
from typing import Any, Final, NoReturn

import msgspec

from headrace.errors import MalformedStream

_strict = msgspec.json.Decoder().decode
_dumps = msgspec.json.Encoder().encode
_BOM: Final = "\ufeff"


def parse(data: bytes | str, what: str = "a JSON value") -> Any:
    """Read one JSON value."""
    try:
        return _strict(data)
    except (ValueError, RecursionError):  # both of msgspec's errors are ValueErrors
        return _parse_slowly(data, what)


def _parse_slowly(data: bytes | str, what: str) -> Any:
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
        return _lenient.decode(text.removeprefix(_BOM))
    except UnicodeDecodeError:
        raise MalformedStream(f"{what} is not valid UTF-8") from None
    except RecursionError:
        raise MalformedStream(f"{what} is nested too deeply") from None
    except ValueError:
        raise MalformedStream(f"{what} cannot be read") from None


def parse_at(text: str, start: int) -> tuple[Any, int]:
    """Read the JSON value that begins at `start`; also says where it ends."""
    try:
        return _lenient.raw_decode(text, start)
    except (ValueError, RecursionError):
        raise MalformedStream("a JSON value cannot be read") from None


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


def _finite(digits: str) -> float:
    number = float(digits)
    return number if abs(number) != float("inf") else _refuse(digits)


_lenient: Final = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)


def dump(value: Any) -> str:
    """`value` as compact JSON text; lone surrogates go out as the escapes they came as."""
    try:
        try:
            return _dumps(value).decode()
        except UnicodeEncodeError:
            return json.dumps(value, separators=(",", ":"))
    except RecursionError:
        raise MalformedStream("a JSON value is nested too deeply") from None


def repair(text: str) -> str:
    """Join surrogate pairs that escapes spelled out, and replace halves that stay alone."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def ends_in_half(text: str) -> bool:
    """Whether `text` stops after the first half of a surrogate pair."""
    return "\ud800" <= text[-1:] <= "\udbff"


def is_whole_object(text: str) -> bool:
    """Whether `text` is one complete JSON object."""
    try:
        return isinstance(parse(text), dict)
    except MalformedStream:
        return False
