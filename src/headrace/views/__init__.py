"""Views: pure functions from a log to what a surface shows. They keep a cursor and what they need to go on, no I/O."""
