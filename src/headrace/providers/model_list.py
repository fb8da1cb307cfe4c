"""What a provider says it serves: `GET /models`, which all three protocols have in nearly the same form.

Theory of operation. It is asked like any other request of its endpoint, with the same key, headers, translation of
failures and care for secrets, which is why this is a kind of `HttpProvider`. It differs in being one short answer:
one clock for all of it, one bound on its size, no decoder. The names are sorted, cleaned of what a terminal would obey,
and bounded in number.
"""

from typing import Any, Final, NamedTuple

import aiohttp

from headrace.errors import CallError, Cause
from headrace.events import Event
from headrace.limits import MIB
from headrace.ports import Request
from headrace.providers.http import HttpProvider
from headrace.providers.proxy import proxy_of
from headrace.wire import failures, jsontext

PATH: Final = "/models"

# A person waits for this; the largest list, of some hundred models, comes within two or three seconds.
MODEL_LIST_S: Final = 20.0
# The largest list of today, with a description of every model, is about a megabyte.
MODEL_LIST_MAX_BYTES: Final = 8 * MIB
# Names that are shown; no provider has a tenth of it.
MODEL_LIST_MAX: Final = 5000
MODEL_NAME_SHOWN_CHARS: Final = 200
# Anthropic lists 20 models unless asked for more, and takes no larger number.
_PAGE: Final = 1000

_UNREADABLE: Final = "It sent no list of models that can be read. Check its base_url."


class Served(NamedTuple):
    """The models a provider lists."""

    names: tuple[str, ...]
    more: bool = False
    """There are more than these."""


class ModelList(HttpProvider):
    """Asks an endpoint what it serves."""

    async def served(self, patience_s: float = MODEL_LIST_S) -> Served:
        """Raises CallError."""
        try:
            return _served(jsontext.parse(await self._within(patience_s)))
        except CallError as failure:
            raise CallError(self._public(_as_a_list(failure.cause))) from failure

    async def _within(self, patience_s: float) -> bytes:
        try:
            async with self._client.clock.timeout(patience_s):
                return await self._body()
        except TimeoutError as error:
            raise CallError(Cause("stalled_total", f"It did not answer within {patience_s:g} s.")) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise self._broken(error) from error

    async def _body(self) -> bytes:
        headers = self._headers(Request(model="", messages=(), stream=False))
        url = self._endpoint.base_url.rstrip("/") + PATH
        async with self._client.session().get(
            url,
            params={"limit": str(_PAGE)} if self._endpoint.protocol == "messages" else None,
            headers=headers,
            allow_redirects=False,
            trace_request_ctx=_Unwatched(),
            **proxy_of(url),
        ) as response:
            if response.status != 200:
                raise await self._refusal(response)
            return await _bounded(response.content)


class _Unwatched:
    """A sink for a request whose signs of life nobody needs."""

    def connected(self) -> None:
        pass

    def received(self, events: list[Event]) -> None:
        pass


async def _bounded(content: aiohttp.StreamReader) -> bytes:
    data = bytearray()
    while piece := await content.readany():
        data += piece
        if len(data) > MODEL_LIST_MAX_BYTES:
            size = f"{MODEL_LIST_MAX_BYTES // MIB} MiB"
            raise CallError(Cause("malformed_stream", f"Its list of models is larger than {size}."))
    return bytes(data)


def _served(value: Any) -> Served:
    """Most send `{"data": [{"id": ...}]}`, a few the list alone."""
    listed = value.get("data") if isinstance(value, dict) else value
    if not isinstance(listed, list):
        raise CallError(Cause("malformed_stream", _UNREADABLE))
    found = {_name(item) for item in listed} - {""}
    more = isinstance(value, dict) and value.get("has_more") is True
    return Served(tuple(sorted(found)[:MODEL_LIST_MAX]), more or len(found) > MODEL_LIST_MAX)


def _name(item: Any) -> str:
    return failures.clip(item.get("id"), MODEL_NAME_SHOWN_CHARS) if isinstance(item, dict) else ""


def _as_a_list(cause: Cause) -> Cause:
    """A cause in words that fit a list: what is missing is no model, and nothing streamed."""
    if cause.status in (404, 405, 501):
        words = f"It does not tell what it serves (HTTP {cause.status}). Its models can be used all the same."
        return Cause("provider_error", words, status=cause.status)
    if cause.code == "malformed_stream" and "stream" in cause.message:
        return Cause("malformed_stream", _UNREADABLE, status=cause.status)
    return cause
