"""What an endpoint has shown it cannot do, believed for a while and then tried again."""

import msgspec

from headrace.limits import LEARNT_TTL_S
from headrace.ports import Clock


class Shape(msgspec.Struct, frozen=True):
    """How a model is asked, where it differs from how it would be asked by default."""

    streams: bool = True
    dropped: frozenset[str] = frozenset()


class Learnt:
    """Shapes per model and keys per provider, each with the time until which it is believed."""

    def __init__(self, clock: Clock, ttl_s: float = LEARNT_TTL_S) -> None:
        self._clock = clock
        self._ttl_s = ttl_s
        self._shapes: dict[str, tuple[float, Shape]] = {}
        self._keys: dict[str, tuple[float, int]] = {}

    def shape(self, model_id: str) -> Shape:
        until, shape = self._shapes.get(model_id, (0.0, Shape()))
        return shape if self._clock.monotonic() < until else Shape()

    def key(self, provider: str) -> int:
        until, key = self._keys.get(provider, (0.0, 0))
        return key if self._clock.monotonic() < until else 0

    def no_streaming(self, model_id: str) -> None:
        self._keep(model_id, msgspec.structs.replace(self.shape(model_id), streams=False))

    def refuses(self, model_id: str, parameter: str) -> None:
        shape = self.shape(model_id)
        self._keep(model_id, msgspec.structs.replace(shape, dropped=shape.dropped | {parameter}))

    def next_key(self, provider: str, refused: int) -> None:
        """Go on to the key after `refused`, unless a call at the same time has done so already."""
        if self.key(provider) == refused:
            self._keys[provider] = (self._clock.monotonic() + self._ttl_s, refused + 1)

    def _keep(self, model_id: str, shape: Shape) -> None:
        self._shapes[model_id] = (self._clock.monotonic() + self._ttl_s, shape)
