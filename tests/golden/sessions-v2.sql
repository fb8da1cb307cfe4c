BEGIN TRANSACTION;
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
INSERT INTO "events" VALUES(1,1,1,1,1700000000.5,'{"type":"turn_opened","log_version":1,"input":[{"type":"user","content":[{"type":"text","text":"What is a headrace?"}]}]}',NULL);
INSERT INTO "events" VALUES(2,1,2,2,1700000000.5,'{"type":"call_started","call":1,"purpose":"reply","model":"p:m"}',NULL);
INSERT INTO "events" VALUES(3,1,3,3,1700000000.5,'{"type":"attempt_started","call":1,"attempt":1,"model":"p:m"}',NULL);
INSERT INTO "events" VALUES(4,1,4,4,1700000000.5,'{"type":"part_started","call":1,"part":1,"kind":"text"}',NULL);
INSERT INTO "events" VALUES(5,1,5,5,1700000000.5,'{"type":"part_grew","call":1,"part":1,"text":"A channel that brings water to a wheel."}',NULL);
INSERT INTO "events" VALUES(6,1,6,6,1700000000.5,'{"type":"part_closed","call":1,"part":1}',NULL);
INSERT INTO "events" VALUES(7,1,7,7,1700000000.5,'{"type":"reply_ended","call":1,"reason":"stop"}',NULL);
INSERT INTO "events" VALUES(8,1,8,8,1700000000.5,'{"type":"turn_closed","outcome":"stop","cause":{"code":"answered","message":""}}',NULL);
INSERT INTO "events" VALUES(9,2,1,1,1700000000.0,'{"type":"turn_opened","log_version":1,"input":[{"type":"system","text":"Be brief."},{"type":"user","content":[{"type":"text","text":"What is in this picture?"},{"type":"image","url":"data:image/png;base64,AA=="},{"type":"other","protocol":"chat_completions","item":"{\"type\":\"input_audio\"}"}]}],"session":"session-1","model":"openrouter:anthropic/claude-opus"}',NULL);
INSERT INTO "events" VALUES(10,2,2,2,1700000000.25,'{"type":"history_compacted","through":"turn-0","summary":"They talked about pictures.","call":1}',NULL);
INSERT INTO "events" VALUES(11,2,3,3,1700000000.5,'{"type":"call_started","call":1,"purpose":"reply","model":"openrouter:anthropic/claude-opus"}',NULL);
INSERT INTO "events" VALUES(12,2,4,4,1700000000.75,'{"type":"attempt_started","call":1,"attempt":1,"model":"openrouter:anthropic/claude-opus"}',NULL);
INSERT INTO "events" VALUES(13,2,5,5,1700000001.0,'{"type":"part_started","call":1,"part":1,"kind":"reasoning"}',NULL);
INSERT INTO "events" VALUES(14,2,6,6,1700000001.25,'{"type":"part_grew","call":1,"part":1,"text":"Hm."}',NULL);
INSERT INTO "events" VALUES(15,2,7,7,1700000001.5,'{"type":"attempt_replaced","call":1,"attempt":1,"cause":{"code":"overloaded","message":"The provider is overloaded.","status":529,"retry_after_s":2.5,"provider_code":"overloaded_error"}}',NULL);
INSERT INTO "events" VALUES(16,2,8,8,1700000001.75,'{"type":"attempt_started","call":1,"attempt":2,"model":"local","streamed":false}',NULL);
INSERT INTO "events" VALUES(17,2,9,9,1700000002.0,'{"type":"part_started","call":1,"part":2,"kind":"reasoning"}',NULL);
INSERT INTO "events" VALUES(18,2,10,10,1700000002.25,'{"type":"part_grew","call":1,"part":2,"text":"A cat? 🐈"}',NULL);
INSERT INTO "events" VALUES(19,2,11,11,1700000002.5,'{"type":"part_closed","call":1,"part":2,"item":"{\"type\":\"thinking\",\"thinking\":\"A cat? 🐈\",\"signature\":\"s==\"}"}',NULL);
INSERT INTO "events" VALUES(20,2,12,12,1700000002.75,'{"type":"part_started","call":1,"part":3,"kind":"text"}',NULL);
INSERT INTO "events" VALUES(21,2,13,14,1700000003.0,'{"type":"part_grew","call":1,"part":3,"text":"Let me look.\n"}',X'789C9B34899D6DE239060106060012DE02A1');
INSERT INTO "events" VALUES(22,2,15,15,1700000003.5,'{"type":"part_closed","call":1,"part":3}',NULL);
INSERT INTO "events" VALUES(23,2,16,16,1700000003.75,'{"type":"part_started","call":1,"part":4,"kind":"tool_call","tool_id":"call_1","name":"read_file"}',NULL);
INSERT INTO "events" VALUES(24,2,17,17,1700000004.0,'{"type":"part_grew","call":1,"part":4,"text":"{\"path\": \"cat.txt\"}"}',NULL);
INSERT INTO "events" VALUES(25,2,18,18,1700000004.25,'{"type":"part_closed","call":1,"part":4,"item":"{\"id\":\"call_1\",\"half\":\"\\ud83d\"}"}',NULL);
INSERT INTO "events" VALUES(26,2,19,19,1700000004.5,'{"type":"part_started","call":1,"part":5,"kind":"opaque"}',NULL);
INSERT INTO "events" VALUES(27,2,20,20,1700000004.75,'{"type":"part_closed","call":1,"part":5,"item":"{\"type\":\"web_search_call\"}"}',NULL);
INSERT INTO "events" VALUES(28,2,21,21,1700000005.0,'{"type":"usage_reported","call":1,"input_tokens":120,"output_tokens":34,"reasoning_tokens":10,"cache_read_tokens":100,"cache_write_tokens":0}',NULL);
INSERT INTO "events" VALUES(29,2,22,22,1700000005.25,'{"type":"reply_ended","call":1,"reason":"tool_calls","model":"claude-opus-4.8","provider_reason":"tool_use"}',NULL);
INSERT INTO "events" VALUES(30,2,23,23,1700000005.5,'{"type":"approval_asked","approval":"a1","call":1,"part":4,"summary":"read cat.txt","expires_at":1700000100.5}',NULL);
INSERT INTO "events" VALUES(31,2,24,24,1700000005.75,'{"type":"approval_given","approval":"a1","verdict":"allowed","by":"terminal"}',NULL);
INSERT INTO "events" VALUES(32,2,25,25,1700000006.0,'{"type":"tool_started","call":1,"part":4,"name":"read_file","arguments":"{\"path\": \"cat.txt\"}"}',NULL);
INSERT INTO "events" VALUES(33,2,26,26,1700000006.25,'{"type":"tool_printed","call":1,"part":4,"text":"a cat\n"}',NULL);
INSERT INTO "events" VALUES(34,2,27,27,1700000006.5,'{"type":"tool_finished","call":1,"part":4,"status":"ok","result":"a cat","detail":"1 line"}',NULL);
INSERT INTO "events" VALUES(35,2,28,28,1700000006.75,'{"type":"question_asked","question":"q1","call":1,"part":4,"text":"Which cat?","choices":["the red one","the other"],"expires_at":1700000200.0}',NULL);
INSERT INTO "events" VALUES(36,2,29,29,1700000007.0,'{"type":"question_answered","question":"q1","text":"the red one","by":"telegram"}',NULL);
INSERT INTO "events" VALUES(37,2,30,30,1700000007.25,'{"type":"input_added","input":[{"type":"user","content":[{"type":"text","text":"Quickly, please."}]}]}',NULL);
INSERT INTO "events" VALUES(38,2,31,31,1700000007.5,'{"type":"notice_shown","code":"fallback","text":"local answers instead.","call":2}',NULL);
INSERT INTO "events" VALUES(39,2,32,32,1700000007.75,'{"type":"call_started","call":2,"purpose":"reply","model":"local"}',NULL);
INSERT INTO "events" VALUES(40,2,33,33,1700000008.0,'{"type":"attempt_started","call":2,"attempt":1,"model":"local"}',NULL);
INSERT INTO "events" VALUES(41,2,34,34,1700000008.25,'{"type":"part_started","call":2,"part":1,"kind":"refusal"}',NULL);
INSERT INTO "events" VALUES(42,2,35,35,1700000008.5,'{"type":"part_grew","call":2,"part":1,"text":"I wo"}',NULL);
INSERT INTO "events" VALUES(43,2,36,36,1700000008.75,'{"type":"reply_cut","call":2,"cause":{"code":"connection_lost","message":"The connection broke."},"dropped":["write_file"]}',NULL);
INSERT INTO "events" VALUES(44,2,37,37,1700000009.0,'{"type":"call_started","call":3,"purpose":"summary","model":"local"}',NULL);
INSERT INTO "events" VALUES(45,2,38,38,1700000009.25,'{"type":"call_failed","call":3,"cause":{"code":"overloaded","message":"The provider is overloaded.","status":529,"retry_after_s":2.5,"provider_code":"overloaded_error"},"lasts":[["p:m",{"code":"key_rejected","message":"The key was refused.","status":401,"parameter":"key"}]]}',NULL);
INSERT INTO "events" VALUES(46,2,39,39,1700000009.5,'{"type":"turn_closed","outcome":"cut","cause":{"code":"connection_lost","message":"The connection broke."}}',NULL);
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    title TEXT NOT NULL,
    created REAL NOT NULL,
    updated REAL NOT NULL,
    turns INTEGER NOT NULL,
    bytes INTEGER NOT NULL
);
INSERT INTO "sessions" VALUES(1,'trip','What is a headrace?',1700000000.5,1700000000.5,1,613);
INSERT INTO "sessions" VALUES(2,'golden','What is in this picture? Quickly, please.',1700000000.0,1700000009.5,1,3791);
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
INSERT INTO "turns" VALUES(1,1,'t1',1700000000.5,1700000000.5,'stop','answered','p:m',58,613,'What is a headrace?','A channel that brings water to a wheel.');
INSERT INTO "turns" VALUES(2,2,'turn-1',1700000000.0,1700000009.5,'cut','connection_lost','local',261,3791,'What is in this picture?

Quickly, please.','Let me look.
');
CREATE INDEX turns_of_session ON turns (session, id);
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
COMMIT;
PRAGMA user_version = 2;
