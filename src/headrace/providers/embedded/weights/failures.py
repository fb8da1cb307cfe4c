"""What can go wrong with weights, typed; and foreign exceptions translated, at this one seam.

Two kinds. A `WeightsError` leaves the store: it says what happened, where, and what to do. A `SourceFailed` stays
within it: one source could not deliver, and the next is tried.
"""

import errno
import os
import ssl
from pathlib import Path
from typing import Final

import aiohttp

from headrace.errors import CallError, Cause, CauseCode, HeadraceError


class WeightsError(CallError):
    """The model's file is not there and could not be got. Asking again without a change does not help."""

    code: CauseCode = "dependency_missing"

    def __init__(self, message: str) -> None:
        super().__init__(Cause(self.code, message))


class UnknownModel(WeightsError):
    """No model has this name."""

    code = "model_not_found"


class NotAModel(WeightsError):
    """A file of the user's own is not there, or holds something else."""

    code = "model_not_found"


class NoSource(WeightsError):
    """No source could deliver."""


class DiskFull(WeightsError):
    code = "resources_short"


class Denied(WeightsError):
    """The system does not let us read or write where the models are."""

    code = "config_invalid"


class Busy(WeightsError):
    """Another process is fetching the model."""

    code = "resources_short"


class SourceFailed(HeadraceError):
    """One source could not deliver; its words end without a full stop."""

    who = "network"


class Broken(SourceFailed):
    """The connection broke; what has come is good, and asking for the rest may help."""


class WrongBytes(HeadraceError):
    """What lies on the disk is not what the hash asks for; it has been thrown away."""

    def __init__(self, *, inherited: bool) -> None:
        super().__init__("the bytes are not the right ones")
        self.inherited = inherited
        """Some of them were there before this source began."""


_FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED: Final = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.EISDIR}


def disk_error(error: OSError, path: Path, missing: int) -> WeightsError:
    """What a failed write or open means."""
    reason = (error.strerror or str(error)).lower()
    if error.errno in _FULL:
        return DiskFull(
            f"The disk is full: {path} needs {megabytes(missing)} more ({reason}). Free some space and try again; "
            "what has been fetched is kept."
        )
    if error.errno in _DENIED:
        return Denied(
            f"{error.filename or path}: it cannot be written ({reason}). Check its permissions, or set "
            "HEADRACE_HOME to a folder that is yours."
        )
    return Denied(f"{path}: it cannot be written ({reason}). Check the disk.")


def network_error(error: Exception) -> SourceFailed:
    """aiohttp's exceptions in words, most precise first."""
    match error:
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError() | ssl.SSLError():
            return SourceFailed("no secure connection could be made; check SSL_CERT_FILE or PIP_CERT")
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            return SourceFailed("its address is not a web address")
        case aiohttp.ClientConnectorDNSError():
            return Broken("its name is not known to this network")
        case aiohttp.ClientConnectorError() | aiohttp.ClientHttpProxyError():
            return Broken(f"it cannot be reached ({_reason(error)})")
        case aiohttp.ConnectionTimeoutError():
            return Broken("it cannot be reached (no connection within a few seconds)")
        case TimeoutError():
            return Broken("it fell silent")
        case _:
            return Broken(f"the connection broke ({_reason(error)})")


def _reason(error: Exception) -> str:
    inner = getattr(error, "os_error", error)
    number = getattr(inner, "errno", None)
    text = os.strerror(number) if isinstance(number, int) and number > 0 else str(inner)
    return (text or type(inner).__name__)[:160].lower()


def megabytes(count: int) -> str:
    """A size as a person reads it."""
    if count < 1_000_000:
        return f"{max(0, count):,} bytes"
    return f"{count / 1_000_000:,.0f} MB"
