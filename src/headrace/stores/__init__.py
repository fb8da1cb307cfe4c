"""Stores: where logs outlive the process. They implement the Store port and know nothing of who calls it."""
