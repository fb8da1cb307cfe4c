-- Every question headrace puts to its database. A query begins below its name.

-- name: add_session
INSERT INTO sessions (name, title, created, updated, turns, bytes)
VALUES (:name, :title, :at, :at, 0, 0)
ON CONFLICT (name) DO NOTHING;

-- name: grow_session
UPDATE sessions
SET turns = turns + 1, bytes = bytes + :bytes, updated = max(updated, :closed_at)
WHERE name = :name;

-- name: add_turn
INSERT INTO turns (session, turn, opened_at, closed_at, outcome, cause, model, chars, bytes, input, answer)
SELECT id, :turn, :opened_at, :closed_at, :outcome, :cause, :model, :chars, :bytes, :input, :answer
FROM sessions WHERE name = :name
ON CONFLICT (turn, session) DO NOTHING;

-- name: add_event
INSERT INTO events (turn, seq, last, at, event, growth) VALUES (?, ?, ?, ?, ?, ?);

-- name: delete_session
DELETE FROM sessions WHERE name = ?;

-- name: delete_turns
DELETE FROM turns WHERE session = (SELECT id FROM sessions WHERE name = ?);

-- name: forget_deleted_words
INSERT INTO found (found) VALUES ('optimize');

-- name: sessions
SELECT name, title, created, updated, turns, bytes FROM sessions ORDER BY updated DESC, id DESC;

-- name: oldest_first
SELECT name, updated, bytes FROM sessions ORDER BY updated, id;

-- name: turns
SELECT t.id, t.turn FROM turns AS t JOIN sessions AS s ON s.id = t.session WHERE s.name = ? ORDER BY t.id;

-- name: latest_turns
SELECT t.id, t.turn, t.chars FROM turns AS t JOIN sessions AS s ON s.id = t.session
WHERE s.name = ? ORDER BY t.id DESC;

-- name: turn
SELECT t.id FROM turns AS t JOIN sessions AS s ON s.id = t.session WHERE s.name = ? AND t.turn = ?;

-- name: session_of
SELECT s.name FROM turns AS t JOIN sessions AS s ON s.id = t.session WHERE t.turn = ? ORDER BY t.id DESC LIMIT 1;

-- name: shrink_session
UPDATE sessions SET turns = turns - 1, bytes = bytes - (SELECT bytes FROM turns WHERE turns.id = :turn)
WHERE id = (SELECT session FROM turns WHERE turns.id = :turn);

-- name: delete_turn
DELETE FROM turns WHERE id = ?;

-- name: first_input
SELECT t.input FROM turns AS t JOIN sessions AS s ON s.id = t.session WHERE s.name = ? ORDER BY t.id LIMIT 1;

-- name: set_title
UPDATE sessions SET title = :title WHERE name = :name;

-- name: delete_empty_session
DELETE FROM sessions WHERE name = ? AND turns = 0;

-- name: events
SELECT seq, last, at, event, growth FROM events WHERE turn = ? AND last > ? ORDER BY seq;

-- name: find_words
SELECT s.name, t.turn, t.opened_at, t.input, t.answer
FROM found JOIN turns AS t ON t.id = found.rowid JOIN sessions AS s ON s.id = t.session
WHERE found MATCH ? ORDER BY t.id DESC LIMIT ?;

-- name: find_text
SELECT s.name, t.turn, t.opened_at, t.input, t.answer
FROM turns AS t JOIN sessions AS s ON s.id = t.session
WHERE t.input LIKE :pattern ESCAPE '\' OR t.answer LIKE :pattern ESCAPE '\'
ORDER BY t.id DESC;
