-- Sessions, their closed turns in the order they were opened, and what happened in each.

CREATE TABLE sessions (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    title TEXT NOT NULL,
    created REAL NOT NULL,
    updated REAL NOT NULL,
    turns INTEGER NOT NULL,
    bytes INTEGER NOT NULL
);

CREATE TABLE turns (
    id INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
    turn TEXT NOT NULL,
    opened_at REAL NOT NULL,
    closed_at REAL NOT NULL,
    outcome TEXT NOT NULL,
    cause TEXT NOT NULL,
    model TEXT NOT NULL,
    chars INTEGER NOT NULL,     -- what the turn takes of a model's context
    bytes INTEGER NOT NULL,
    input TEXT NOT NULL,
    answer TEXT NOT NULL,
    UNIQUE (turn, session)
);

CREATE INDEX turns_of_session ON turns (session, id);

CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    turn INTEGER NOT NULL REFERENCES turns ON DELETE CASCADE,
    seq INTEGER NOT NULL,       -- of the first event in this row
    last INTEGER NOT NULL,      -- of the last
    at REAL NOT NULL,           -- when the first happened
    event TEXT NOT NULL,        -- growth of one part is one event here, with its text joined
    growth BLOB,                -- how to take it apart again; see packing.py
    UNIQUE (turn, seq)
);
