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
# What a reply wants back verbatim: signatures, encrypted reasoning, images that a hosted tool has made. Whole items
# repeat the text of their parts, so they get the room of a whole answer.
REPLY_ITEMS_MAX_CHARS: Final = 64 * MIB
# Parts in one reply. Models ask for a few tools at once; thousands mean a broken index.
REPLY_MAX_PARTS: Final = 4096
# Tool calls in one reply. Looking for the call a delta belongs to passes those that are open.
REPLY_MAX_CALLS: Final = 512
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

# --- providers ----------------------------------------------------------------------------------------

# An error's body is quoted in one line; pages of HTML are not worth reading further.
ERROR_BODY_MAX_BYTES: Final = 64 * KIB
# How long it is waited for: it comes with its status, or something is wrong with it as well.
ERROR_BODY_S: Final = 5.0
# A secret that is shorter is a word that may stand in any sentence.
SECRET_LEAST_CHARS: Final = 8
# How long a finished answer may stay silent before its missing end marker is no longer waited for. Usage
# follows a finish reason within a few network round trips.
AFTER_FINISH_S: Final = 3.0
# How long to wait for the last bytes of a body whose answer is complete, so that its connection can be kept.
DRAIN_S: Final = 0.1
# Idle connections are kept this long; most providers close them after 60 to 90 seconds.
KEEP_ALIVE_S: Final = 55.0
# Socket reads are this large at most: a bulk answer then costs few of them.
READ_BYTES: Final = 256 * KIB
# Anthropic wants a bound in every request; this is the largest all current models accept.
MESSAGES_MAX_TOKENS: Final = 8192

# --- one model call -----------------------------------------------------------------------------------

# Waiting before another attempt: doubled each time, with jitter, so that many clients do not return at once.
BACKOFF_FIRST_S: Final = 0.5
BACKOFF_MOST_S: Final = 8.0
# A provider that asks for more patience than this is treated as exhausted: a person waits for an answer.
RETRY_AFTER_MOST_S: Final = 60.0
# Parameters that one model may refuse within one call; one that refuses more is not asked about parameters any longer.
REFUSED_PARAMETERS_MOST: Final = 8
# What was learnt of an endpoint (it does not stream, it refuses a parameter) is believed for this long.
LEARNT_TTL_S: Final = 600.0

# --- configuration ------------------------------------------------------------------------------------

# A thousand lines are 40 KiB; reading this much takes a third of a second.
CONFIG_MAX_BYTES: Final = 128 * KIB
# The deepest key is four levels down; the rest is room for a sensible message instead of a crash.
CONFIG_MAX_DEPTH: Final = 32
# Values in a file, with those an alias repeats: nested aliases double at every step.
CONFIG_MAX_VALUES: Final = 10_000
# Problems told at once; a person mends a few and looks again.
CONFIG_MAX_PROBLEMS: Final = 20
# What is quoted of a wrong value.
CONFIG_QUOTE_MAX_CHARS: Final = 60
# Attempts after the first; a provider that failed eleven times is down.
STREAM_RETRIES_MAX: Final = 10
# The longest wait that can be asked for, a day: "for ever" would hide a dead connection.
WAIT_MAX_S: Final = 24 * 60 * 60
# Numbers of tokens; the largest windows hold a few million.
TOKENS_MAX: Final = 100_000_000
# Money, days and megabytes: what is larger is a slip of the finger.
MONEY_MAX: Final = 1_000_000
DAYS_MAX: Final = 36_500
MEGABYTES_MAX: Final = 10_000_000
# Providers take temperatures up to 1 or 2.
TEMPERATURE_MAX: Final = 2
# What a chat shows at the end of an unfinished text.
CURSOR_MAX_CHARS: Final = 16
# Characters a chat may wait for before it shows them; a message of most platforms holds 4,096.
BUFFER_THRESHOLD_MAX_CHARS: Final = 4096

# --- agent --------------------------------------------------------------------------------------------

# New replies that an agent asks for because a tool call was cut off; a stream that breaks there thrice will again.
REPEATS_AFTER_CUT_CALL: Final = 2
# New replies that go on where a text was cut off.
CONTINUATIONS: Final = 1
# Replies in which a provider may pause and want to be called again.
PAUSES: Final = 8
# How much of the cut text is searched for where its continuation begins again.
SEAM_CHARS: Final = 400
# A repetition shorter than this may be chance.
SEAM_LEAST_CHARS: Final = 4

# --- doctor -------------------------------------------------------------------------------------------

