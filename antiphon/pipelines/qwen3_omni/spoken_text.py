"""A text that is only to be spoken, as the Talker takes it: a prompt of one user's turn, then the text's own tokens.

A Talker's rows of text are embeddings of token ids, and it reads a Thinker's states at media places only. So it speaks a
text from anywhere, and no Thinker runs for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from antiphon.pipelines.errors import Refused
from antiphon.pipelines.qwen3_omni.marks import CHARACTERS_PER_SECOND, weight
from antiphon.pipelines.qwen3_omni.params import TALKER_KV_TOKENS, Talking, talker_params
from antiphon.pipelines.qwen3_omni.payloads import Prompt, Said
from antiphon.pipelines.qwen3_omni.prompt import PromptWriter
from antiphon.pipelines.qwen3_omni.talker_input import OPENING, ROLE
from antiphon.pipelines.requests import GenerateRequest, Message, TextPart

FRAMES_PER_SECOND = 12.5
BRISK = 1.5
"""A reader this much faster than usual is the fastest that is believed in."""


class SpokenText:
    """``turn``: what the user's turn before the text says. ``kv_tokens``: rows that the Talker's cache has."""

    def __init__(self, config: Any, writer: PromptWriter, *, turn: str = "", kv_tokens: int = TALKER_KV_TOKENS) -> None:
        self._writer = writer
        self._turn = (Message("user", (TextPart(turn),)),)
        self._rows = kv_tokens
        if config.talker_config is not None:
            self._rows = min(kv_tokens, config.talker_config.text_config.max_position_embeddings)

    def pieces(self, request: GenerateRequest) -> Iterator[Said]:
        """What a Thinker would have sent. Nothing when there is nothing to say.

        Raises Refused, before the first piece, for a text that the Talker's frames or its cache cannot hold.
        """
        if not any(char.isalnum() for char in request.text):
            return
        talking = talker_params(request)
        prompt = np.array(self._writer.ids(self._turn), np.int64)
        frames = self._frames(talking, self._rows - (len(prompt) - ROLE + OPENING))
        if not talking.cut:
            _could_be_read(request.text, frames)
        tokens = self._writer.spoken(request.text)
        if len(tokens) > frames - 1:  # the frame behind the last token hears that the text has ended
            raise _too_long(f"the text is {len(tokens)} tokens long; the voice takes one in 80 ms and {frames - 1} at most")
        first = Prompt(prompt)
        for n, token in enumerate(tokens):
            yield Said(token, None if n else first)

    def _frames(self, talking: Talking, room: int) -> int:
        """Frames that the speech may have; of the last one that is counted nothing sounds."""
        if talking.cut and talking.max_frames > room:
            raise Refused(
                f"the talker's max_tokens is {talking.max_frames}; this server speaks {room} at most in one go",
                code="unsupported_value",
                param="stage_params",
            )
        return min(talking.max_frames, room) - 1


def _could_be_read(text: str, frames: int) -> None:
    """Raises Refused for a text that would run out of frames even if it were read fast."""
    seconds = sum(map(weight, text)) / (CHARACTERS_PER_SECOND * BRISK)
    if seconds > frames / FRAMES_PER_SECOND:
        raise _too_long(
            f"the text would take {seconds:.0f} s even if it were read fast; "
            f"this voice speaks {frames / FRAMES_PER_SECOND:.0f} s at most in one go"
        )


def _too_long(message: str) -> Refused:
    return Refused(message, code="string_above_max_length", param="input")
