"""The configuration file: every key, its type, its default, and the words for what is expected of it.

Theory of operation. These structs are what a person may write, and nothing else is accepted. A type's
`description` is not a comment: it ends up in the message when a value does not fit. Whether the parts fit
together (a model's provider exists, a provider has an address) is decided in `loading`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from headrace.agent.mixture import Fanout
from headrace.events import AdviceShown
from headrace.limits import (
    ADVICE_S,
    API_CONCURRENT,
    API_PORT,
    API_WRITE_STALL_S,
    APPROVAL_S,
    BUFFER_THRESHOLD_MAX_CHARS,
    CURSOR_MAX_CHARS,
    DAYS_MAX,
    MEGABYTES_MAX,
    MONEY_MAX,
    QUESTION_S,
    REFERENCES_MOST,
    STREAM_RETRIES_MAX,
    TEMPERATURE_MAX,
    TOKENS_MAX,
    WAIT_MAX_S,
)
from headrace.ports import ProtocolName
from headrace.views.progress import Progress
from headrace.wire.dialect import Dialect, ThinkMode, ToolMarkup

Auth = Literal["bearer", "x-api-key", "none"]
"""How a key is sent: `Authorization: Bearer ...`, `x-api-key: ...`, or not at all."""

Transport = Literal["auto", "draft", "edit", "off"]
ContinueCut = Literal["agent", "never"]

ENV_NAME: Final = "[A-Z_][A-Z0-9_]{0,99}"

ModelText = Annotated[
    str,
    Meta(
        min_length=1,
        description="a model as <provider>:<model>, such as openai:gpt-5.5, or local, local:<file>, moa:<preset>",
    ),
]
ProviderName = Annotated[
    str,
    Meta(
        pattern=r"\A[a-z0-9][a-z0-9._-]{0,63}\Z",
        description="a name of small letters, digits, `-`, `_` and `.`",
    ),
]
Address = Annotated[
    str,
    Meta(
        pattern=r"\Ahttps?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?(/[A-Za-z0-9._~%!$&'()*+,;=:/-]*)?\Z",
        description="an address such as https://host/v1, with no user, query or space in it",
    ),
]
EnvName = Annotated[
    str,
    Meta(
        pattern=rf"\A{ENV_NAME}\Z",
        description="the name of an environment variable in capitals, such as OPENROUTER_API_KEY (not the key itself)",
    ),
]
HeaderName = Annotated[
    str, Meta(pattern=r"\A[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}\Z", description="the name of an HTTP header")
]
HeaderValue = Annotated[
    str,
    Meta(
        pattern=r"\A[\x20-\x7e]*\Z",
        max_length=8192,
        description="text of printable ASCII characters; ${NAME} takes a value from the environment",
    ),
]
Tokens = Annotated[int, Meta(ge=1, le=TOKENS_MAX, description="a number of tokens (1 or more)")]
Temperature = Annotated[
    float, Meta(ge=0, le=TEMPERATURE_MAX, description=f"a number from 0 to {TEMPERATURE_MAX}")
]
Effort = Annotated[
    str,
    Meta(pattern=r"\A[a-z]{1,20}\Z", description="a word the provider knows, such as low, medium or high"),
]
Retries = Annotated[
    int, Meta(ge=0, le=STREAM_RETRIES_MAX, description=f"a whole number from 0 to {STREAM_RETRIES_MAX}")
]
Mode = Literal["allow", "ask", "deny"]
Steps = Annotated[int, Meta(ge=1, le=10_000, description="a whole number from 1 to 10000")]
Manner = Literal["queue", "interrupt", "steer"]
Price = Annotated[float, Meta(ge=0, le=MONEY_MAX, description="an amount of money (0 or more)")]
Days = Annotated[
    float, Meta(gt=0, le=DAYS_MAX, description=f"a number of days (more than 0, at most {DAYS_MAX})")
]
Megabytes = Annotated[int, Meta(ge=1, le=MEGABYTES_MAX, description="a number of megabytes (1 or more)")]
PresetName = Annotated[
    str,
    Meta(
        pattern=r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z",
        description="a name of letters, digits, `-`, `_` and `.`",
    ),
]
Quorum = Annotated[int, Meta(ge=1, le=REFERENCES_MOST, description="a number of references")] | Literal["all"]
Seconds = Annotated[
    float, Meta(gt=0, le=WAIT_MAX_S, description=f"a number of seconds (more than 0, at most {WAIT_MAX_S})")
]
Threshold = Annotated[
    int,
    Meta(
        ge=1,
        le=BUFFER_THRESHOLD_MAX_CHARS,
        description=f"a number of characters from 1 to {BUFFER_THRESHOLD_MAX_CHARS}",
    ),
]
HostName = Annotated[
    str,
    Meta(
        pattern=r"\A[A-Za-z0-9:._-]{1,253}\Z",
        description="a host name or an address, such as 127.0.0.1, without a port",
    ),
]
Port = Annotated[int, Meta(ge=0, le=65535, description="a port from 0 (any free one) to 65535")]
Concurrency = Annotated[int, Meta(ge=1, le=100_000, description="a whole number from 1 to 100000")]
Origin = Annotated[
    str,
    Meta(
        pattern=r"\Ahttps?://[A-Za-z0-9.-]{1,253}(:[0-9]{1,5})?\Z",
        description="the origin of a page, such as https://chat.example.org",
    ),
]
Cursor = Annotated[
    str,
    Meta(
        max_length=CURSOR_MAX_CHARS,
        pattern=r"\A[^\x00-\x1f\x7f-\x9f]*\Z",
        description=f"a text of at most {CURSOR_MAX_CHARS} characters on one line",
    ),
]


class Written(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A section of the file. Every key has a default."""


