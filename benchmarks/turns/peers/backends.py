"""An OpenAI-compatible server of fixed delays, the same for every server under test: python -m ...peers.backends PORT

transcript 50 ms; first token 60 ms, then 10 ms each; first audio 80 ms, then 20 ms of 440 Hz every 5 ms for a second.
"""

from __future__ import annotations

import asyncio
import json
import math
import struct
import sys
from collections.abc import AsyncIterator

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from benchmarks.turns.stub_stages import ASR_S, CHUNK_S, CLAUSE_CHUNKS, FIRST_AUDIO_S, FIRST_TOKEN_S, TOKEN_S, WORDS

HEARD = "what time is it now"


async def transcriptions(request: Request) -> Response:
    form = await request.form()
    await asyncio.sleep(ASR_S)
    if form.get("response_format") == "text":
        return PlainTextResponse(HEARD)
    return JSONResponse({"text": HEARD, "language": "english", "duration": 2.0, "segments": []})


async def chat(request: Request) -> Response:
    await request.json()

    def event(delta: dict[str, str], finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "stub", "choices": [choice]}
        return f"data: {json.dumps(chunk)}\n\n"

    async def answer() -> AsyncIterator[str]:
        await asyncio.sleep(FIRST_TOKEN_S)
        yield event({"role": "assistant", "content": ""})
        for word in WORDS:
            yield event({"content": word})
            await asyncio.sleep(TOKEN_S)
        yield event({}, "stop")
        yield "data: [DONE]\n\n"

    return StreamingResponse(answer(), media_type="text/event-stream")


async def speech(request: Request) -> Response:
    await request.json()

    async def sound() -> AsyncIterator[bytes]:
        await asyncio.sleep(FIRST_AUDIO_S)
        for chunk in range(CLAUSE_CHUNKS):
            samples = (int(12_000 * math.sin(2 * math.pi * 440 * (chunk * 480 + i) / 24_000)) for i in range(480))
            yield b"".join(struct.pack("<h", s) for s in samples)
            await asyncio.sleep(CHUNK_S)

    return StreamingResponse(sound(), media_type="audio/pcm")


app = Starlette(
    routes=[
        Route("/v1/audio/transcriptions", transcriptions, methods=["POST"]),
        Route("/v1/chat/completions", chat, methods=["POST"]),
        Route("/v1/audio/speech", speech, methods=["POST"]),
    ]
)

if __name__ == "__main__":
    print(f"ready http://127.0.0.1:{sys.argv[1]}/v1", flush=True)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