# Requests of one diagnosis: four questions, and two that are asked again in another shape.
DOCTOR_MOST_REQUESTS: Final = 6
# Tokens of one answer. A count to thirty takes about a hundred; the rest is room for a model that thinks first.
DOCTOR_MAX_TOKENS: Final = 256
# How long one request may take in all, and its silences. A model on this machine may have to be loaded first.
DOCTOR_REQUEST_S: Final = 120.0
DOCTOR_FIRST_EVENT_S: Final = 60.0
DOCTOR_GAP_S: Final = 30.0
DOCTOR_NO_PROGRESS_S: Final = 90.0
# What is kept of one answer's bytes to be looked at; an answer of that many tokens takes a tenth of it.
DOCTOR_KEPT_BYTES: Final = MIB
# A model's name as a provider spells it.
DOCTOR_NAME_MAX_CHARS: Final = 100

# --- the command line ---------------------------------------------------------------------------------

# What is piped in. Two million tokens, more than a model reads; a pipe may also never end.
QUESTION_MAX_CHARS: Final = 8 * MIB

# --- sessions -----------------------------------------------------------------------------------------

# What of a session a model is given where its context is not configured: far below what current models take, and
# more than people scroll back.
HISTORY_TOKENS: Final = 64_000
# A cautious estimate over languages and code; real tokenizers differ per model.
CHARS_PER_TOKEN: Final = 3
# The embedded model's window: what half a gigabyte of memory has room for.
EMBEDDED_CONTEXT_TOKENS: Final = 8192
# Of a context, so much for what was said before and so much for the turn; the rest is for the prompt, the tools'
# descriptions and the answer.
PAST_SHARE: Final = 3 / 8
TURN_SHARE: Final = 3 / 8
# What is left of a tool's result once room is short: enough to know what it was.
LEAN_RESULT_CHARS: Final = 400
# A summary stands for many turns and is sent with every call.
SUMMARY_MAX_CHARS: Final = 12_000
# What a session holds in memory of its past: more than the largest windows take.
SESSION_PAST_MAX_CHARS: Final = 8 * MIB

# --- mixtures -----------------------------------------------------------------------------------------

# How long references are waited for once enough of them have answered; twice as long where they have not.
ADVICE_S: Final = 30.0
# References of one mixture; each is a request in every turn.
REFERENCES_MOST: Final = 16
# What the aggregator is told of one reference's answer: several long answers together fit a window of 64k tokens.
ADVICE_MAX_CHARS: Final = 24_000

# One file of traces, and one before it; a turn of a mixture takes a few KiB.
TRACES_MAX_BYTES: Final = 32 * MIB

# --- running tools ------------------------------------------------------------------------------------

# How long a person is waited for. An approval that nobody gives is a denial; a question, "use your judgement".
APPROVAL_S: Final = 600.0
QUESTION_S: Final = 600.0
# What a person is shown of a call to decide about; what is longer shows its beginning, its end, and how much between.
APPROVAL_SUMMARY_MAX_CHARS: Final = 4_000
# Tools that only read run side by side, so many at once: each may be a process.
TOOLS_AT_ONCE: Final = 8
# What a model is told of one tool run; a window of 64k tokens has room for several of these.
TOOL_RESULT_MAX_CHARS: Final = 40_000
# What of a run's output is shown while it prints, and so kept in the log.
TOOL_PRINTED_MAX_CHARS: Final = 200_000

# How many lines of it a terminal shows; people want to see that it works, and what it says when it fails at once.
TOOL_SHOWN_MAX_LINES: Final = 30

# --- context ------------------------------------------------------------------------------------------

# One file of notes for the agent; longer ones cost more in every call than they give.
CONTEXT_FILE_MAX_CHARS: Final = 32_000
# Folders nest deeper than people write notes.
CONTEXT_FILES_MAX: Final = 8

# --- tools --------------------------------------------------------------------------------------------

