-- Full-text search over what was asked and answered. The texts themselves stay in `turns`.

CREATE VIRTUAL TABLE found USING fts5 (
    input, answer, content = 'turns', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2'
);

CREATE TRIGGER turn_added AFTER INSERT ON turns BEGIN
    INSERT INTO found (rowid, input, answer) VALUES (new.id, new.input, new.answer);
END;

CREATE TRIGGER turn_deleted AFTER DELETE ON turns BEGIN
    INSERT INTO found (found, rowid, input, answer) VALUES ('delete', old.id, old.input, old.answer);
END;

INSERT INTO found (found) VALUES ('rebuild');
