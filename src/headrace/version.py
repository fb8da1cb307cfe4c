"""The one place that says which release this is."""

from typing import Final

__version__: Final = "0.1.0"
