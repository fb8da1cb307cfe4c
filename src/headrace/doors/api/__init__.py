"""HTTP: OpenAI's chat completions and Responses, and the native log; see `docs/api.md`.

Theory of operation. A request passes the `gate` (whose host, whose page, whose key, how many), is checked against the
schema that is served for it, and is read into an `Asked` by the module of its endpoint. `turns` starts the turn and
holds it for as long as somebody may come back to it. What goes out is a view of the turn's log: all at once when the
turn is over, or as a `stream` of frames while it runs. The turn owns its lifetime; a client that leaves is one follower
less, and what that means to the turn is decided in `turns` and nowhere else.

    gate --> endpoint (chat, responses, native) --> turns.begin --> Turn
                                                \\-> stream: log --view--> frames --> client
"""
