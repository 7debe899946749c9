"""``POST /v1/chat/completions``: text, speech in and out, tools, structured answers; in one piece or streamed."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from starlette.responses import Response
from starlette.routing import BaseRoute

from antiphon.realtime.rest import chat_body
from antiphon.realtime.rest.chat_answer import Answer
from antiphon.realtime.rest.chat_body import Chat, ChatBody
from antiphon.realtime.rest.endpoint import Call, route
from antiphon.realtime.rest.json_answer import JsonAnswer
from antiphon.realtime.rest.off_loop import off_loop
from antiphon.realtime.rest.work import Work
from antiphon.realtime.state import State

BYTES_PER_SAMPLE = 16
"""What encoding a sample of an answer in one piece weighs, measured in bytes of plain copying."""


def routes(state: State) -> list[BaseRoute]:
    return [*route(state, "/v1/chat/completions", _complete, method="POST")]


async def _complete(call: Call) -> Response:
    body = await call.json(ChatBody)
    call.name(body.request_id)
    info = call.require("chat", "text")
    chat = await off_loop(call.size, lambda: chat_body.read(body, info, call.id, call.state.audio_answers, call.caller.id))
    audio = call.state.audio_answers.announce() if chat.audio_format else None
    answer = Answer(info.model, audio, chat.audio_format)
    work = call.work(chat.request)
    if chat.stream:
        # What goes wrong before the first output is an HTTP error; after it, an event of the stream.
        await call.unless_gone(work.begin())
        return call.live_events(_stream(call, chat, answer, work), work)
    await call.unless_gone(_gather(answer, work))
    _keep(call, answer)
    whole = await off_loop(answer.samples * BYTES_PER_SAMPLE, lambda: JsonAnswer(answer.whole()))
    return await call.timed(whole, work)


async def _gather(answer: Answer, work: Work) -> None:
    async for event in work:
        answer.gather(event)


async def _stream(call: Call, chat: Chat, answer: Answer, work: Work) -> AsyncGenerator[dict[str, Any], None]:
    usage = chat.include_usage
    begun = False
    async for event in work:
        if not begun:
            begun = True
            yield answer.chunk(answer.first_delta(event), usage=usage)
        for delta in await answer.deltas(event):
            yield answer.chunk(delta, usage=usage)
    _keep(call, answer)
    yield answer.chunk({}, finish_reason=answer.result.finish_reason, usage=usage)
    if usage:
        yield answer.usage_chunk()


def _keep(call: Call, answer: Answer) -> None:
    if answer.audio is not None:
        identity, expires_at = answer.audio
        call.state.audio_answers.keep(identity, expires_at, call.caller.id, answer.text)
