"""Measurements: each a ratio against a named reference, taken in one run on one machine."""
