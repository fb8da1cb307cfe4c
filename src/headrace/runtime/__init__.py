"""Where decisions become work.

Theory of operation. A `Turn` runs one task: it asks `agent.decide` for the next action, carries it out and writes what
happened, until the action is to close. `ModelCall` is one question to a model: attempts, retries, shape changes and
fallbacks. `stalls` watches an attempt's clocks, `learnt` remembers for a while what an endpoint cannot do.

Whoever stops a turn cancels its task; the provider's connection is closed on the way out, and `turn.closing` says what
the log still lacks.
"""
