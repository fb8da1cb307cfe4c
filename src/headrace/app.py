"""Wires everything: from a configuration to turns that can be started.

Theory of operation. An `App` is what one process needs: the configuration, one HTTP client, the providers made from it
on first use, and what was learnt about them. Doors and the library ask it for turns. It holds no secrets: keys are
read from the environment it was given whenever a request needs one.
"""

import json
import logging
import random
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from headrace.agent.decide import AGENT, Plan
from headrace.config import Config, ModelRef, ProviderConfig, home_dir, load, parse_model
from headrace.errors import CallError, Cause, ConfigError
from headrace.events import Message
from headrace.limits import CHARS_PER_TOKEN, EMBEDDED_CONTEXT_TOKENS, HISTORY_TOKENS
from headrace.ports import Provider
from headrace.providers.http import Endpoint, HttpClient, HttpProvider
from headrace.runtime.call import Surroundings
from headrace.runtime.clock import SystemClock
from headrace.runtime.learnt import Learnt
from headrace.runtime.question import CallPolicy, Candidate, Options
from headrace.runtime.session import Session
from headrace.runtime.stalls import Patience
from headrace.runtime.turn import Turn
from headrace.stores.journal import JournalStore

_log = logging.getLogger(__name__)

SCRIPTED: Final = "scripted"
"""The provider that needs no model: it says so and repeats the question."""
LOCAL: Final = "local"
MOA: Final = "moa"

FetchProgress = Callable[[int, int, str], None]
"""Takes the bytes that are there, the bytes in all, and where they come from."""


def _unseen(_done: int, _total: int, _source: str) -> None:
    """Nobody watches."""


