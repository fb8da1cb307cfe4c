"""The native endpoints: turns as their logs, what they ask, and the sessions they are kept in.

A turn that is started here is detached: it goes on whoever follows it. It is kept in the session that is named, or in
one of its own; with `store: false` it lives in memory and is gone soon after its end.
"""

import asyncio
import re
from typing import Any, Final

import msgspec
from aiohttp import web

from headrace.doors.api import answers, chat_request
from headrace.doors.api.asked import AGENT_MODEL, Asked, Refused, check_kept
from headrace.doors.api.desk import Desk, checks, number
from headrace.doors.api.schemas import ANSWER, TURN_REQUEST, VERDICT
from headrace.doors.api.turns import NoTurn
from headrace.errors import Cause
from headrace.events import Recorded, TurnOpened
from headrace.limits import API_LIST_MOST
from headrace.runtime.turn import Turn
from headrace.stores.sqlite.digest import asked_text, title
from headrace.turn.folds import Folded, fold
from headrace.views.native import NativeView

_check_turn: Final = checks(TURN_REQUEST)
_check_verdict: Final = checks(VERDICT)
_check_answer: Final = checks(ANSWER)

STOPPED: Final = Cause("stopped", "The turn was stopped by a caller of the API.")
BY: Final = "api"


class NativeEndpoints:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    # --- turns

    async def start(self, request: web.Request) -> web.StreamResponse:
        desk = self._desk
        body, raw = await desk.body(request, _check_turn)
        ticket = desk.ticket(request, raw)
        named = body.get("session") or desk.session(request)
        asked = _asked(body, in_session=bool(named))
        check_kept(named, kept=asked.stored)
        session = named or (desk.turns.new_session() if asked.stored else "")
        held = desk.turns.attached(ticket) or desk.turns.begin(
            asked,
            session=session,
            manner=body.get("manner"),
            attended=body.get("attended", True),
            ticket=ticket,
        )
        return answers.json(_row(held.turn), 202, desk.headers(held))

    async def turns(self, _: web.Request) -> web.StreamResponse:
        """Those of this process: what runs before what has ended, latest first."""
        held = self._desk.turns.all_held()[::-1]
        held.sort(key=lambda each: each.closed)
        return answers.json({"object": "list", "data": [_row(each.turn) for each in held[:API_LIST_MOST]]})

    async def turn(self, request: web.Request) -> web.StreamResponse:
        own = self._desk.turns.here(request.match_info["turn"])
        if own is not None:
            return answers.json(_row(own))
        async with self._desk.turns.log(request.match_info["turn"]) as log:
            return answers.json(_state(log.since(0, 1)[0], fold(log.since(0))))

    async def events(self, request: web.Request) -> web.StreamResponse:
        after = max(number(request, "after") or 0, _last_seen(request))
        async with self._desk.turns.log(request.match_info["turn"]) as log:
            with self._desk.stream(log, NativeView(), after=after) as stream:
                return await stream.flow(request, {})

    async def stop(self, request: web.Request) -> web.StreamResponse:
        turn = self._here(request)
        turn.stop(STOPPED)
        await turn.wait()
        return answers.json(_row(turn))

    async def approve(self, request: web.Request) -> web.StreamResponse:
        body, _ = await self._desk.body(request, _check_verdict)
        turn, key = self._here(request), request.match_info["approval"]
        if not turn.approve(key, allowed=body["allow"], by=body.get("by") or BY):
            raise _settled("approval", key)
        return answers.json({"id": key, "allowed": body["allow"]})

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body, _ = await self._desk.body(request, _check_answer)
        turn, key = self._here(request), request.match_info["question"]
        if not turn.answer(key, body["text"], body.get("by") or BY):
            raise _settled("question", key)
        return answers.json({"id": key, "text": body["text"]})

    def _here(self, request: web.Request) -> Turn:
        name = request.match_info["turn"]
        turn = self._desk.turns.here(name)
        if turn is None:
            raise NoTurn(name, "among those that this server runs")
        return turn

    # --- sessions

    async def sessions(self, _: web.Request) -> web.StreamResponse:
        found = await asyncio.to_thread(self._desk.wired.store().sessions)
        rows = [info._asdict() for info in found[:API_LIST_MOST]]
        return answers.json({"object": "list", "data": rows})

    async def session(self, request: web.Request) -> web.StreamResponse:
        """Its latest turns, oldest first."""
        name = request.match_info["session"]
        turns = await asyncio.to_thread(self._latest, name)
        if not turns:
            raise _no_session(name)
        return answers.json({"name": name, "turns": turns})

    def _latest(self, name: str) -> list[dict[str, Any]]:
        turns: list[dict[str, Any]] = []
        for entries in self._desk.wired.store().turns(name):
            turns = [*turns[1 - API_LIST_MOST :], _state(entries[0], fold(entries))]
        return turns

    async def delete(self, request: web.Request) -> web.StreamResponse:
        name, desk = request.match_info["session"], self._desk
        if not await asyncio.to_thread(desk.wired.store().delete, name):
            raise _no_session(name)
        desk.wired.forget(name)
        for held in desk.turns.all_held():
            if held.session == name:
                desk.turns.let_go(held.turn.id)
        return answers.json({"name": name, "deleted": True})

    async def search(self, request: web.Request) -> web.StreamResponse:
        words = request.query.get("q", "").strip()
        if not words:
            raise Refused(400, "q holds the words to look for.", param="q")
        found = await asyncio.to_thread(self._desk.wired.store().search, words)
        return answers.json({"object": "list", "data": [each._asdict() for each in found]})


def _last_seen(request: web.Request) -> int:
    """What readers of server-sent events send by themselves when they connect anew."""
    text = request.headers.get("Last-Event-ID", "")
    return int(text) if re.fullmatch(r"[0-9]{1,12}", text) else 0


def _asked(body: dict[str, Any], *, in_session: bool) -> Asked:
    """The same reading as of chat completions, whose messages these are."""
    given = body["input"]
    messages = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if instructions := body.get("instructions"):
        messages = [{"role": "system", "content": instructions}, *messages]
    options = {name: body.get(name) for name in ("max_tokens", "temperature", "reasoning_effort")}
    model = body.get("model") or AGENT_MODEL
    asked = chat_request.read({"model": model, "messages": messages, **options})
    asked = asked.news() if in_session else asked
    # In the background: nobody has to stay for it to go on.
    return msgspec.structs.replace(asked, background=True, stored=body.get("store") is not False)


def _row(turn: Turn) -> dict[str, Any]:
    state = _state(turn.log.since(0, 1)[0], turn.folded())
    return {**state, "runs_here": turn.log.closed is None}


def _state(first: Recorded, folded: Folded) -> dict[str, Any]:
    """A turn as lists show it."""
    opened, closed = folded.opened, folded.closed
    assert isinstance(opened, TurnOpened)
    return {
        "id": first.turn,
        "object": "turn",
        "session": opened.session or None,
        "model": opened.model,
        "opened_at": first.at,
        "events": folded.seq,
        "question": title(asked_text([first])),
        "answer": folded.answer_text() or folded.refusal_text(),
        "outcome": closed.outcome if closed else None,
        "cause": closed.cause.message if closed else None,
        "runs_here": False,
    }


def _settled(what: str, key: str) -> Refused:
    return Refused(
        409, f"The {what} {key} is not open: it has been settled, or was never asked.", code="conflict"
    )


def _no_session(name: str) -> Refused:
    return Refused(404, f"There is no session {name}.", code="not_found")
