"""What holds at every REST door: ids, keys, limits, readiness, CORS, errors in one shape."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from antiphon.pipelines.errors import Busy, StageFailed, WeightError
from antiphon.realtime.limits import Limits
from antiphon.realtime.refusals import describe
from tests.realtime.rest.conftest import Serve, until
from tests.realtime.stub_client import StubClient, text

CHAT = "/v1/chat/completions"
ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}]}


def shaped(body: Any) -> dict[str, Any]:
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    error: dict[str, Any] = body["error"]
    return error


async def test_unknown_paths_and_methods_have_the_shape_too(serve: Serve) -> None:
    async with serve() as server:
        nowhere, wrong = await server.http.get("/v1/nowhere"), await server.http.get(CHAT)
        long = await server.http.get("/v1/" + "x" * 5000)
    assert (nowhere.status_code, shaped(nowhere.json())["code"]) == (404, "unknown_url")
    assert len(shaped(long.json())["message"]) < 300
    assert (wrong.status_code, shaped(wrong.json())["code"]) == (405, "method_not_allowed")
    assert wrong.headers["allow"] == "POST"
    assert all(r.headers["x-request-id"].startswith("req_") for r in (nowhere, wrong))


async def test_a_fault_of_ours_is_told_without_its_text(serve: Serve) -> None:
    stub = StubClient(lambda _: [RuntimeError("secret path")])
    async with serve(client=stub) as server:
        response = await server.http.post(CHAT, json=ASK)
        assert response.status_code == 500
        assert shaped(response.json())["type"] == "server_error"
        assert "secret" not in response.text
        stub.script = lambda _: text("still here")
        assert (await server.http.post(CHAT, json=ASK)).status_code == 200


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_json"),
        (b"{", "invalid_json"),
        (b"\xff\xfe", "invalid_json"),
        (b"[1]", "invalid_type"),
        (b'"x"', "invalid_type"),
        (b"null", "invalid_type"),
        (b"{}", "missing_required_parameter"),
        (b"[" * 100_000, "invalid_json"),
        (b'{"messages": NaN}', "invalid_json"),
    ],
)
@pytest.mark.parametrize("url", [CHAT, "/v1/audio/speech"])
async def test_bodies_that_are_no_json_object(serve: Serve, body: bytes, code: str, url: str) -> None:
    async with serve() as server:
        response = await server.http.post(url, content=body, headers={"content-type": "application/json"})
        assert response.status_code == 400
        assert shaped(response.json())["code"] == code


async def test_a_wrong_content_type_is_forgiven_if_the_body_is_json_and_named_if_not(serve: Serve) -> None:
    async with serve() as server:
        form = {"content-type": "application/x-www-form-urlencoded"}
        good = await server.http.post(CHAT, content=b'{"messages":[{"role":"user","content":"x"}]}', headers=form)
        bad = await server.http.post(CHAT, content=b"messages=x", headers=form)
    assert good.status_code == 200
    assert "application/x-www-form-urlencoded" in shaped(bad.json())["message"]


async def test_request_ids_come_back_and_one_in_use_is_refused(serve: Serve) -> None:
    gate = asyncio.Event()
    async with serve(lambda _: [gate, *text("x")]) as server:
        first = asyncio.create_task(server.http.post(CHAT, json=ASK, headers={"X-Request-Id": "one"}))
        await until(lambda: bool(server.stub.live))
        second = await server.http.post(CHAT, json={**ASK, "request_id": "one"})
        assert (second.status_code, shaped(second.json())["code"]) == (409, "request_id_in_use")
        gate.set()
        assert (await first).headers["x-request-id"] == "one"
        assert (await server.http.post(CHAT, json=ASK, headers={"X-Request-Id": "one"})).status_code == 200
        bad = await server.http.post(CHAT, json=ASK, headers={"X-Request-Id": "a b"})
        assert (bad.status_code, shaped(bad.json())["param"]) == (400, "X-Request-Id")
        assert [r.id for r in server.stub.requests] == ["one", "one"]


async def test_the_request_id_is_in_the_log_with_its_timing(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "antiphon.rest")
    async with serve() as server:
        await server.http.post(CHAT, json={**ASK, "request_id": "log-me"})
        await asyncio.sleep(0)
    record = next(r for r in caplog.records if getattr(r, "request_id", None) == "log-me")
    assert {"first_token", "text", "total", "media", "queue-thinker"} <= set(vars(record)["ms"])


async def test_keys(serve: Serve) -> None:
    async with serve(api_keys=("sk-right",)) as server:
        for headers, status in (
            ({}, 401),
            ({"Authorization": "Bearer sk-wrong"}, 401),
            ({"Authorization": "Bearer sk-right"}, 200),
            ({"api-key": "sk-right"}, 200),
        ):
            for method, url in (("POST", CHAT), ("GET", "/v1/models"), ("GET", "/v1/audio/voices")):
                response = await server.http.request(method, url, json=ASK if method == "POST" else None, headers=headers)
                assert response.status_code == status
                if status == 401:
                    assert shaped(response.json())["code"] == "invalid_api_key"
        assert (await server.http.get("/health")).status_code == 200
    async with serve() as server:  # nobody set a key: clients send dummies
        assert (await server.http.post(CHAT, json=ASK, headers={"Authorization": "Bearer dummy"})).status_code == 200


async def test_limits_answer_413_429_and_503_with_retry_after(serve: Serve) -> None:
    async with serve(max_body_bytes=2000, limits=Limits(responses_per_minute=2)) as server:
        large = await server.http.post(CHAT, content=b"x" * 2001)
        assert (large.status_code, shaped(large.json())["code"]) == (413, "request_too_large")

        async def endless() -> Any:
            for _ in range(100):
                yield b"x" * 1000

        chunked = await server.http.post(CHAT, content=endless())
        assert chunked.status_code == 413
        statuses = [(await server.http.post(CHAT, json=ASK)) for _ in range(3)]
        assert [r.status_code for r in statuses] == [200, 200, 429]
        assert 1 <= int(statuses[2].headers["retry-after"]) <= 30
        assert shaped(statuses[2].json())["type"] == "rate_limit_error"
    async with serve() as server:
        server.stub.refuses = Busy("the server is busy: 8 requests are running", retry_after_s=2.5)
        busy = await server.http.post(CHAT, json=ASK)
        assert (busy.status_code, busy.headers["retry-after"], shaped(busy.json())["code"]) == (503, "3", "server_busy")


async def test_ready_means_warm(serve: Serve) -> None:
    stub = StubClient(lambda _: text("x"))
    stub.warm.clear()
    async with serve(client=stub) as server:
        health, chat = await server.http.get("/health"), await server.http.post(CHAT, json=ASK)
        assert (health.status_code, health.json()["status"]) == (503, "starting")
        assert (chat.status_code, shaped(chat.json())["code"]) == (503, "starting")
        assert "retry-after" in chat.headers
        stub.warm.set()
        await until(lambda: server.state.ready)
        health = await server.http.get("/health")
        assert (health.status_code, health.json()["status"]) == (200, "ready")
        stub.lanes["main"] = "RuntimeError"
        assert (await server.http.get("/health")).json()["status"] == "degraded"


@pytest.mark.parametrize("error", [WeightError("whisper-base has the wrong hash: run `antiphon models pull`"), OSError("x")])
async def test_a_pipeline_that_does_not_start_is_told_and_the_server_lives(serve: Serve, error: Exception) -> None:
    stub = StubClient(lambda _: text("x"))
    stub.fails = error
    async with serve(client=stub) as server:
        await until(lambda: server.state.failure is not None)
        health = await server.http.get("/health")
        assert (health.status_code, health.json()["status"]) == (503, "failed")
        assert isinstance(error, OSError) or "antiphon models pull" in health.json()["error"]
        assert shaped((await server.http.post(CHAT, json=ASK)).json())["code"] == "start_failed"


async def test_browsers_may_read(serve: Serve) -> None:
    async with serve() as server:
        origin = {"Origin": "https://page.example"}
        ask = {**origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
        preflight = await server.http.options(CHAT, headers=ask)
        answer = await server.http.post(CHAT, json=ASK, headers=origin)
        refused = await server.http.get("/v1/nowhere", headers=origin)
    assert preflight.status_code == 200
    for response in (preflight, answer, refused):
        assert response.headers["access-control-allow-origin"] == "*"
    assert "X-Request-Id" in answer.headers["access-control-expose-headers"]


async def test_models_and_voices(serve: Serve) -> None:
    async with serve() as server:
        models = (await server.http.get("/v1/models")).json()
        one, none = await server.http.get("/v1/models/stub-voice"), await server.http.get("/v1/models/gpt-9")
        voices = (await server.http.get("/v1/audio/voices")).json()
    assert models["object"] == "list"
    assert [m["id"] for m in models["data"]] == ["stub-voice", "stub-thinker", "stub-talker"]
    assert all({"id", "object", "created", "owned_by"} <= set(m) for m in models["data"])
    whole = one.json()
    assert whole["terminals"]["chat"] == ["text", "audio"]
    assert whole["inputs"]["chat"] == ["text", "audio", "image"]
    assert "/v1/audio/speech" in whole["endpoints"]
    assert (none.status_code, shaped(none.json())["code"]) == (404, "model_not_found")
    assert voices["voices"] == ["anna", "bert"]
    assert [v["default"] for v in voices["data"]] == [True, False]


async def test_paths_without_the_version(serve: Serve) -> None:
    async with serve() as server:
        assert (await server.http.post("/chat/completions", json=ASK)).status_code == 200
        assert (await server.http.get("/models")).status_code == 200


async def test_metrics_count_what_was_asked_and_refused(serve: Serve) -> None:
    async with serve() as server:
        await server.http.post(CHAT, json=ASK)
        await server.http.post(CHAT, json={})
        await asyncio.sleep(0)
        told = (await server.http.get("/metrics")).text
    assert 'antiphon_generations_total{kind="chat"} 1.0' in told
    assert 'antiphon_errors_total{code="missing_required_parameter"} 1.0' in told
    assert 'antiphon_stage_queue_seconds_count{stage="thinker"} 1.0' in told


def test_a_failure_that_may_pass_is_503() -> None:
    assert describe(StageFailed("thinker", "lost", retryable=True)).headers == {"Retry-After": "1"}
    assert describe(StageFailed("thinker", "lost", retryable=True)).status == 503
    assert describe(ValueError("inside")).message == "The server had an error while processing your request."


async def test_the_page_is_served_beside_the_doors(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<h1>talk</h1>")
    async with serve(web_demo=tmp_path) as server:
        assert "talk" in (await server.http.get("/")).text
        for method in ("GET", "POST"):
            nowhere = await server.http.request(method, "/v1/nowhere")
            assert (nowhere.status_code, shaped(nowhere.json())["code"]) == (404, "unknown_url")
        assert (await server.http.get(CHAT)).status_code == 405
        assert shaped((await server.http.get("/nothing.js")).json())["code"] == "unknown_url"
        assert (await server.http.post(CHAT, json=ASK)).status_code == 200
