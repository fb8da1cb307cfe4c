"""What a source of weights is to the fetch."""

from collections.abc import Callable
from typing import Protocol

from headrace.providers.embedded.weights.partial import Partial

Report = Callable[[int], None]
"""Takes how many bytes of the model are there."""


class Source(Protocol):
    @property
    def name(self) -> str:
        """As a person reads it."""

    @property
    def room(self) -> int:
        """Bytes it needs on the disk besides the model's."""

    async def fill(self, partial: Partial, report: Report) -> None:
        """Fill every gap. Raises SourceFailed, WrongBytes, and what the partial file raises."""
