"""Every failure, typed by who must act.

Theory of operation. A failure exists twice, once as data and once as control flow:

* `Cause` is data. It goes into the log, over the wire and before people's eyes: a `code` out of one closed
  set, a sentence, and the few numbers a program may want. `CAUSES` says for every code who has to act on it,
  whether asking again may help, and whether it means that a stream ended without its terminal evidence.
* Exceptions are control flow. `CallError` carries a `Cause` from where a call to a model broke to the one
  place that decides what follows. `Bug` means that headrace broke a rule of its own.

Nothing outside a provider's adapter looks into the text of an error; all decisions are made on codes.
"""

from typing import Final, Literal, NamedTuple, get_args

import msgspec

Outcome = Literal[
    "stop", "tool_calls", "length", "limit", "content_filter", "refused", "cut", "error", "cancelled"
]
OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)

Who = Literal["user", "caller", "provider", "network", "headrace", "nobody"]

CauseCode = Literal[
    # the turn ended as it should
    "answered", "calls_returned", "output_truncated", "filtered", "declined",
    # a bound of the turn was met
    "step_limit", "token_limit", "time_limit", "cost_limit",
    # somebody stopped it
    "stopped", "interrupted", "client_disconnected", "shutdown", "superseded",
    # the connection or the stream broke
    "connect_failed", "tls_failed", "connection_lost", "no_terminal", "malformed_stream", "empty_reply",
    "stalled_connect", "stalled_first_event", "stalled_gap", "stalled_progress", "stalled_total",
    # the provider said no
    "request_timeout", "conflict", "too_early", "rate_limited", "overloaded", "server_error", "provider_error",
    "finish_error", "finish_unknown",
    # the provider says that somebody else has to act
    "key_rejected", "key_missing", "forbidden", "payment_required", "quota_exhausted", "model_not_found",
    "bad_request", "request_too_large", "streaming_unsupported", "parameter_rejected",
    # the reply could not be used
    "tool_call_cut",
    # our side
    "config_invalid", "dependency_missing", "resources_short", "store_failed", "crashed", "bug",
]  # fmt: skip


class Trait(NamedTuple):
    """What is known of every cause of one code."""

    who: Who
    outcome: Outcome
    transient: bool = False
    """Asking the same model again may help."""
    cuts: bool = False
    """The stream ended without terminal evidence: after something visible the outcome is `cut`."""


def _broken(who: Who) -> Trait:
    return Trait(who, "error", transient=True, cuts=True)


CAUSES: Final[dict[CauseCode, Trait]] = {
    "answered": Trait("nobody", "stop"),
    "calls_returned": Trait("caller", "tool_calls"),
    "output_truncated": Trait("user", "length"),
    "filtered": Trait("user", "content_filter"),
    "declined": Trait("user", "refused"),
    "step_limit": Trait("user", "limit"),
    "token_limit": Trait("user", "limit"),
    "time_limit": Trait("user", "limit"),
    "cost_limit": Trait("user", "limit"),
    "stopped": Trait("nobody", "cancelled"),
    "interrupted": Trait("nobody", "cancelled"),
    "client_disconnected": Trait("nobody", "cancelled"),
    "shutdown": Trait("nobody", "cancelled"),
    "superseded": Trait("nobody", "cancelled"),
    "connect_failed": _broken("network"),
    "tls_failed": Trait("user", "error"),
    "connection_lost": _broken("network"),
    "no_terminal": _broken("provider"),
    "malformed_stream": _broken("provider"),
    "empty_reply": Trait("provider", "error", transient=True),
    "stalled_connect": _broken("network"),
    "stalled_first_event": _broken("provider"),
    "stalled_gap": _broken("provider"),
    "stalled_progress": _broken("provider"),
    "stalled_total": _broken("provider"),
    "request_timeout": Trait("provider", "error", transient=True),
    "conflict": Trait("provider", "error", transient=True),
    "too_early": Trait("provider", "error", transient=True),
    "rate_limited": Trait("provider", "error", transient=True),
    "overloaded": Trait("provider", "error", transient=True),
    "server_error": Trait("provider", "error", transient=True),
    "provider_error": Trait("provider", "error"),
    "finish_error": Trait("provider", "error", transient=True),
    "finish_unknown": Trait("headrace", "error"),
    "key_rejected": Trait("user", "error"),
    "key_missing": Trait("user", "error"),
    "forbidden": Trait("user", "error"),
    "payment_required": Trait("user", "error"),
    "quota_exhausted": Trait("user", "error"),
    "model_not_found": Trait("user", "error"),
    "bad_request": Trait("caller", "error"),
    "request_too_large": Trait("caller", "error"),
    "streaming_unsupported": Trait("provider", "error"),
    "parameter_rejected": Trait("caller", "error"),
    "tool_call_cut": Trait("provider", "error"),
    "config_invalid": Trait("user", "error"),
    "dependency_missing": Trait("user", "error"),
    "resources_short": Trait("user", "error"),
    "store_failed": Trait("user", "error"),
    "crashed": Trait("headrace", "error"),
    "bug": Trait("headrace", "error"),
}


class Cause(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why something ended as it did: data for logs, clients and people."""

    code: CauseCode
    message: str
    """One or two sentences for a person: what happened, where, what to do next. Never a secret."""
    status: int | None = None
    """The HTTP status, where there was one."""
    retry_after_s: float | None = None
    provider_code: str = ""
    """The provider's own code for it, as it was sent."""
    parameter: str = ""
    """The request's parameter that was refused, where the provider names one."""

    @property
    def trait(self) -> Trait:
        return CAUSES[self.code]

    @property
    def transient(self) -> bool:
        return CAUSES[self.code].transient

    def outcome(self, *, visible: bool) -> Outcome:
        """How a turn ends that ends for this cause."""
        trait = CAUSES[self.code]
        return "cut" if trait.cuts and visible else trait.outcome


class HeadraceError(Exception):
    """The root of everything headrace raises on purpose."""

    who: Who = "headrace"


class Bug(HeadraceError):
    """headrace broke a rule of its own. Please report it."""


class IllegalTransition(Bug):
    """An event that may not follow in the state its turn is in."""


class UserError(HeadraceError):
    """The person at the machine has to change something."""

    who = "user"


class ConfigError(UserError):
    """The configuration is wrong; the message names the file, the key's path and what was expected."""


class StoreError(UserError):
    """What happened could not be written down: the disk is full, or may not be written."""

    def __init__(self, where: str, error: OSError) -> None:
        super().__init__(
            f"{where} cannot be written: {error.strerror or error}. What had been written is as it was."
        )


class CallError(HeadraceError):
    """A call to a model, or one attempt at it, ended without a usable end."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(cause.message)
        self.cause = cause

    @property
    def who(self) -> Who:  # type: ignore[override]
        return self.cause.trait.who


class MalformedStream(CallError):
    """The peer sent bytes that are not of its protocol: the one error a decoder declares for bad input."""

    def __init__(self, reason: str) -> None:
        super().__init__(Cause("malformed_stream", f"The provider sent a malformed stream: {reason}."))
        self.reason = reason
