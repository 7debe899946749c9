"""Preprocessing, the entry: fetch what is named by URL, decode within the budget, write the prompt. A text that is only to
be spoken goes to the Talker from here.

It waits on the network and works in threads, so it is the asynchronous kind of stage: nobody waits for another's video.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

import numpy as np
from transformers import WhisperFeatureExtractor

from antiphon.pipelines.errors import Refused, WeightError
from antiphon.pipelines.local.prepared import Prepared as Clips
from antiphon.pipelines.local.preprocessing import audio_parts, decode
from antiphon.pipelines.qwen3_omni import model
from antiphon.pipelines.qwen3_omni.detokenizer import read_tokenizer
from antiphon.pipelines.qwen3_omni.media import audio, pictures, video
from antiphon.pipelines.qwen3_omni.media.budget import Budget, Sampling
from antiphon.pipelines.qwen3_omni.media.fetch import Room, UrlPolicy, fetch
from antiphon.pipelines.qwen3_omni.memo import Memo
from antiphon.pipelines.qwen3_omni.params import CONTEXT_TOKENS, TALKER_KV_TOKENS, stage_params
from antiphon.pipelines.qwen3_omni.payloads import Floats, Patches, Prepared, Speech
from antiphon.pipelines.qwen3_omni.prompt import PromptWriter, media_parts
from antiphon.pipelines.qwen3_omni.spoken_text import SpokenText
from antiphon.pipelines.requests import PCM_F32_16K, AudioPart, GenerateRequest, ImagePart, Medium, VideoPart
from antiphon.pipelines.stage import AsyncStage, Chunk, Output, Request

CACHE_BYTES = 256 << 20
VIDEO_PLACES = 24_000
"""Places of the prompt that one video may take where a request sets no ``total_pixels``, and no more than three quarters of the
context, into which it must fit. (The published sampler allows 115,200, for a context of 128,000.)"""
THREADS = 2
"""For each pace: what somebody has just said waits for no picture, which may take a second or two, and neither for a film."""
Pace = Literal["said", "seen", "long"]
LARGE = 1 << 20
"""Bytes whose digest takes longer than a hop to a thread and back."""
HANDFUL = 8
"""Tokens of a spoken text in a row."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Item:
    """One decoded medium. A video may bring its sound."""

    speech: Speech | None = None
    image: Patches | None = None
    film: Patches | None = None
    seconds_per_grid: float = 0.0

    @property
    def nbytes(self) -> int:
        arrays = (
            self.speech.mel if self.speech else None,
            self.image.pixels if self.image else None,
            self.film.pixels if self.film else None,
        )
        return sum(a.nbytes for a in arrays if a is not None)


@dataclass(slots=True)
class Decoding:
    """One medium being decoded in a thread, for ``askers`` requests; ``unwanted`` tells the thread to stop."""

    result: asyncio.Future[Item]
    unwanted: threading.Event
    askers: int = 0


