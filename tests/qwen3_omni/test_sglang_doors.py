"""SGLang as the Thinker, seen by clients: a conversation, and what REST tells of a server that fails."""

from __future__ import annotations

from antiphon.pipelines.client import Client
from antiphon.pipelines.qwen3_omni.pipeline import build
from antiphon.pipelines.runtime import LocalRuntime
from antiphon.realtime.settings import Settings as DoorSettings
from tests.qwen3_omni.fake_sglang import FakeSglang
from tests.qwen3_omni.noting import Noting
from tests.qwen3_omni.oracle import Oracle
from tests.qwen3_omni.test_sglang_faults import BUSY, hangs_up, writes
from tests.realtime import conversing
from tests.realtime.rest.conftest import serving, until


async def test_typed_turns_are_answered_aloud_and_spoken_ones_refused_by_name(folder: str, oracle: Oracle) -> None:
    fake = FakeSglang([*oracle.tok.encode("hello there"), oracle.model.config.im_end_token_id])
    async with fake.serve() as url:
        client = Noting(LocalRuntime(build(folder, thinker=f"openai:{url}#omni")))
        client.frames = 16
        async with conversing.serving(client) as running, conversing.talking(running) as talk:
            await talk.say_hello(instructions="You are Qwen.")
            for question in ("Hello", "And now?"):
                await talk.ask(question)
                await talk.until("response.output_audio.delta", within=30)
                response = (await talk.until("response.done", within=30))["response"]
                assert response["status"] == "completed"
                assert response["output"][0]["content"][0]["transcript"] == "hello there"
            assert "hello there<|im_end|>\n<|im_start|>user\nAnd now?" in oracle.tok.decode(fake.bodies[-1]["input_ids"])
            await talk.speak(conversing.voice(1.0))
            await talk.speak(conversing.hush(1.5))
            response = (await talk.until("response.done", within=30))["response"]
            assert response["status_details"]["error"]["code"] == "unsupported_value"
            assert "media are not supported with a thinker outside" in response["status_details"]["error"]["message"]


async def test_rest_tells_that_it_may_be_tried_again(folder: str) -> None:
    fake = FakeSglang([300, 301], "length")
    async with (
        fake.serve() as url,
        serving(Client(LocalRuntime(build(folder, thinker=f"openai:{url}#omni"))), DoorSettings()) as server,
    ):
        await until(lambda: server.state.ready or server.state.failure is not None, 30)
        body = {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
        fake.script = [BUSY, BUSY]
        answer = await server.http.post("/v1/chat/completions", json=body)
        assert answer.status_code == 503 and answer.headers["retry-after"]
        assert answer.json()["error"]["code"] == "upstream_error" and url not in answer.text
        fake.script = [hangs_up]
        answer = await server.http.post("/v1/chat/completions", json={**body, "stream": True})
        assert "broke off in the middle of its answer" in answer.text and "[DONE]" not in answer.text
        fake.script = [writes(b'{"error": "top_p: no"}', status="400 Bad Request")]
        answer = await server.http.post("/v1/chat/completions", json=body)
        assert answer.status_code == 400 and answer.json()["error"]["message"].endswith("(400): top_p: no")
        assert (await server.http.post("/v1/chat/completions", json=body)).status_code == 200