class ProviderEntry(Written, frozen=True, kw_only=True):
    """What is written of a provider; for a ready-made one only what differs."""

    protocol: ProtocolName | UnsetType = UNSET
    base_url: Address | UnsetType = UNSET
    api_key_env: EnvName | UnsetType | None = UNSET
    api_keys_env: tuple[EnvName, ...] | UnsetType = UNSET
    auth: Auth | UnsetType = UNSET
    headers: Mapping[HeaderName, HeaderValue] = {}

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        # Headers are left out: a person may have put a secret there.
        return [("base_url", self.base_url)]

    def __repr__(self) -> str:
        return f"ProviderEntry(base_url={self.base_url!r})"


class PriceList(Written, frozen=True, kw_only=True):
    """Money for a million tokens, in whatever currency the bound on it is given in."""

    input: Price = 0.0
    output: Price = 0.0
    cache_read: Price | None = None


class ModelConfig(Written, frozen=True, kw_only=True):
    """What is asked of a model, and how it writes."""

    max_tokens: Tokens | None = None
    """The longest reply; None leaves it to the provider."""
    temperature: Temperature | None = None
    reasoning_effort: Effort | None = None
    streams: bool = True
    """False for a model that can only answer in one piece."""
    think: ThinkMode = "auto"
    tool_markup: ToolMarkup | None = None
    cumulative: bool = False
    context_tokens: Tokens | None = None
    """How much it can be given; None where nobody said."""
    prices: PriceList | None = None

    @property
    def dialect(self) -> Dialect:
        return Dialect(think=self.think, tool_markup=self.tool_markup, cumulative=self.cumulative)


class Stall(Written, frozen=True, kw_only=True):
    """How long each kind of silence may last."""

    connect_s: Seconds = 10.0
    first_event_s: Seconds = 180.0
    gap_s: Seconds = 90.0
    no_progress_s: Seconds = 600.0


class Streaming(Written, frozen=True, kw_only=True):
    enabled: bool = True
    retries: Retries = 2
    stall: Stall = Stall()
    continue_cut: ContinueCut = "agent"
    transport: Transport = "auto"
    edit_interval: Seconds | None = None
    """Seconds between two edits of a message; None leaves it to the platform's own limit."""
    buffer_threshold: Threshold = 100
    cursor: Cursor = " ▉"


