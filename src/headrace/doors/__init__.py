"""Doors: where a surface's I/O happens. Each knows views and the runtime, and no other door."""
