"""Every bound of fetching weights, with its reason. Units come last in the name."""

from typing import Final

from headrace.limits import KIB, MIB

# A person waits. Who cannot be connected to by then is passed over for the next source; the longer one covers the
# look-up of the name and the TLS handshake too.
SOCKET_CONNECT_S: Final = 3.0
CONNECT_S: Final = 5.0
# Between two reads of a body. Slow links pause for seconds; past this the connection is dead.
READ_S: Final = 30.0
# Broken connections in a row that brought nothing new, to a source that had answered before; then it has failed.
FRUITLESS_MOST: Final = 4
# Waits between those, doubled each time.
BACKOFF_FIRST_S: Final = 0.5
# Connections for one body, whatever they bring: a server that sends a few bytes at a time would never end.
CONNECTIONS_MOST: Final = 500
# Fetches of what turns out broken once all of it is there. A disk that loses bytes twice is not to be trusted.
ROUNDS: Final = 2
# A body is written and hashed in portions that block a thread for a few milliseconds only.
WRITE_BYTES: Final = 512 * KIB
HASH_BYTES: Final = 4 * MIB
# Bytes of a body that are read ahead of the disk.
READ_AHEAD_BYTES: Final = 256 * KIB
# The page of one project on a package index; those of thousands of releases stay below.
INDEX_PAGE_MAX_BYTES: Final = 16 * MIB
# What a wheel may hold beyond its piece: metadata, and the little by which incompressible bytes grow.
WHEEL_EXTRA_BYTES: Final = 2 * MIB
# Free space to leave on a disk: a system without any works badly.
DISK_RESERVE_BYTES: Final = 16 * MIB
# How often it is looked whether another process has ended its fetch.
LOCK_POLL_S: Final = 0.2
# Source text of pip in which its default index is looked for; the file has 30 lines.
PIP_SOURCE_MAX_BYTES: Final = 64 * KIB
# Configuration files of pip and uv have a few lines.
TOOL_CONFIG_MAX_BYTES: Final = 256 * KIB
# uv answers in milliseconds where its index is asked for.
UV_S: Final = 10.0
