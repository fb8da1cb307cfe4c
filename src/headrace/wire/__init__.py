"""Bytes to events and back, without I/O.

Theory of operation. A decoder is fed what a socket read brought and returns the events in it:

    batch = decoder.feed(data)      # after every read, possibly empty
    batch = decoder.close()         # once, when the peer has ended its body

Both return what is whole and never raise for what a peer sends. When the stream cannot go on, `decoder.failure`
holds the one CallError that says why, everything whole before it has been returned, and further bytes are
ignored. When the provider's terminal evidence has been decoded, `decoder.done` is true.

    feeding --terminal evidence--> done
    feeding --malformed, an error object, EOF without evidence--> failed

`sse` cuts bytes into server-sent events; `chat_completions`, `responses` and `messages` give them meaning, each
with one decoder for streams and one for whole bodies that yields the same events. `parts` numbers the parts of a
reply; `think` and `toolmarkup` find reasoning and tool calls that a model wrote into its text.
"""
