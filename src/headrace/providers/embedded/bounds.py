"""Every bound of running the embedded model, with its reason. Units come last in the name."""

from typing import Final

from headrace.limits import MIB

# --- the child process

# Reading half a gigabyte from a slow disk takes tens of seconds; a machine that needs longer is out of memory.
START_S: Final = 180.0
# A child that is idle leaves within milliseconds of its input closing; one within a batch is killed.
STOP_S: Final = 1.0
# Signs of life while people wait, well within the shortest clock of an attempt.
LIFE_S: Final = 1.0
# What the child may write to its log; it writes a line for each failure.
LOG_MAX_BYTES: Final = 1 * MIB
# How much of the log is read to find out why the child ended.
LOG_TAIL_BYTES: Final = 8192

# --- the model

# Tokens of context. 96 MB for the default model, and as much as it uses well.
CONTEXT_TOKENS: Final = 8192
# Requests answered side by side. They share the context, and the processor.
SLOTS: Final = 2
# The largest number of prompt tokens between two looks at whether the client is still there: a tenth of a second on
# two cores. 64 would read prompts a sixth faster, and go on reading for half a second after a stop.
BATCH_TOKENS: Final = 16
# How often a thread looks before it sleeps while it waits for another one. By default it looks for milliseconds,
# which is free on an idle machine and costs four fifths of the speed on a busy one; this costs nothing on either.
SPIN_COUNT: Final = 1000
# Prompts of earlier questions that are kept, so that a conversation is not read again from its start.
PROMPT_CACHE_MIB: Final = 64
# Comments that keep a silent stream alive.
PING_S: Final = 10

# --- memory: measured, the process takes 1.3 times the file, and more for the context and its buffers

MEMORY_FACTOR: Final = 1.3
MEMORY_EXTRA_BYTES: Final = 128 * MIB

# --- requests

# A small model that repeats itself never ends by itself.
OUTPUT_MAX_TOKENS: Final = 2048
# A little freedom; at the usual 0.7 a small model loses its thread.
TEMPERATURE: Final = 0.3
# Of a tool's description and a parameter's; reading them costs a second for every 170 tokens.
DESCRIPTION_MAX_CHARS: Final = 160
PARAMETER_MAX_CHARS: Final = 60
# Levels of a schema that constrain the output; deeper values may be anything.
SCHEMA_MAX_DEPTH: Final = 8
# Against loops: at 1.1 a model also avoids the words of the question.
REPEAT_PENALTY: Final = 1.05
# What a model may do after a tool call goes by the size of its weights. Measured: 0.5 billion parameters (0.49 GB)
# make the same call again or one nobody asked for, 1.5 billion (1.1 GB) only the former. Above that nothing is known.
ANSWERS_BELOW_BYTES: Final = 800_000_000
REPEATS_BELOW_BYTES: Final = 2_500_000_000
