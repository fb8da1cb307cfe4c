"""What about a body does not fit its schema, in words that name the place.

Theory of operation. A checker says of a value with several forms no more than that none of them fits. Which form is
meant shows in the value: null or not, its kind, its role or type. Where that leaves one, what is wrong is what that
form says is wrong.
"""

from typing import Any, Final

import fastjsonschema

from headrace.doors.api.schemas import Schema

_KINDS: Final[dict[str, type | tuple[type, ...]]] = {
    "null": type(None),
    "string": str,
    "array": list,
    "object": dict,
    "number": (int, float),
    "integer": (int, float),
    "boolean": bool,
}


def misfit(error: fastjsonschema.JsonSchemaValueException) -> tuple[str, str]:
    """What is wrong, and the path to it."""
    path: list[str] = []
    while True:
        path += map(str, error.path[1:])
        inner = _within(error)
        if inner is None:
            where = ".".join(["the body", *path])
            return f"{where} {error.message.removeprefix(str(error.name)).strip()}", ".".join(path)
        error = inner


def _within(error: fastjsonschema.JsonSchemaValueException) -> fastjsonschema.JsonSchemaValueException | None:
    """What the form that is meant says; None where no one form is."""
    if error.rule != "anyOf":
        return None
    meant = [form for form in error.definition["anyOf"] if _is_meant(form, error.value)]
    if len(meant) == 1:
        try:
            fastjsonschema.compile(meant[0])(error.value)
        except fastjsonschema.JsonSchemaValueException as inner:
            return inner
    return None


def _is_meant(form: Schema, value: Any) -> bool:
    kind = form.get("type", "string" if "enum" in form else None)
    if kind is not None and not isinstance(value, _KINDS[kind]):
        return False
    if not isinstance(value, dict):
        return True
    marks = {name: form.get("properties", {}).get(name) for name in ("role", "type")}
    return all(
        value[name] == mark["const"] if "const" in mark else value[name] in mark.get("enum", [value[name]])
        for name, mark in marks.items()
        if mark is not None and name in value
    )
