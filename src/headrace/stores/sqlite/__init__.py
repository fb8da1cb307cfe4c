"""Sessions in SQLite, written ahead to append-only journals.

store        what the rest of headrace uses: a session is appended to, read, found, deleted
live         a session this process writes, with its journal
catching_up  closed turns go from journals to the database
tables       what goes into the tables and comes out; `digest` and `packing` say in which form
database     the file, its connections, its schema; `failures` says what its errors mean; `sql` finds the queries
"""

from headrace.stores.sqlite.store import SessionStore, Unfinished
from headrace.stores.sqlite.tables import Found, SessionInfo

__all__ = ["Found", "SessionInfo", "SessionStore", "Unfinished"]
