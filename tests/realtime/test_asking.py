"""Requests of the graph from those of the machine: what a client put in is read once, however many requests it stands in."""

from __future__ import annotations

import base64

from antiphon.pipelines import requests as graph
from antiphon.pipelines.info import PipelineInfo
from antiphon.realtime.shell.asking import Asking
from antiphon.realtime.shell.store import AudioStore
from antiphon.session.request import Clip, Image, Message, Part, Recognition, Request


def clip(n: int) -> Clip:
    return Clip(base64.b64encode(bytes([n, 0]) * 240).decode(), ("audio/pcm", 24_000))


def picture(n: int) -> Image:
    return Image("data:image/png;base64," + base64.b64encode(bytes([n]) * 9).decode())


def read(part: graph.Part) -> bytes:
    """The very bytes: what is read again is another object."""
    assert isinstance(part, graph.AudioPart | graph.ImagePart)
    return part.data


def parts(asking: Asking, *given: Part, aside: bool = False) -> list[graph.Part]:
    request = Request("", tuple(Message("user", (part,)) for part in given), "text")
    return [message.parts[0] for message in asking.answer("gen_1", request, aside=aside).messages]


def test_every_recording_and_picture_of_a_long_conversation_is_read_once() -> None:
    asking = Asking("sess_1", AudioStore("sess_1"), PipelineInfo(name="local", model="m"))
    history: list[Part] = [clip(n) if n % 2 else picture(n) for n in range(30)]
    first = parts(asking, *history)
    again = parts(asking, *history, clip(99))
    assert all(read(a) is read(b) for a, b in zip(first, again, strict=False)) and len(again) == 31
    assert len({part.key for part in again if isinstance(part, graph.AudioPart | graph.ImagePart)}) == 31


def test_a_voice_with_one_pace_is_not_asked_for_another_or_every_answer_would_fail() -> None:
    for paced, speed in ((True, 1.2), (False, 1.0)):
        asking = Asking("sess_1", AudioStore("sess_1"), PipelineInfo(name="m", model="m", paced=paced))
        assert asking.answer("gen_1", Request("", (), "audio", speed=1.2)).voice == graph.Voice(name="default", speed=speed)


def test_a_voice_is_meant_in_whatever_case_it_is_written() -> None:
    """Qwen's own pages write Chelsie, its configuration chelsie: the conversation was spoken by the first voice instead."""
    asking = Asking("sess_1", AudioStore("sess_1"), PipelineInfo(name="m", model="m", voices=("ethan", "chelsie", "Nora")))
    for given, meant in (("Chelsie", "chelsie"), ("nora", "Nora"), ("ETHAN", "ethan"), ("marin", "default")):
        assert asking.answer("gen_1", Request("", (), "audio", voice=given)).voice.name == meant


def test_a_language_with_its_region_or_by_its_name_is_the_language() -> None:
    """The transcriber knows ISO 639-1; "en-US" failed every turn of the conversation, and its answers with them."""
    asking = Asking("sess_1", AudioStore("sess_1"), PipelineInfo(name="m", model="m"))
    for given, meant in (("en-US", "en"), ("Portuguese", "pt"), ("", ""), ("klingon", "klingon")):
        request = Request("", (), "text", recognition=Recognition(language=given))
        assert asking.answer("gen_1", request).transcription.language == meant


def test_what_left_the_conversation_or_stood_beside_it_does_not_stay() -> None:
    asking = Asking("sess_1", AudioStore("sess_1"), PipelineInfo(name="local", model="m"))
    kept, gone, beside = clip(1), clip(2), clip(3)
    first = parts(asking, kept, gone)
    (aside,) = parts(asking, beside, aside=True)
    (same,) = parts(asking, kept)
    assert read(same) is read(first[0])
    assert read(parts(asking, gone)[0]) is not read(first[1]) and read(parts(asking, beside)[0]) is not read(aside)
