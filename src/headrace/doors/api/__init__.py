"""The API door: OpenAI-compatible HTTP, and the native log."""