class App:
    def __init__(self, config: Config, home: Path, env: Mapping[str, str]) -> None:
        self.config = config
        self.fetch_progress: FetchProgress = _unseen
        """Told how the embedded model's weights arrive, when they have to be fetched."""
        self._home = home
        self._env = env
        self._clock = SystemClock()
        self._client = HttpClient(self._clock)
        self._learnt = Learnt(self._clock)
        self._providers: dict[str, Provider] = {}
        self._store: JournalStore | None = None

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "App":
        """With the configuration file of the home folder `env` names; raises ConfigError."""
        home = home_dir(env)
        return cls(load(home, env), home, env)

    def start(
        self,
        messages: Sequence[Message],
        model: str | None = None,
        session: Session | None = None,
        options: Options | None = None,
        plan: Plan | None = None,
    ) -> Turn:
        """Start a turn; raises ConfigError where the model cannot be asked."""
        session = session or Session()
        candidates = self.candidates(model)
        room = self._history_chars(candidates)
        log = session.log(new_id("turn"))
        turn = Turn(
            log, candidates, self._around(), options, plan or self._plan(), lambda: session.history(room)
        )
        turn.start(messages, session.name)
        return turn

    def session(self, name: str = "") -> Session:
        """A session that is kept under its name, or one in memory where there is none."""
        if not name:
            return Session()
        if self._store is None:
            self._store = JournalStore(self._home / "sessions")
        return Session.opened(name, self._store, self._clock)

    def _history_chars(self, candidates: Sequence[Candidate]) -> int:
        """What the smallest of the models can be given beside the question and its answer."""
        known = [self._context_tokens(candidate) for candidate in candidates]
        return min(known, default=HISTORY_TOKENS) * CHARS_PER_TOKEN // 2

    def _context_tokens(self, candidate: Candidate) -> int:
        ref = ModelRef(*candidate.model_id.partition(":")[::2])
        return self.config.model_settings(ref).context_tokens or (
            EMBEDDED_CONTEXT_TOKENS if ref.provider == LOCAL else HISTORY_TOKENS
        )

    def candidates(self, model: str | None = None) -> list[Candidate]:
        """The model and, unless one was named for this turn, its fallbacks."""
        if model is not None:
            return [self._candidate(self._ref(model))]
        chosen = self.config.model or ModelRef(LOCAL, "")
        return [self._candidate(ref) for ref in (chosen, *self.config.fallback_models)]

    async def close(self) -> None:
        for provider in self._providers.values():
            await provider.close()
        await self._client.close()
        if self._store is not None:
            self._store.close()

    def _ref(self, model: str) -> ModelRef:
        return ModelRef(SCRIPTED, "echo") if model == SCRIPTED else parse_model(model, self.config)

    def _candidate(self, ref: ModelRef) -> Candidate:
        settings = self.config.model_settings(ref)
        return Candidate(
            model_id=str(ref),
            provider=self._provider(ref),
            model=ref.model,
            streams=settings.streams,
            max_tokens=settings.max_tokens,
            temperature=settings.temperature,
            reasoning_effort=settings.reasoning_effort,
            dialect=settings.dialect,
        )

    def _provider(self, ref: ModelRef) -> Provider:
        provider = self._providers.get(ref.provider)
        if provider is None:
            provider = self._providers[ref.provider] = self._made(ref)
        return provider

    def _made(self, ref: ModelRef) -> Provider:
        if ref.provider == SCRIPTED:
            from headrace.testing.scripted import ScriptedProvider  # noqa: PLC0415 - most processes need none

            return ScriptedProvider(clock=self._clock)
        if ref.provider == LOCAL:
            return self._embedded()
        if ref.provider == MOA:
            raise ConfigError(f"{ref}: mixtures of models are not there yet; name one model.")
        config = self.config.provider(ref.provider)
        endpoint = Endpoint(
            name=config.name,
            protocol=config.protocol,
            base_url=config.base_url,
            auth=config.auth,
            headers=config.sent_headers(self._env),
        )
        return HttpProvider(endpoint, self._client, lambda: self._keys(config), self._dump())

    def _embedded(self) -> Provider:
        from headrace.providers.embedded import weights  # noqa: PLC0415 - costs time that most starts need not spend
        from headrace.providers.embedded.process import Surroundings as ChildSurroundings  # noqa: PLC0415
        from headrace.providers.embedded.provider import EmbeddedProvider  # noqa: PLC0415

        async def ensure(model: str) -> Path:
            there = weights.locate(model, self._home)
            if there is not None:
                return there
            return await weights.fetch(model, self._home, self._progressed, env=self._env, clock=self._clock)

        return EmbeddedProvider(ensure, ChildSurroundings(home=self._home, clock=self._clock))

    def _progressed(self, done: int, total: int, source: str) -> None:
        self.fetch_progress(done, total, source)

    def _keys(self, config: ProviderConfig) -> tuple[str, ...]:
        try:
            return config.keys(self._env)
        except ConfigError as error:
            raise CallError(Cause("key_missing", f"{error}")) from error

    def _around(self) -> Surroundings:
        streaming = self.config.streaming
        policy = CallPolicy(
            retries=streaming.retries,
            streams=streaming.enabled,
            patience=Patience(
                connect_s=streaming.stall.connect_s,
                first_event_s=streaming.stall.first_event_s,
                gap_s=streaming.stall.gap_s,
                no_progress_s=streaming.stall.no_progress_s,
            ),
        )
        return Surroundings(self._clock, self._learnt, policy, random.Random())  # noqa: S311 - jitter

    def _plan(self) -> Plan:
        if self.config.streaming.continue_cut == "agent":
            return AGENT
        return Plan(repeats=AGENT.repeats)

    def _dump(self) -> "_Dump | None":
        wanted = self._env.get("HEADRACE_DUMP_REQUESTS", "") not in ("", "0")
        return _Dump(self._home / "dumps") if wanted else None


class _Dump:
    """Writes requests to files, for those who want to see what was sent. Keys travel in headers and are not there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, provider: str, body: Mapping[str, Any]) -> None:
        try:
            self._write(provider, body)
        except OSError as error:  # it is there to help; the question is asked all the same
            _log.warning("the request could not be written to %s: %s", self._folder, error.strerror)

    def _write(self, provider: str, body: Mapping[str, Any]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        moment = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        path = self._folder / f"{moment}-{provider}-{secrets.token_hex(3)}.json"
        path.touch(mode=0o600)
        path.write_text(json.dumps(body, indent=2, ensure_ascii=False), encoding="utf-8")


def new_id(kind: str) -> str:
    """An id that sorts by time and cannot be guessed."""
    return f"{kind}_{time.time_ns() // 1_000_000:x}{secrets.token_hex(6)}"
