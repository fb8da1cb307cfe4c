"""/v1/responses: asked, come back to, cancelled, deleted."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from aiohttp import web

from headrace.doors.api import answers, response_request
from headrace.doors.api.asked import Asked, Refused, check_kept
from headrace.doors.api.desk import SESSION_HEADER, Desk, checks, flag, number
from headrace.doors.api.response_schemas import RESPONSE_REQUEST
from headrace.doors.api.turns import LEFT, Held, NoTurn
from headrace.errors import Cause
from headrace.turn.log import Log
from headrace.views import failing
from headrace.views.responses import Request, ResponsesView, turn_of

_check: Final = checks(RESPONSE_REQUEST)

CANCELLED: Final = Cause("stopped", "The response was cancelled by its caller.")


class ResponsesEndpoint:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def post(self, request: web.Request) -> web.StreamResponse:
        desk = self._desk
        body, raw = await desk.body(request, _check)
        named, ticket = desk.session(request), desk.ticket(request, raw)
        same = desk.turns.protocol(str(body["model"])) == "responses"
        asked = response_request.read(body, same_protocol=same)
        held = desk.turns.attached(ticket)
        if held is None:
            placed, session = await self._placed(asked, named)
            shown = Request(
                model=asked.model, acts=asked.acts, progress=desk.settings.progress, echo=asked.echo
            )
            held = desk.turns.attached(ticket) or desk.turns.begin(
                placed, session=session, request=shown.text(), ticket=ticket
            )
        if asked.stream:
            return await desk.live(request, held, ResponsesView())
        if asked.background:
            return answers.json(_whole(held.turn.log), headers=desk.headers(held))
        return await self._whole(held)

    async def get(self, request: web.Request) -> web.StreamResponse:
        after = number(request, "starting_after")
        async with self._log(request) as log:
            if not flag(request, "stream"):
                return answers.json(_whole(log))
            skip = 0 if after is None else after + 1
            with self._desk.stream(log, ResponsesView(), skip=skip) as stream:
                return await stream.flow(request, {})

    async def cancel(self, request: web.Request) -> web.StreamResponse:
        turn = self._desk.turns.here(_turn(request))
        if turn is not None:
            turn.stop(CANCELLED)
            await turn.wait()
        async with self._log(request) as log:
            if log.closed is None:
                raise Refused(409, "The response is being made by another process.", code="conflict")
            return answers.json(_whole(log))

    async def delete(self, request: web.Request) -> web.StreamResponse:
        turn, desk = _turn(request), self._desk
        held = desk.turns.held(turn)
        if held is not None and not held.closed:
            raise Refused(409, "The response is being made. Cancel it first.", code="conflict")
        store = desk.wired.store()
        session = await asyncio.to_thread(store.session_of, turn)
        if session is None and held is None:
            raise _unknown(request)
        if session is not None:
            await asyncio.to_thread(store.delete_turn, session, turn)
            desk.wired.forget(session, turn)
        desk.turns.let_go(turn)
        return answers.json({"id": request.match_info["id"], "object": "response", "deleted": True})

    # --- within

    async def _placed(self, asked: Asked, named: str) -> tuple[Asked, str]:
        """The question, and the session it is asked in: named, that of the response before, or one of its own."""
        if asked.previous and named:
            raise Refused(
                409, f"Name previous_response_id or {SESSION_HEADER}, not both.", code="two_sessions"
            )
        check_kept(named, kept=asked.stored)
        if named:
            return asked.news(), named
        if asked.previous:
            asked, session = await self._desk.turns.continued(asked, turn_of(asked.previous))
            if session:
                return asked, session
        return asked, self._desk.turns.new_session() if asked.stored else ""

    async def _whole(self, held: Held) -> web.StreamResponse:
        with self._desk.turns.followed(held, LEFT):
            closed = await held.turn.wait()
        value, headers = _whole(held.turn.log), self._desk.headers(held)
        if failing.failed(closed):
            visible = held.turn.folded().visible
            return answers.failure(closed.cause, value, visible=visible, headers=headers)
        return answers.json(value, headers=headers)

    @contextlib.asynccontextmanager
    async def _log(self, request: web.Request) -> AsyncIterator[Log]:
        try:
            async with self._desk.turns.log(_turn(request)) as log:
                yield log
        except NoTurn:
            raise _unknown(request) from None


def _turn(request: web.Request) -> str:
    return turn_of(request.match_info["id"])


def _whole(log: Log) -> dict[str, object]:
    view = ResponsesView()
    view.feed(log.since(0))
    return view.response()


def _unknown(request: web.Request) -> Refused:
    return Refused(404, f"There is no response {request.match_info['id']}.", code="not_found")