class Preprocessing(AsyncStage):
    """``folder``: the checkpoint. ``budget``: fields of ``Budget``; ``urls``: fields of ``UrlPolicy``; ``context``: tokens of
    prompt and answer that the thinker takes; ``video_places``: of one video, 0 for what ``VIDEO_PLACES`` says; ``speech_turn``:
    the user's turn before a text that is only spoken; ``talker_kv_tokens``: rows of the talker's cache."""

    def __init__(
        self,
        folder: str,
        *,
        budget: dict[str, Any] | None = None,
        urls: dict[str, Any] | None = None,
        cache_bytes: int = CACHE_BYTES,
        video_places: int = 0,
        context: int = CONTEXT_TOKENS,
        speech_turn: str = "",
        talker_kv_tokens: int = TALKER_KV_TOKENS,
    ) -> None:
        config = model.read_config(folder)
        self.context = min(context, config.thinker_config.text_config.max_position_embeddings)
        self.budget = Budget(**{"places": self.context, **(budget or {})})
        self.policy = UrlPolicy(**urls or {})
        self.writer = PromptWriter(config, read_tokenizer(folder))
        self.spoken = SpokenText(config, self.writer, turn=speech_turn, kv_tokens=talker_kv_tokens)
        self.patcher = pictures.Patcher(folder)
        self.extractor = WhisperFeatureExtractor.from_pretrained(folder)
        made, read = self.extractor.feature_size, config.thinker_config.audio_config.num_mel_bins
        if made != read:
            raise WeightError(f"preprocessor_config.json makes {made} mel bins, the audio encoder of config.json reads {read}")
        places = video_places or min(VIDEO_PLACES, self.context * 3 // 4)
        self.sampling = Sampling(total_pixels=places * self.patcher.factor**2)
        self.memo: Memo[Item] = Memo(cache_bytes)
        self._films, self._pictures = Room(self.policy.held_bytes), Room(self.policy.held_bytes)
        self._threads: dict[Pace, asyncio.Semaphore] = {p: asyncio.Semaphore(THREADS) for p in get_args(Pace)}
        self._running: dict[tuple[str, str], Decoding] = {}

    async def run(self, request: Request, inputs: GenerateRequest, chunks: AsyncIterator[Chunk]) -> AsyncIterator[Output]:
        if inputs.task != "speech":
            yield Output(await self.prepare(inputs, "transcript" in request.terminals), result=True)
            return
        for n, piece in enumerate(self.spoken.pieces(inputs), 1):
            yield Output(piece)
            if n % HANDFUL == 0:  # there is credit for a whole text, and others on this lane
                await asyncio.sleep(0)
        yield Output(result=True)

    async def prepare(self, request: GenerateRequest, transcript: bool = False) -> Prepared:
        """``transcript``: also what a transcriber reads. Raises Refused naming the item and the limit."""
        clips = await self._clips(request) if transcript or request.task == "transcription" else None
        if request.task == "transcription":
            return Prepared(np.zeros(0, np.int64), clips=clips)
        sampling = self.sampling.changed(stage_params(request, "media"))
        parts = media_parts(request.messages)
        # A long conversation has many turns of speech, and pictures: those count by their places alone.
        if (files := sum(_pace(part) == "long" or not part.data for _, part in parts)) > self.budget.items:
            text = f"the request has {files} films, recordings and addresses; the limit is {self.budget.items}"
            raise Refused(text, code="invalid_media", param="messages")
        tools = request.tools if request.tool_choice.mode != "none" else ()
        # A megabyte takes a second or two; credits and the other requests of this lane do not wait for it.
        ids = await asyncio.to_thread(self.writer.ids, request.messages, tools)
        items = await self._items(parts, sampling)
        tracks = [i.speech is not None for i in items if i.film is not None]
        if any(tracks) and not all(tracks):
            raise Refused(
                "use_audio_in_video: either all videos of a request have sound or none", code="invalid_media", param="videos"
            )
        speech = tuple(i.speech for i in items if i.speech is not None)
        images = tuple(i.image for i in items if i.image is not None)
        films = tuple(i.film for i in items if i.film is not None)
        seconds = tuple(i.seconds_per_grid for i in items if i.film is not None)
        expanded = self.writer.expand(ids, speech, images, films, seconds, tracks)
        if len(expanded) >= self.context:  # before the encoders work for it
            raise _too_long(len(expanded), self.context)
        return Prepared(expanded, speech, images, films, seconds, any(tracks), clips)

    async def _clips(self, request: GenerateRequest) -> Clips:
        parts = audio_parts(request)
        pace: Pace = "said" if all(_pace(part) == "said" for part in parts) else "long"
        return await self._in_thread(lambda: Clips(request, tuple(map(decode, parts))), pace)

    async def _items(self, parts: Sequence[tuple[str, Medium]], sampling: Sampling) -> list[Item]:
        """One after another, and no more than fit into the prompt."""
        items: list[Item] = []
        places = 0
        for name, part in parts:
            items.append(await self._item(name, part, sampling))
            places += self.writer.places(items[-1].speech, items[-1].image, items[-1].film)
            if places >= self.context:
                raise _too_long(places, self.context)
        return items

    async def _item(self, name: str, part: Medium, sampling: Sampling) -> Item:
        if isinstance(part, AudioPart) or part.data or not part.url:
            return await self._once(name, part, _some(part.data, name), sampling)
        picture = isinstance(part, ImagePart)
        limit = self.budget.image_bytes if picture else self.budget.video_bytes
        with (self._pictures if picture else self._films).share(name) as take:
            data = await fetch(part.url, self.policy, limit, name, take)
            return await self._once(name, part, _some(data, name), sampling)

    async def _once(self, name: str, part: Medium, data: bytes, sampling: Sampling) -> Item:
        """Decoded once however many requests ask for it, by the same name, at the same time: an error tells the name, and that
        is its own client's."""
        key = _key(part, data, sampling) if len(data) < LARGE else await asyncio.to_thread(_key, part, data, sampling)
        if (held := self.memo.get(key)) is not None:
            return held
        running = self._running.get((key, name))
        if running is None:
            unwanted = threading.Event()
            work = self._in_thread(lambda: self._decode(name, part, data, sampling, key, unwanted), _pace(part))
            running = self._running[key, name] = Decoding(asyncio.ensure_future(work), unwanted)
            running.result.add_done_callback(lambda done: self._decoded(key, name, done))
        running.askers += 1
        try:
            return await asyncio.shield(running.result)
        finally:
            running.askers -= 1
            if not running.askers and not running.result.done():
                # The last one has gone: the thread is told, and the request is over when its work is.
                running.unwanted.set()
                await asyncio.wait((running.result,))

    def _decoded(self, key: str, name: str, done: asyncio.Future[Item]) -> None:
        del self._running[key, name]
        if not done.cancelled() and done.exception() is None:
            self.memo.put(key, done.result(), done.result().nbytes)

    async def _in_thread(self, work: Callable[[], T], pace: Pace) -> T:
        async with self._threads[pace]:
            return await asyncio.to_thread(work)

    def _decode(self, name: str, part: Medium, data: bytes, sampling: Sampling, key: str, unwanted: threading.Event) -> Item:
        if isinstance(part, AudioPart):
            return Item(speech=self._mel(audio.read_samples(data, part.format, self.budget, name), key, name))
        if isinstance(part, ImagePart):
            image = pictures.open_image(data, self.budget, name)
            return Item(image=self.patcher.image(image, sampling, key, self.budget, name))
        film = video.read_frames(data, sampling, self.patcher, self.budget, name, unwanted.is_set)
        track = audio.sound_track(data, self.budget, name) if sampling.use_audio_in_video else None
        return Item(
            speech=None if track is None else self._mel(track, key, name),
            film=self.patcher.video(film.frames, key),
            seconds_per_grid=film.seconds_per_grid,
        )

    def _mel(self, samples: Floats, key: str, name: str) -> Speech:
        self.budget.check_places(self.writer.sound_places(len(samples) // self.extractor.hop_length), name)
        return audio.log_mel(samples, self.extractor, key)


def _pace(part: Medium) -> Pace:
    """By its kind: a film or a file of sound may be a minute long or an hour."""
    if isinstance(part, ImagePart):
        return "seen"
    return "said" if isinstance(part, AudioPart) and part.format == PCM_F32_16K else "long"


def _some(data: bytes, name: str) -> bytes:
    if not data:
        raise Refused(f"{name}: is empty", code="invalid_media", param=name)
    return data


def _too_long(length: int, context: int) -> Refused:
    return Refused(
        f"this model's maximum context length is {context} tokens; the prompt has at least {length}",
        code="context_length_exceeded",
        param="messages",
    )


def _key(part: Medium, data: bytes, sampling: Sampling) -> str:
    """Names the content as it will be seen, before it is decoded."""
    digest = hashlib.sha256(data).hexdigest()
    if isinstance(part, AudioPart):
        return f"audio/{part.format}/{digest}"
    kind = "video" if isinstance(part, VideoPart) else "image"
    return f"{kind}/{sampling.key}/{sampling.use_audio_in_video}/{digest}"
