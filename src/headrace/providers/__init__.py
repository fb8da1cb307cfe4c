"""Adapters to model providers.

Theory of operation. `http.HttpProvider` is one endpoint; it opens a request and feeds a wire decoder, and that is all:
no retries, no clocks but the two that end a body. A protocol module (`chat_completions`, `responses`, `messages`)
says how a `Request` is written. `phrases` is the only place where the text of an error is read.

Everything foreign stays behind this seam: aiohttp's exceptions become `CallError`, keys go into headers and nowhere
else, and whatever a provider says about itself is redacted before it leaves.
"""
