"""How a wrong value is quoted to a person, and when it is not.

Theory of operation. A message about a wrong value is more useful with the value in it, and it travels: to a
terminal, a log, a bug report. People paste keys into the wrong place, so a value is quoted only if neither the
place it stands in nor the value itself suggests a secret. A list or mapping is named by its kind, never quoted,
because what hides inside has not been looked at. In doubt nothing is shown: the line and the key's path are
enough to find a value in one's own file.
"""

import re
from typing import Final

from headrace.limits import CONFIG_QUOTE_MAX_CHARS

HIDDEN: Final = "a value that is not shown here because it may be a secret"

_SECRET_PLACE = re.compile(r"key|token(?!s)|secret|passw|auth|credential|cookie|bearer|header", re.IGNORECASE)
_SECRET_START = re.compile(
    r"(?:^|[^A-Za-z0-9])(?:sk|pk|rk|gsk|hf|xai|ghp|gho|ghs|glpat|xox[a-z]|nvapi|pplx|r8|github_pat)[-_]\w|(?:^|\s)key-\w"
    r"|AIza|AKIA|ya29\.|eyJ|(?i:bearer\s|(?:key|token|secret|passw\w*)\s*[=:])"
    r"|://[^/\s]*@|[?&][^=\s]*="
)
_RUN = re.compile(r"[A-Za-z0-9+]{20,}|[A-Za-z0-9_+-]{32,}")


def looks_secret(text: str) -> bool:
    """Whether `text` may hold a key: a known beginning, a login in an address, or a long run of letters and digits."""
    if _SECRET_START.search(text):
        return True
    return any(any(c.isdigit() for c in run) and any(c.isalpha() for c in run) for run in _RUN.findall(text))


def shown_value(value: object, path: tuple[str | int, ...] = ()) -> str:
    """`value`, which stands at `path`, as a message may quote it."""
    if isinstance(value, (list, dict)):
        return "a list" if isinstance(value, list) else "a mapping"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if any(isinstance(step, str) and _SECRET_PLACE.search(step) for step in path) or looks_secret(str(value)):
        return HIDDEN
    return _quoted(value) if isinstance(value, str) else _short(str(value))


def shown_path(path: tuple[str | int, ...]) -> str:
    """`("providers", "a.b", "headers")` as `providers."a.b".headers`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += ("." if text else "") + shown_key(step)
    return text


def shown_key(key: str) -> str:
    if looks_secret(key):
        return "<a key that is not shown here because it may be a secret>"
    return key if re.fullmatch(r"[A-Za-z0-9_-]{1,60}", key) else _quoted(key)


def _quoted(text: str) -> str:
    """In quotes, with everything escaped that a terminal would not print."""
    escaped = repr(_short(text))[1:-1].replace("\\'", "'").replace("\\\\", "\\")
    return f'"{escaped}"'


def _short(text: str) -> str:
    return text if len(text) <= CONFIG_QUOTE_MAX_CHARS else text[:CONFIG_QUOTE_MAX_CHARS] + "…"
