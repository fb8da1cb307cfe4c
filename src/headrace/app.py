"""Wires everything: from a configuration to turns that can be started.

Theory of operation. An `App` is what one process needs: the configuration, one HTTP client, the providers made from it
on first use, and what was learnt about them. Doors and the library ask it for turns. It holds no secrets: keys are
read from the environment it was given whenever a request needs one.
"""

import asyncio
import json
import logging
import random
import secrets
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

import msgspec

from headrace.agent.approvals import Rule, Rules
from headrace.agent.decide import AGENT, Plan
from headrace.agent.history import ENDLESS, Context, Room
from headrace.agent.mixture import Mixture
from headrace.agent.prompt import Scene, system_prompt
from headrace.config import Config, ModelRef, ProviderConfig, home_dir, load, parse_model
from headrace.errors import CallError, Cause, ConfigError, HeadraceError
from headrace.events import Message, SystemMessage
from headrace.limits import (
    CHARS_PER_TOKEN,
    EMBEDDED_CONTEXT_TOKENS,
    HISTORY_TOKENS,
    PAST_SHARE,
    STORE_LOOKED_AT,
    STORE_OPEN_SESSIONS,
    TURN_SHARE,
)
from headrace.ports import Clock, Provider, Tool
from headrace.providers.http import Endpoint, HttpClient, HttpProvider
from headrace.runtime.call import Surroundings
from headrace.runtime.clock import SystemClock
from headrace.runtime.learnt import Learnt
from headrace.runtime.question import Acting, CallPolicy, Candidate, Options
from headrace.runtime.session import MakeTurn, Manner, Session, close_crashed
from headrace.runtime.stalls import Patience
from headrace.runtime.tools import Toolbox
from headrace.runtime.turn import Turn
from headrace.stores.context import context_files, memory
from headrace.stores.traces import append_trace
from headrace.turn.costs import Prices
from headrace.views.traces import trace

if TYPE_CHECKING:
    from headrace.stores.sqlite import SessionStore

_log = logging.getLogger(__name__)

SCRIPTED: Final = "scripted"
"""The provider that needs no model: it says so and repeats the question."""
LOCAL: Final = "local"
MOA: Final = "moa"

