"""The embedded model: its weights, and the process that runs it."""
