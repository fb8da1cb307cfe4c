"""Decides what a turn does next, from its log alone.

Theory of operation. `decide` reads what a turn has come to and returns one action; `runtime` carries it out, writes
what happened into the log and asks again, until the action is to close. Nothing here waits, calls or remembers, so
the same log always leads to the same decision.
"""
