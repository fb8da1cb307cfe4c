"""POST /v1/chat/completions."""

from typing import Final

from aiohttp import web

from headrace.doors.api import answers, chat_request
from headrace.doors.api.asked import check_kept
from headrace.doors.api.desk import Desk, checks
from headrace.doors.api.schemas import CHAT_REQUEST
from headrace.doors.api.turns import LEFT, Held
from headrace.views import failing
from headrace.views.chat_completions import ChatView, whole, whole_failure

_check: Final = checks(CHAT_REQUEST)


class ChatEndpoint:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def post(self, request: web.Request) -> web.StreamResponse:
        desk = self._desk
        body, raw = await desk.body(request, _check)
        session, ticket = desk.session(request), desk.ticket(request, raw)
        check_kept(session, kept=body.get("store") is not False)
        asked = chat_request.read(body, replays=desk.turns.protocol(str(body["model"])) == "chat_completions")
        held = desk.turns.attached(ticket) or desk.turns.begin(
            asked.news() if session else asked, session=session, ticket=ticket
        )
        if not asked.stream:
            return await self._whole(held)
        answers_it = held.asked  # what is given to a turn that runs is answered by whom that was put to
        view = ChatView(
            answers_it.model,
            acts=answers_it.acts,
            progress=desk.settings.progress,
            include_usage=asked.include_usage,
        )
        return await desk.live(request, held, view)

    async def _whole(self, held: Held) -> web.StreamResponse:
        desk, asked = self._desk, held.asked
        with desk.turns.followed(held, LEFT):
            closed = await held.turn.wait()
        folded, at = held.turn.folded(), held.turn.log.since(0, 1)[0].at
        if failing.failed(closed):
            return answers.failure(
                closed.cause, whole_failure(folded), visible=folded.visible, headers=desk.headers(held)
            )
        value = whole(held.turn.id, at, asked.model, folded, acts=asked.acts)
        return answers.json(value, headers=desk.headers(held))
