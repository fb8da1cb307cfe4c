"""The Clock port over the running event loop: virtual time where the loop's is virtual."""

import asyncio
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from headrace.ports import Deadline, Timer


class SystemClock:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)

    def timeout(self, delay_s: float | None) -> Deadline:
        return _Deadline(delay_s)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(delay_s, callback)


class _Deadline:
    def __init__(self, delay_s: float | None) -> None:
        self._timeout = asyncio.timeout(delay_s)

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._timeout.__aexit__(kind, error, trace)

    def expire(self) -> None:
        self._timeout.reschedule(asyncio.get_running_loop().time())