CLOSED: Final = Cause("shutdown", "headrace was closed while the turn was running.")

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
        self._around = self._surroundings(Learnt(self._clock))
        self._providers: dict[str, Provider] = {}
        self._store: SessionStore | None = None
        self._sessions: dict[str, Session] = {}
        self._turns: WeakValueDictionary[str, Turn] = WeakValueDictionary()
        self._plugins: tuple[Tool, ...] | None = None
        self._toolsets: dict[Session, Mapping[str, Tool]] = {}
        self._passing: dict[Session, asyncio.Task[None]] = {}
        self._alone: set[Turn] = set()
        self._beside: set[asyncio.Task[None]] = set()

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
        acting: Acting | None = None,
        manner: Manner = "queue",
    ) -> Turn:
        """Start a turn, or post messages to a session; raises ConfigError where the model cannot be asked.

        With `acting` the turn is an agent's: it is told where it is, and may use tools as far as that allows.
        """
        owner = session or Session()
        make = self._maker(owner, model, options, plan, acting)
        turn = make() if session is None else session.post(messages, make, manner)
        if session is None:
            turn.start(messages)
            self._goes_alone(turn, owner)
        if self.config.traces and turn.mixed:
            self._later(self._trace(turn))
        return turn

    def _goes_alone(self, turn: Turn, owner: Session) -> None:
        """It is in no session that is kept or posted to: what it has goes with it."""
        self._alone.add(turn)
        turn.log.await_end(partial(self._alone.discard, turn))
        if owner in self._toolsets:
            self._later(self._close_tools_after(turn, owner))

    async def _close_tools_after(self, turn: Turn, owner: Session) -> None:
        try:
            await turn.wait()
        finally:
            await self._close_tools(owner)

    def turn(self, turn_id: str) -> Turn | None:
        """A turn of this process that somebody still holds."""
        return self._turns.get(turn_id)

    def _maker(
        self,
        session: Session,
        model: str | None,
        options: Options | None,
        plan: Plan | None,
        acting: Acting | None,
    ) -> MakeTurn:
        candidates, mixture, references = self.candidates(model), *self.mixture(model)
        toolbox = self._toolbox(acting, candidates, session) if acting else None
        plan = msgspec.structs.replace(plan or self._plan(), mixture=mixture)
        if toolbox is not None:
            options = msgspec.structs.replace(options or Options(), tools=toolbox.specs())
            plan = msgspec.structs.replace(plan, **self._acting_limits(), runs_tools=True)
        prompt = self._prompt(acting, tools=toolbox is not None) if acting else ()
        prompt = (*prompt, *(options.prompt if options else ()))
        # What a caller sends for a relayed call is the caller's to fit; only what is added to it is measured.
        room = self._room((*candidates, *references)) if plan.compacts else ENDLESS

        def recall() -> Context:
            return Context(prompt=prompt, past=session.past, room=room)

        def make() -> Turn:
            log = session.log(new_id("turn"))
            turn = Turn(log, candidates, self._around, options, plan, recall, toolbox, references)
            self._turns[turn.id] = turn
            return turn

        return make

    @property
    def home(self) -> Path:
        return self._home

    @property
    def clock(self) -> Clock:
        return self._clock

    # --- acting

    def _toolbox(self, acting: Acting, candidates: Sequence[Candidate], session: Session) -> Toolbox | None:
        settings = self.config.tools
        wanted = acting.tools
        if wanted is None:
            small = candidates[0].provider.name in (LOCAL, SCRIPTED)
            wanted = settings.enabled == "on" or (settings.enabled == "auto" and not small)
        if not wanted:
            return None
        rules = tuple(Rule(tool=r.tool, path=r.path, command=r.command, then=r.then) for r in settings.rules)
        return Toolbox(
            tools=self._tools(session),
            folder=acting.folder.resolve(),
            home=self._home,
            env=self._child_environment(),
            clock=self._clock,
            rules=Rules(settings.modes, rules, assume_yes=acting.assume_yes),
            attended=acting.attended,
            owner=session.name or session,
            approval_s=settings.approval_s,
            question_s=settings.question_s,
        )

    def _tools(self, session: Session) -> Mapping[str, Tool]:
        """A session has its own, because commands in the background belong to who started them."""
        known = self._toolsets.get(session)
        if known is not None:
            return known
        from headrace import tools  # noqa: PLC0415 - costs time that plain questions need not spend

        settings = self.config.tools
        own = tools.builtin(private=settings.private_addresses)
        if self._plugins is None:
            self._plugins = tools.third_party(tool.spec.name for tool in own)
        made = self._toolsets[session] = {tool.spec.name: tool for tool in (*own, *self._plugins)}
        return made

    async def _close_tools(self, session: Session) -> None:
        plugins = self._plugins or ()
        for tool in self._toolsets.pop(session, {}).values():
            if tool not in plugins:
                await tool.close()

    def _passes(self, session: Session) -> None:
        """Nobody will post to the session again: what it has goes when it is idle."""

        async def farewell() -> None:
            await session.idle()
            await self._close_tools(session)
            del self._passing[session]

        self._passing[session] = self._later(farewell())

    def _later(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Do it beside the turns; closing waits for it."""
        task = asyncio.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)
        return task

    async def _trace(self, turn: Turn) -> None:
        try:
            await turn.wait()
            await asyncio.to_thread(append_trace, self._home, trace(turn.log.since(0), self._prices()))
        except HeadraceError as error:  # a trace is there to help; the answer has been given
            _log.warning("a mixture's trace is not kept: %s", error)

    def _child_environment(self) -> Mapping[str, str]:
        from headrace.tools import child_environment  # noqa: PLC0415

        names = {name for provider in self.config.providers.values() for name in provider.variables}
        return child_environment(self._env, names)

    def _acting_limits(self) -> dict[str, Any]:
        settings = self.config.tools
        return {
            "max_cost": settings.max_cost,
            "prices": self._prices(),
            "max_steps": settings.max_steps,
            "max_tokens": settings.max_tokens,
            "max_wall_s": settings.max_wall_s,
        }

    def _prices(self) -> dict[str, Prices]:
        return {
            str(ref): Prices(input=known.input, output=known.output, cache_read=known.cache_read)
            for ref, settings in self.config.models.items()
            if (known := settings.prices) is not None
        }

    def _prompt(self, acting: Acting, *, tools: bool) -> tuple[Message, ...]:
        folder = acting.folder.resolve()
        reads_files = acting.context_files and not self.config.skip_context_files
        reads_memory = acting.memory and not self.config.skip_memory
        files = context_files(folder, Path.home()) if reads_files else ()
        remembered = memory(self._home) if reads_memory else ""
        if not (files or remembered or tools):
            return ()  # a plain question needs no instructions
        scene = Scene(
            folder=str(folder),
            tools=tools,
            attended=acting.attended,
            files=files,
            memory=remembered,
            today=time.strftime("%A, %d %B %Y", time.localtime(self._clock.now())),
        )
        return (SystemMessage(system_prompt(scene)),)

    # --- sessions

    def session(self, name: str = "") -> Session:
        """A session that is kept under its name, or one in memory where there is none."""
        if not name:
            return Session()
        session = self._sessions.get(name)
        if session is None:
            store = self.store()
            self._make_room(store)
            most_chars = 2 * self._room(self.candidates()).past
            session = self._sessions[name] = Session.opened(name, store, self._clock, most_chars)
        return session

    def forget(self, name: str, turn: str = "") -> None:
        """What is kept of the session has changed: it is read anew when it is next asked for. One that is busy goes
        on without the turn.
        """
        session = self._sessions.get(name)
        if session is None:
            return
        if session.busy:
            session.forget(turn)
        else:
            self._passes(self._sessions.pop(name))

    def leave(self, name: str) -> None:
        """Let other processes write the session, if nothing runs in it here."""
        session = self._sessions.get(name)
        if session is not None and not session.busy and self.store().release(name):
            self._passes(self._sessions.pop(name))

    def store(self) -> "SessionStore":
        """What is kept; what a dead process left open in it is closed first."""
        if self._store is None:
            from headrace.stores.sqlite import SessionStore  # noqa: PLC0415 - plain questions need none

            self._store = store = SessionStore(self._home)
            for left in store.unfinished():
                close_crashed(left.entries, partial(store.append, left.session), self._clock)
                store.release(left.session)
        return self._store

    async def tidy(self) -> None:
        """Delete what the configuration says is kept no longer."""
        kept = self.config.sessions
        if kept.max_age_days is None and kept.max_megabytes is None:
            return
        most_bytes = None if kept.max_megabytes is None else kept.max_megabytes * 1_000_000
        gone = await asyncio.to_thread(self.store().prune, self._clock.now(), kept.max_age_days, most_bytes)
        if gone:
            _log.info("deleted by age or size: %s", ", ".join(gone))

    def _make_room(self, store: "SessionStore") -> None:
        """Sessions at rest give way, a few at a time, so that a process that sees many holds few."""
        for _ in range(STORE_LOOKED_AT):
            if len(self._sessions) < STORE_OPEN_SESSIONS // 2:
                return
            name, session = next(iter(self._sessions.items()))
            del self._sessions[name]
            if session.busy or not store.release_at_rest(name):
                self._sessions[name] = session
            else:
                self._passes(session)

    def _room(self, candidates: Sequence[Candidate]) -> Room:
        """What the smallest of the models can be told."""
        tokens = min(map(self._context_tokens, candidates), default=HISTORY_TOKENS)
        return Room(int(tokens * CHARS_PER_TOKEN * PAST_SHARE), int(tokens * CHARS_PER_TOKEN * TURN_SHARE))

    def _context_tokens(self, candidate: Candidate) -> int:
        ref = ref_of(candidate)
        return self.config.model_settings(ref).context_tokens or (
            EMBEDDED_CONTEXT_TOKENS if ref.provider == LOCAL else HISTORY_TOKENS
        )

    def candidates(self, model: str | None = None) -> list[Candidate]:
        """The model that answers (of a mixture, its aggregator) and, unless one was named, its fallbacks."""
        fallbacks = self.config.fallback_models if model is None else ()
        ref = self._ref(model)
        answers = self.config.presets[ref.model].aggregator if ref.provider == MOA else ref
        return [self._candidate(each) for each in (answers, *fallbacks)]

    def mixture(self, model: str | None = None) -> tuple[Mixture | None, list[Candidate]]:
        """Who advises the model, where it is a mixture."""
        ref = self._ref(model)
        if ref.provider != MOA:
            return None, []
        preset = self.config.presets[ref.model]
        mixture = Mixture(
            name=str(ref),
            references=tuple(map(str, preset.references)),
            deadline_s=preset.deadline_s,
            quorum=preset.quorum,
            fanout=preset.fanout,
            show=preset.show_advice,
        )
        return mixture, [self._candidate(each) for each in preset.references]

    async def close(self) -> None:
        alone = tuple(self._alone)
        for turn in alone:
            turn.stop(CLOSED)
        sessions = (*self._sessions.values(), *self._passing)
        await asyncio.gather(*(turn.wait() for turn in alone), *(each.close(CLOSED) for each in sessions))
        await asyncio.gather(*self._beside)
        for session in list(self._toolsets):
            await self._close_tools(session)
        for tool in self._plugins or ():
            await tool.close()
        for provider in self._providers.values():
            await provider.close()
        await self._client.close()
        if self._store is not None:
            await self.tidy()
            await asyncio.to_thread(self._store.close)

    def _ref(self, model: str | None) -> ModelRef:
        """The model that is named, or else configured."""
        if model is None:
            return self.config.model or ModelRef(LOCAL, "")
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
            return await weights.fetch(model, self._home, self._progressed, env=self._env, clock=self._clock)

        return EmbeddedProvider(ensure, ChildSurroundings(home=self._home, clock=self._clock))

    def _progressed(self, done: int, total: int, source: str) -> None:
        self.fetch_progress(done, total, source)

    def _keys(self, config: ProviderConfig) -> tuple[str, ...]:
        try:
            return config.keys(self._env)
        except ConfigError as error:
            raise CallError(Cause("key_missing", f"{error}")) from error

    def _surroundings(self, learnt: Learnt) -> Surroundings:
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
        return Surroundings(self._clock, learnt, policy, random.Random())  # noqa: S311 - jitter

    def _plan(self) -> Plan:
        if self.config.streaming.continue_cut == "agent":
            return AGENT
        return msgspec.structs.replace(AGENT, continuations=0)

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


def ref_of(candidate: Candidate) -> ModelRef:
    return ModelRef(*candidate.model_id.partition(":")[::2])


def new_id(kind: str) -> str:
    """An id that sorts by time and cannot be guessed."""
    return f"{kind}_{time.time_ns() // 1_000_000:x}{secrets.token_hex(6)}"
