"""headrace: a self-hosted AI agent whose every answer streams."""

__version__ = "0.1.0"
