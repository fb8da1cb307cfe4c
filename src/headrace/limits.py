"""Every bound in headrace, with its reason.

A bound that a person may want to move is a default here and a key in the configuration; everything else is
a constant. Units come last in the name.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

# --- wire: what a peer may make us hold in memory -----------------------------------------------------

# The largest single thing a provider sends in one line is an item with a base64 image or an encrypted
# reasoning block; those stay below a few megabytes. A line that is longer is not a stream we understand.
SSE_LINE_MAX_BYTES: Final = 16 * MIB
# An event may span several data lines; together they get the same room.
SSE_EVENT_MAX_BYTES: Final = 16 * MIB
# A whole non-streaming answer, images included.
BODY_MAX_BYTES: Final = 64 * MIB
# Output windows end near 400k tokens, about 2 MB of text; past this a provider is repeating itself.
REPLY_MAX_CHARS: Final = 32 * MIB
# Parts in one reply. Models ask for a few tools at once; thousands mean a broken index.
REPLY_MAX_PARTS: Final = 4096
# Tool arguments carry whole files at times, never more than a reply.
TOOL_ARGUMENTS_MAX_CHARS: Final = 8 * MIB
# A tag of inline reasoning or tool markup that is still undecided; longer text cannot be one.
MARKUP_HOLD_MAX_CHARS: Final = 64
# Names of tools; providers themselves stop at 64 or 128.
TOOL_NAME_MAX_CHARS: Final = 256
# What is quoted from a peer's error, so that a page of HTML does not become a message.
ERROR_TEXT_MAX_CHARS: Final = 500

# --- turn ---------------------------------------------------------------------------------------------

# Events in one log: 400k tokens of answer, thinking and tool output with room to spare.
TURN_MAX_EVENTS: Final = 2_000_000
