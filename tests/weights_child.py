"""Fetches in a process of its own, so that it can be killed: `weights_child.py HOME MODEL_JSON [FILE_SIZE_LIMIT]`."""

import asyncio
import os
import resource
import sys
from pathlib import Path

import msgspec

from headrace.providers.embedded import weights
from headrace.providers.embedded.weights.catalogue import Model, catalogue
from headrace.runtime.clock import SystemClock


def main(home: str, model: str, limit: str = "") -> None:
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
    models = catalogue([msgspec.json.decode(model, type=Model)])
    try:
        path = asyncio.run(
            weights.fetch(
                "", Path(home), lambda *_: None, env=dict(os.environ), clock=SystemClock(), models=models
            )
        )
    except weights.WeightsError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    sys.stdout.write(str(path))


if __name__ == "__main__":
    main(*sys.argv[1:])
