"""Virtual time: a loop whose clock jumps to the next moment at which something is due. For work without sockets."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        if not self._ready:  # type: ignore[attr-defined]
            due = [h.when() for h in self._scheduled if not h.cancelled()]  # type: ignore[attr-defined]
            if not due:
                raise RuntimeError("everybody waits, and nothing can happen")
            self.now = max(self.now, min(due))
        super()._run_once()  # type: ignore[misc]


def virtually(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which takes as long as it likes."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
