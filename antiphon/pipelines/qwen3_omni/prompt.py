"""The prompt: what the chat template writes, then each media placeholder grown to its number of places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from antiphon.pipelines.errors import Refused
from antiphon.pipelines.qwen3_omni.chat_text import ChatText
from antiphon.pipelines.qwen3_omni.media.audio import audio_tokens
from antiphon.pipelines.qwen3_omni.payloads import Ids, Patches, Speech
from antiphon.pipelines.requests import Medium, Message, TextPart, Tool


def media_parts(messages: Sequence[Message]) -> list[tuple[str, Medium]]:
    """The media of the user's turns in prompt order, each with the name that errors call it by."""
    found: list[tuple[str, Medium]] = []
    for m, message in enumerate(messages):
        for p, part in enumerate(message.parts):
            if message.role == "user" and not isinstance(part, TextPart):
                found.append((part.name or f"messages[{m}].parts[{p}]", part))
    return found


class PromptWriter:
    """Writes prompts for one checkpoint."""

    def __init__(self, config: Any, tokenizer: Any) -> None:
        thinker = config.thinker_config
        self._text = ChatText(tokenizer)
        self._most_tokens: int = thinker.text_config.max_position_embeddings
        self._longest = max(map(len, tokenizer.get_vocab()))
        self._media = {"audio": thinker.audio_token_id, "image": thinker.image_token_id, "video": thinker.video_token_id}
        self._audio_start = thinker.audio_start_token_id
        self._audio_end = tokenizer.convert_tokens_to_ids("<|audio_end|>")
        self._merge: int = thinker.vision_config.spatial_merge_size**2
        self._n_window = thinker.audio_config.n_window
        self._positions_per_second = thinker.position_id_per_seconds

    def ids(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> list[int]:
        """The template's ids, one placeholder an item. Raises Refused, before any of it is read, for what cannot fit."""
        # A turn is a token at least, and none is longer than the longest of the vocabulary.
        least = len(messages) + _written(messages, tools) // self._longest
        if least >= self._most_tokens:
            raise Refused(
                f"this model's maximum context length is {self._most_tokens} tokens; the prompt has at least {least}",
                code="context_length_exceeded",
                param="messages",
            )
        return self._text.ids(messages, tools)

    def spoken(self, text: str) -> list[int]:
        """The ids of a text that is said as it stands."""
        return self._text.spoken(text)

    def expand(
        self,
        ids: Sequence[int],
        speech: Sequence[Speech],
        images: Sequence[Patches],
        videos: Sequence[Patches],
        seconds_per_grid: Sequence[float],
        tracks: Sequence[bool],
    ) -> Ids:
        """Every placeholder as often as its item has places. ``tracks``: which videos carry their sound.

        ``speech`` stands in prompt order, a video's sound at the video's place. Raises Refused when the prompt has
        another number of placeholders than there are items.
        """
        sounds, pictures, films = iter(speech), iter(images), iter(zip(videos, seconds_per_grid, tracks, strict=True))
        out: list[int] = []
        try:
            for token in ids:
                if token == self._media["audio"]:
                    out += [token] * audio_tokens(next(sounds).frames, self._n_window)
                elif token == self._media["image"]:
                    out += [token] * self._places(next(pictures))
                elif token == self._media["video"]:
                    film, seconds, heard = next(films)
                    out += self._film(film, seconds, next(sounds) if heard else None)
                else:
                    out.append(token)
        except StopIteration:
            raise _mismatch("more placeholders than media") from None
        if any(next(items, None) is not None for items in (sounds, pictures, films)):
            raise _mismatch("more media than placeholders")
        return np.array(out, dtype=np.int64)

    def places(self, speech: Speech | None, *pictures: Patches | None) -> int:
        """What one medium takes of the prompt, a video with its sound."""
        seen = sum(self._places(item) for item in pictures if item is not None)
        return seen + (self.sound_places(speech.frames) if speech is not None else 0)

    def sound_places(self, frames: int) -> int:
        """What so many mel frames take."""
        return audio_tokens(frames, self._n_window)

    def _places(self, item: Patches) -> int:
        time, rows, columns = item.grid
        return time * rows * columns // self._merge

    def _film(self, film: Patches, seconds: float, sound: Speech | None) -> list[int]:
        """A video's places; with sound, each step of time stands before the sound that follows it (13 places a second)."""
        if sound is None:
            return [self._media["video"]] * self._places(film)
        step = self._places(film) // film.grid[0]
        due = [time * seconds * self._positions_per_second for time in range(film.grid[0]) for _ in range(step)]
        count = audio_tokens(sound.frames, self._n_window)
        places: list[int] = []
        shown = heard = 0
        while shown < len(due) or heard < count:
            if heard == count or (shown < len(due) and due[shown] <= heard):
                places.append(self._media["video"])
                shown += 1
            else:
                places.append(self._media["audio"])
                heard += 1
        return [self._audio_start, *places, self._audio_end]


def _written(messages: Sequence[Message], tools: Sequence[Tool]) -> int:
    """Characters that the prompt holds at least."""
    texts = (len(part.text) for message in messages for part in message.parts if isinstance(part, TextPart))
    calls = (_compact(call.arguments) for message in messages for call in message.calls)
    offered = (len(tool.description) + len(msgspec.json.encode(tool.parameters)) for tool in tools)
    return sum(texts) + sum(calls) + sum(offered)


def _compact(arguments: str) -> int:
    """Their length without the blanks between them, which a template may leave out."""
    try:
        return len(msgspec.json.encode(msgspec.json.decode(arguments)))
    except (msgspec.DecodeError, OverflowError, RecursionError, UnicodeError):
        return len(arguments)


def _mismatch(what: str) -> Refused:
    return Refused(f"the chat template wrote {what}", code="invalid_media", param="messages")