class ToolRule(Written, frozen=True, kw_only=True):
    """What is decided for calls of one tool whose path or command begins so."""

    tool: str = ""
    path: str = ""
    command: str = ""
    then: Mode = "ask"


class Tools(Written, frozen=True, kw_only=True):
    """What the agent may do by itself."""

    enabled: Literal["auto", "on", "off"] = "auto"
    """`auto`: for every model but the embedded one, which is too small to act well."""
    modes: Mapping[str, Mode] = {}
    rules: tuple[ToolRule, ...] = ()
    max_steps: Steps = 50
    max_tokens: Tokens | None = None
    max_wall_s: Seconds = 3600.0
    max_cost: Price | None = None
    """Where the models have prices."""
    approval_s: Seconds = APPROVAL_S
    """How long a person is waited for to allow a call."""
    question_s: Seconds = QUESTION_S
    """How long a person is waited for to answer a question."""
    private_addresses: bool = False
    """Whether web_fetch may reach this machine and the network around it."""


class WhenBusy(Written, frozen=True, kw_only=True):
    """What a message does to a turn of its session that is running."""

    people: Manner = "interrupt"
    api: Manner = "queue"


class Sessions(Written, frozen=True, kw_only=True):
    """How conversations are kept."""

    when_busy: WhenBusy = WhenBusy()
    max_age_days: Days | None = None
    """Sessions that rested for longer are deleted; None keeps them."""
    max_megabytes: Megabytes | None = None
    """The oldest are deleted until the rest is smaller; None keeps them."""


class Slot(Written, frozen=True, kw_only=True):
    """A model of a mixture, in the two halves of its name."""

    provider: str = ""
    model: str = ""


class PresetEntry(Written, frozen=True, kw_only=True):
    """A mixture: references advise, the aggregator answers."""

    reference_models: tuple[Slot, ...] = ()
    aggregator: Slot | None = None
    deadline_s: Seconds = ADVICE_S
    quorum: Quorum = 1
    fanout: Fanout = "turn"
    show_advice: AdviceShown = "summary"


class Moa(Written, frozen=True, kw_only=True):
    """Mixtures of models."""

    default_preset: str | None = None
    presets: Mapping[PresetName, PresetEntry] = {}
    traces: bool = False
    """Whether a line on every call of a mixture is kept in the home folder."""


class Api(Written, frozen=True, kw_only=True):
    """The API that `headrace serve` opens."""

    host: HostName = "127.0.0.1"
    port: Port = API_PORT
    key_env: EnvName = "HEADRACE_API_KEY"
    """Where the key is; one is made and kept in the home folder where the variable is not set."""
    auth: Literal["key", "none"] = "key"
    max_concurrent: Concurrency = API_CONCURRENT
    on_disconnect: Literal["stop", "detach"] = "stop"
    """What becomes of a turn that nobody else can come back to when its client leaves."""
    progress: Progress = "reasoning"
    write_stall_s: Seconds = API_WRITE_STALL_S
    """How long a client may take nothing of what is written to it."""
    hosts: tuple[HostName, ...] = ()
    """Further names that this server is called by."""
    origins: tuple[Origin, ...] = ()
    """Web pages of other places that may ask."""


class FileConfig(Written, frozen=True, kw_only=True):
    """The whole file."""

    model: ModelText | None = None
    fallback_models: tuple[ModelText, ...] = ()
    providers: Mapping[ProviderName, ProviderEntry] = {}
    models: Mapping[ModelText, ModelConfig] = {}
    streaming: Streaming = Streaming()
    tools: Tools = Tools()
    sessions: Sessions = Sessions()
    skip_context_files: bool = False
    """Whether AGENTS.md and its kin are left unread."""
    skip_memory: bool = False
    """Whether the agent is not told what it was to remember."""
    moa: Moa = Moa()
    api: Api = Api()