# How long a command may take where nobody says; a build or a test suite may ask for up to an hour.
TERMINAL_TIMEOUT_S: Final = 120.0
TERMINAL_TIMEOUT_MOST_S: Final = 3600.0
# The system takes 128 KiB as one argument of a program.
TERMINAL_COMMAND_MAX_BYTES: Final = 100 * KIB
# What a model is told of an output: how it began, and twice as much of how it ended, where errors are. About ten
# thousand tokens.
TERMINAL_HEAD_CHARS: Final = 10_000
TERMINAL_TAIL_CHARS: Final = 20_000
# What people are shown as it comes: at most so much, so often, and in all.
SHOWN_PIECE_CHARS: Final = 32 * KIB
SHOWN_EVERY_S: Final = 0.1
SHOWN_MAX_CHARS: Final = 192 * KIB
# After a read this full the loop is left to others for a moment: a command that prints for ever gets 32 MiB/s.
FULL_READ_BYTES: Final = 32 * KIB
FULL_READ_PAUSE_S: Final = 0.002
# Ending processes: this long to go when asked, then so long for those that are killed to be gone. Together with
# the way there and back they stay below two seconds.
TERM_S: Final = 0.6
KILL_S: Final = 0.8
# For a guard to say that all is ended; it is itself ended after that.
GUARD_S: Final = 1.7
# For those whose guard was killed, who are not asked.
SWEEP_S: Final = 0.5
# For output that is still in the pipe when its writers have ended.
PIPE_DRAIN_S: Final = 0.3
# What one command may have running at once; a parallel build of a large project stays below a few hundred.
TERMINAL_MAX_PROCESSES: Final = 1000
# Commands in the background at once; each is a few processes.
BACKGROUND_MOST: Final = 8
# How long a background command is watched for an early end, such as a port that is taken.
BACKGROUND_WATCH_S: Final = 0.5

# What a model is given of one file at once; a line longer than a screenful or two is data, not text.
READ_FILE_MAX_CHARS: Final = 36_000
READ_LINE_MAX_CHARS: Final = 2_000
# How far a file is looked into for a zero byte, which text does not have.
BINARY_SNIFF_BYTES: Final = 8 * KIB
# A file that is edited is held in memory a few times over.
EDIT_MAX_BYTES: Final = 8 * MIB
# Places named of a text that occurs more than once.
EDIT_PLACES_MOST: Final = 10
# A diff that people read; and what is compared line by line, because that is quadratic.
DIFF_MAX_CHARS: Final = 16_000
DIFF_MAX_LINES: Final = 2_000

# One search: what is taken of its output, what a model is given, and how long it may take.
SEARCH_MAX_BYTES: Final = 256 * KIB
SEARCH_MAX_MATCHES: Final = 200
SEARCH_LINE_MAX_CHARS: Final = 300
SEARCH_TEXT_MAX_CHARS: Final = 30_000
SEARCH_S: Final = 60.0

# One page: bytes of its body, the whole time, redirects as browsers allow fewer than twenty of, and what a model is
# given of its text.
FETCH_MAX_BYTES: Final = 4 * MIB
FETCH_S: Final = 30.0
FETCH_REDIRECTS_MOST: Final = 5
FETCH_TEXT_MAX_CHARS: Final = 36_000
FETCH_URL_MAX_CHARS: Final = 2_000
# A page that takes longer to read than this is made to be slow.
FETCH_READING_S: Final = 10.0

# Facts are read with every turn: a few pages, one sentence or two each.
MEMORY_MAX_BYTES: Final = 64 * KIB
MEMORY_FACT_MAX_CHARS: Final = 500

# --- stores -------------------------------------------------------------------------------------------

# How long one process waits until another has finished writing; a large retention run takes a second or two.
STORE_BUSY_S: Final = 5.0
# Sessions one process keeps open for writing, each with one file; common limits on open files begin at 1,024.
STORE_OPEN_SESSIONS: Final = 256
# Sessions looked at for one that is at rest, when another is opened and there are so many.
STORE_LOOKED_AT: Final = 4
# What the database's own journal may keep on disk once it has been folded in.
STORE_WAL_BYTES: Final = 16 * MIB
# A title is one line of a list.
TITLE_MAX_CHARS: Final = 80
# What is searched for; longer texts are found by their beginning.
SEARCH_QUERY_MAX_CHARS: Final = 500
# Results of one search; who needs more asks more exactly.
SEARCH_MOST: Final = 50
# How much of a turn a result quotes around what was found.
SEARCH_QUOTE_CHARS: Final = 120

# --- the API door -------------------------------------------------------------------------------------

