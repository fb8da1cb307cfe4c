"""A turn: its append-only log, the rules of what may follow what, and the folds that read it.

Theory of operation. `Log` is the only place where a turn's facts are written. Every event passes `Machine`, which
holds the transition tables of `tables` as its whole knowledge; an event that may not follow raises
IllegalTransition and is not written. What is written is numbered without gaps, handed to the journal if there is
one, and only then shown to those who watch.

`Folded` reads a log from wherever it stopped last and answers questions about the turn: its text, its tool calls,
its usage, the messages for the next call. `closing` lists the events that bring any unfinished turn to its end.
"""
