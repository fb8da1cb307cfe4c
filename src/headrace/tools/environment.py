"""The environment of child processes: what programs need, and nobody's secrets.

Theory of operation. What a person exports for headrace (keys of providers, tokens of bots) must not be one `env` away
from a model. A variable is dropped

* if it is named in the configuration as holding a secret,
* if one of the words of its name says so (`SECRET_WORDS`: OPENAI_API_KEY, GITHUB_TOKEN, PGPASSWORD, ...), or
* if its value is a secret on its face: a URL with a password in it, or a key in one of the well-known forms.

Rather one variable too many than one too few: a person who wants a program to have one gives it in a file that the
program reads. What remains open: files such as `~/.netrc` or `~/.aws/credentials` are the person's, and commands run
as that person; and where the system lets a process read its parent's environment, it can read headrace's.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

SECRET_WORDS: Final = (
    "KEY", "KEYS", "APIKEY", "TOKEN", "TOKENS", "SECRET", "SECRETS", "PASSWORD", "PASSWD", "PASSPHRASE", "PASS", "PWD",
    "CREDENTIAL", "CREDENTIALS", "CREDS", "AUTH", "COOKIE", "JWT", "BEARER", "DSN", "PAT", "PRIVATE",
)  # fmt: skip
"""Words of names, between underscores."""

_WITHIN: Final = re.compile(r"APIKEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|ACCESSKEY|PRIVATEKEY")
"""What gives a name away wherever it stands in it."""

_VALUE: Final = re.compile(
    r"://[^/\s:@]*:[^/\s@]+@"  # a URL with a password
    r"|\b(sk|pk|rk)-[\w-]{16}|\bgh[pousr]_\w{16}|\bgithub_pat_\w|\bglpat-\w|\bxox[abeoprs]-\w|\bAKIA[0-9A-Z]{12}"
    r"|\bAIza[\w-]{20}|\bhf_\w{20}|\beyJ[\w-]+\.eyJ|-----BEGIN [A-Z ]*PRIVATE KEY"
)

_HARMLESS: Final = frozenset({"PWD", "OLDPWD", "SSH_AUTH_SOCK", "XAUTHORITY"})
"""Names that sound like it: folders, and the ways to an agent or a screen, which hold no secret themselves."""

_SET: Final = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}
"""Nobody sits at this terminal: no colours, no paging, no prompts."""


def child_environment(env: Mapping[str, str], secret_names: Iterable[str]) -> dict[str, str]:
    """`env` for child processes: without the variables named and those that look like secrets."""
    named = frozenset(secret_names)
    kept = {name: value for name, value in env.items() if name not in named and not looks_secret(name, value)}
    kept.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin")
    if not {"LANG", "LC_ALL", "LC_CTYPE"} & kept.keys():
        kept["LANG"] = "C.UTF-8"
    return kept | _SET


def looks_secret(name: str, value: str) -> bool:
    upper = name.upper()
    if upper in _HARMLESS:
        return False
    words = re.split(r"[^A-Z]+", upper)
    return (
        any(word in SECRET_WORDS for word in words)
        or _WITHIN.search(upper) is not None
        or _VALUE.search(value) is not None
    )