API_PORT: Final = 8700
# Requests at work at once: a stream of an ordinary answer takes about 100 KB.
API_CONCURRENT: Final = 2000
# What a stream holds open: its client's connection, its provider's, a journal, and a tool's pipe; and what the server
# needs beside them. Many systems begin with 256 or 1,024 for a process and allow more when asked.
API_FILES_PER_STREAM: Final = 4
API_FILES_BESIDE: Final = 512
# A key that people choose themselves; shorter ones can be guessed from outside.
API_KEY_LEAST_CHARS: Final = 16
# A question with a few pictures, or a coding client's whole context.
API_BODY_MAX_BYTES: Final = 32 * MIB
# Checking a body takes half a second a megabyte at worst, and nothing else is done meanwhile: beyond this size it is
# done beside the loop.
API_BODY_SMALL_BYTES: Final = 32 * KIB
# Schemas of tools nest a dozen levels deep. JSON that is nested deeper than a few hundred can be read and yet not be
# written any more.
API_BODY_MAX_DEPTH: Final = 100
# How long a request may take to arrive, header and body.
API_RECEIVE_S: Final = 60.0
# How long an answer's status waits for the model's first word or refusal. Refusals take one round trip to a provider;
# a client that is to see a role chunk at once does not notice a quarter of a second.
API_STATUS_S: Final = 0.25
# How often a comment keeps a silent connection alive; proxies give up after 30 to 60 seconds.
API_KEEPALIVE_S: Final = 10.0
# How often it is looked at who is silent, who does not read, and how late the loop is.
API_PULSE_S: Final = 0.25
# How long a client may take nothing of what is written.
API_WRITE_STALL_S: Final = 30.0
# What is written to a client without waiting for it: well below the 64 KiB that its connection's buffer takes.
API_AT_ONCE_BYTES: Final = 32 * KIB
# Events put into one write when a follower has fallen behind; others get their turn in between.
API_BATCH_EVENTS: Final = 2048
# How long a turn is kept for those who may come back to it: a retry with the same Idempotency-Key, a native follower.
API_LINGER_S: Final = 60.0
# Idempotency keys remembered at once, and how long one may be.
API_IDEMPOTENT_MOST: Final = 10_000
API_IDEMPOTENCY_KEY_MAX_CHARS: Final = 255
# Requests of one server: a thousand clients may begin at once, and none may ask without pause.
API_BURST: Final = 4000
API_REQUESTS_PER_S: Final = 500
# Wrong keys from one address before it has to wait, and how fast it is forgiven: nothing to somebody who mistypes, and
# too slow by far for guessing a key of 16 characters.
API_WRONG_KEYS: Final = 500
API_WRONG_KEYS_PER_S: Final = 1.0
# Addresses remembered for that.
API_ADDRESSES_MOST: Final = 4096
# How long running turns may go on after the server was told to stop, and then for their last words to be read.
API_STOP_S: Final = 30.0
API_LAST_WORDS_S: Final = 5.0
# How often it is looked at what another process has written of a turn that is followed here.
API_LOOK_S: Final = 0.25
# How long a thread may keep the interpreter while the loop waits for it; Python's own 5 ms are ten deltas of a stream.
API_SWITCH_S: Final = 0.0005
# Python's collector in a server. What is young it looks at often and little at a time: of ten times as many objects it
# held the loop up for 7 to 18 ms. To go through a thousand streams takes it 50 to 150 ms, so it does that rarely.
API_COLLECTOR: Final = (1000, 2, 1000)
# What the C library takes from its heap and leaves there. A read makes room for 256 KiB; where that is mapped anew and
# given back each time, as it is from 128 KiB on, every delta costs half as much again.
API_HEAP_BYTES: Final = 4 * MIB
# How often a server deletes what is kept no longer.
API_TIDY_S: Final = 3600.0
# What a list shows at once.
API_LIST_MOST: Final = 200

# --- following a turn from a terminal -----------------------------------------------------------------

# How long a server may take to let a follower in, or to answer it; ending a turn's tools takes a few seconds.
FOLLOW_CONNECT_S: Final = 10.0
FOLLOW_ANSWER_S: Final = 60.0
# A stream that is silent for as long has lost its server, which writes a comment every API_KEEPALIVE_S.
FOLLOW_SILENCE_S: Final = 35.0
# Pauses between tries to come back, growing from the first to the longest, and how long it is tried: a server that is
# started again is there within seconds, a machine within a minute or two.
FOLLOW_PAUSE_FIRST_S: Final = 0.25
FOLLOW_PAUSE_MOST_S: Final = 5.0
FOLLOW_PATIENCE_S: Final = 120.0
# A connection that has held for as long is a new beginning, though nothing came: a turn may wait long for a person.
FOLLOW_STEADY_S: Final = 10.0
# How long a second Ctrl-C is waited for, which stops the turn instead of leaving it.
FOLLOW_PRESS_S: Final = 2.0
# How often it is looked whether a session has a further turn.
FOLLOW_LOOK_S: Final = 1.0
# The largest answer or event: a list of turns, a turn's opening with the pictures of a request in it.
FOLLOW_MAX_BYTES: Final = 2 * API_BODY_MAX_BYTES
