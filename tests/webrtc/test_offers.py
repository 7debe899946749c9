"""Offers that cannot be answered: refused in REST's own shape, and nothing stays behind."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator
from typing import Any

import pytest

from antiphon.realtime.protocol.fitting import fitting
from antiphon.realtime.settings import Settings
from antiphon.realtime.webrtc import candidates, offer
from antiphon.realtime.webrtc.addresses import port_range
from tests.webrtc.calling import Caller, serving

SDP = {"Content-Type": "application/sdp"}
HEAD = "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\n"
ICE = "a=ice-ufrag:abcd\r\na=ice-pwd:abcdefghijklmnopqrstuv\r\na=fingerprint:sha-256 " + ":".join(["AB"] * 32) + "\r\n"
AUDIO = "m=audio 9 UDP/TLS/RTP/SAVPF 111\r\nc=IN IP4 0.0.0.0\r\na=mid:0\r\na=rtcp-mux\r\na=setup:actpass\r\n" + ICE
CANDIDATE = "a=candidate:1 1 udp 99 192.0.2.1 5000 typ host\r\n"
OPUS = "a=rtpmap:111 opus/48000/2\r\n"


async def test_what_is_no_offer_is_refused_by_name() -> None:
    bodies = {
        "": "not SDP",
        "hello": "not SDP",
        '{"sdp": "v=0"}': "not SDP",
        HEAD: "no audio",
        HEAD + "m=video 9 UDP/TLS/RTP/SAVPF 96\r\na=rtpmap:96 VP8/90000\r\n": "no audio",
        HEAD + "m=audio 0 UDP/TLS/RTP/SAVPF 111\r\n" + OPUS: "no audio",
        HEAD + AUDIO + "a=rtpmap:0 PCMU/8000\r\n": "Opus",
        HEAD + AUDIO + "a=rtpmap:99 mystery/48000\r\na=sendrecv\r\n": "Opus",
        HEAD + AUDIO + OPUS + "a=sendonly\r\n": "receive",
        HEAD + AUDIO + OPUS + "a=inactive\r\n": "receive",
        HEAD + AUDIO.replace("a=rtcp-mux\r\n", "") + OPUS: "answered",
        HEAD + AUDIO.replace(ICE, "") + OPUS: "fingerprint",
        HEAD + AUDIO.replace("sha-256", "sha-1") + OPUS: "fingerprint",
        HEAD + AUDIO.replace("a=ice-ufrag:abcd\r\n", "") + OPUS: "answered",
        HEAD + "m=audio x y z\r\n" + ICE + OPUS: "answered",
        HEAD + AUDIO + "a=candidate:nonsense\r\n" + OPUS: "answered",
        HEAD + AUDIO + "a=fingerprint:\r\n" + OPUS: "answered",
        HEAD + AUDIO.replace("actpass", "holdconn") + OPUS: "answered",
        HEAD + AUDIO.replace("a=setup:actpass\r\n", "") + OPUS: "answered",
        HEAD + AUDIO.replace("9 UDP", "0 UDP") + OPUS + AUDIO + OPUS: "no audio",
        HEAD + (AUDIO + OPUS) * 9: "more than 8",
        HEAD + AUDIO + OPUS + CANDIDATE * 101: "more than 100",
        HEAD + AUDIO + OPUS.replace("48000/2", "48000"): "answered",
        HEAD + AUDIO.replace("RTP/SAVPF 111", "RTP/SAVPF 111 999") + OPUS: "answered",
        HEAD + AUDIO.replace("a=mid:0", "a=mid:\u00fc\u0000\U0001f436").replace("a=rtcp-mux\r\n", "") + OPUS: "answered",
        HEAD + "m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\n" + ICE: "no audio",
        "v=0" + "\u200b" * 5_000: "no audio",
    }
    async with serving() as running:
        for body, said in bodies.items():
            refused = await running.http.post("/v1/realtime/calls", content=body, headers=SDP)
            assert refused.status_code == 400, body
            error = refused.json()["error"]
            assert said in error["message"] and error["code"] == "invalid_offer", (body, error)
        assert running.calls == 0 and running.doors.state.admission.open == 0


async def test_other_bodies() -> None:
    async with serving() as running:
        http = running.http
        wrong = await http.post("/v1/realtime/calls", json={"sdp": HEAD})
        assert wrong.status_code == 415
        missing = await http.post("/v1/realtime/calls", files={"session": (None, "{}", "application/json")})
        assert missing.status_code == 400 and missing.json()["error"]["param"] == "sdp"
        files: Any = {"sdp": (None, HEAD + AUDIO + OPUS), "session": (None, "{", "application/json")}
        assert (await http.post("/v1/realtime/calls", files=files)).json()["error"]["code"] == "invalid_json"
        caller = Caller(running)
        files = {"sdp": (None, await caller.offer()), "session": (None, '{"type": "realtime", "tools": 3}')}
        refused = await http.post("/v1/realtime/calls", files=files)
        assert refused.status_code == 400 and refused.json()["error"]["param"] == "session.tools"
        await caller.close()
        huge = await http.post("/v1/realtime/calls", content=b"v=0" * 400_000, headers=SDP)
        assert huge.status_code == 413

        async def without_end() -> AsyncIterator[bytes]:
            for _ in range(60):
                yield b"v=0" * 9_999

        boundless = await http.post("/v1/realtime/calls", content=without_end(), headers=SDP)
        assert boundless.status_code == 413
        assert running.doors.state.admission.open == 0


async def test_browsers_may_read_the_address_and_only_allowed_origins_call() -> None:
    async with serving(settings=Settings(origins=("https://good.example",))) as running:
        asked = {"Origin": "https://good.example", "Access-Control-Request-Method": "POST"}
        asked["Access-Control-Request-Headers"] = "authorization,content-type"
        preflight = await running.http.options("/v1/realtime/calls", headers=asked)
        assert preflight.status_code == 200 and "POST" in preflight.headers["access-control-allow-methods"]
        answer = await running.http.post("/v1/realtime/calls", content="x", headers={**SDP, "Origin": "https://good.example"})
        assert "location" in answer.headers["access-control-expose-headers"].lower()
        bad = await running.http.post("/v1/realtime/calls", content="x", headers={**SDP, "Origin": "https://bad.example"})
        assert bad.status_code == 403


async def test_without_aiortc_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "aiortc" else find(name, *rest))
    async with serving() as running:
        refused = await running.http.post("/v1/realtime/calls", content=HEAD, headers=SDP)
        assert refused.status_code == 501
        assert refused.json()["error"] == {
            "message": "This server has no WebRTC: pip install 'antiphon[webrtc]'.",
            "type": "invalid_request_error",
            "param": None,
            "code": "webrtc_not_installed",
        }


def test_hidden_browser_addresses_are_not_waited_for() -> None:
    hidden = HEAD + AUDIO + OPUS + "a=candidate:1 1 udp 99 6b3c.local 5000 typ host\r\na=end-of-candidates\r\n"
    assert offer.checked(hidden) == HEAD + AUDIO + OPUS
    bundled = HEAD + AUDIO + OPUS + "m=application 0 UDP/DTLS/SCTP webrtc-datachannel\r\na=bundle-only\r\n"
    assert offer.has_channel(bundled) and not offer.has_channel(HEAD + AUDIO + OPUS)


@pytest.mark.parametrize("text", ["1", "a-b", "0-5", "9-8", "1-70000", "-"])
def test_port_ranges(text: str) -> None:
    assert port_range("") is None and port_range("40000-40010") == (40000, 40010)
    with pytest.raises(ValueError, match="FIRST-LAST"):
        port_range(text)


def test_wrong_settings_are_refused_at_the_start() -> None:
    from antiphon.cli.serve import door_settings
    from antiphon.pipelines.errors import ConfigError
    from antiphon.settings import ServerSettings

    assert door_settings(ServerSettings(udp_ports="5000-5010", ice_servers=("stun:a:1",))).udp_ports == "5000-5010"
    for wrong in ({"udp_ports": "many"}, {"ice_servers": ("turn:user:secret@",)}):
        with pytest.raises(ConfigError) as refused:
            door_settings(ServerSettings(**wrong))  # type: ignore[arg-type]
        assert "secret" not in str(refused.value).split("write")[0]


def test_an_echo_canceller_that_is_not_installed_is_named_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    from antiphon.cli.serve import door_settings
    from antiphon.pipelines.errors import ConfigError
    from antiphon.settings import ServerSettings

    assert not door_settings(ServerSettings()).echo_canceller
    monkeypatch.setattr("antiphon.realtime.webrtc.echo.installed", lambda: False)
    with pytest.raises(ConfigError, match=r"antiphon\[echo\]"):
        door_settings(ServerSettings(echo_canceller=True))


def test_ice_servers() -> None:
    stun, turn = candidates.ice_servers(("stun:stun.example:3478", "turn:me:pass:word@turn.example:3478?transport=tcp"))
    assert stun.urls == "stun:stun.example:3478"
    assert (turn.urls, turn.username, turn.credential) == ("turn:turn.example:3478?transport=tcp", "me", "pass:word")
    with pytest.raises(ValueError, match="ICE server") as refused:
        candidates.ice_servers(("http://me:secret@x",))
    assert "secret" not in str(refused.value)


def test_what_cannot_be_made_to_fit_becomes_an_error() -> None:
    event = {"type": "conversation.item.added", "event_id": "e", "item": {"content": [{"text": "x" * 100}] * 900}}
    assert '"event_too_large"' in fitting(event, 65_536) and "conversation.item.added" in fitting(event, 65_536)
    assert fitting({"type": "a", "event_id": "e"}, 65_536) == '{"type":"a","event_id":"e"}'
