"""What the Talker is given: user turns in its own space, the assistant's opening, then one text row a frame.

The published algorithm (transformers, Qwen3OmniMoeForConditionalGeneration.generate): user segments run from
``<|im_start|>`` to the next; text places go through text_projection, media places through hidden_projection of the
accepted layer's states; system and earlier assistant turns are left out. Nine rows open the answer, each a sum of text and
codec embedding; the ninth already holds the Thinker's first token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from antiphon.pipelines.engines.torch.place import Place
from antiphon.pipelines.errors import StageFailed
from antiphon.pipelines.qwen3_omni.model import TalkerNet, as_tensor
from antiphon.pipelines.qwen3_omni.payloads import Floats, Ids, Layout, Prompt
from antiphon.pipelines.qwen3_omni.positions import Positions

OPENING = 9
"""Rows that open the answer."""
ROLE = 3
"""Of them the assistant's role, which is the end of the prompt."""


@dataclass(frozen=True, slots=True, eq=False)
class Opening:
    """``rows`` [n, hidden], ``positions`` [3, n]; ``delta`` is what the next position is ahead of n. The first ``user`` rows
    are the user's turns; ``names`` [n] number what stands there: equal names, equal rows."""

    rows: torch.Tensor
    positions: Floats
    delta: float
    names: Ids
    user: int


class TalkerInput:
    """Builds input rows of one talker. All tensors [rows, talker hidden]."""

    def __init__(self, config: Any, net: TalkerNet, place: Place) -> None:
        self._config = config
        self._talker = config.talker_config
        self._net = net
        self._place = place
        self._positions = Positions(config)
        special = (config.tts_bos_token_id, config.tts_eos_token_id, config.tts_pad_token_id)
        with torch.inference_mode():
            self._bos, self.eos, self.pad = self.text(special)

    def text(self, tokens: tuple[int, ...] | list[int]) -> torch.Tensor:
        """Thinker tokens in the talker's space: [n, hidden]."""
        ids = torch.tensor(tokens, dtype=torch.long, device=self._place.device)
        rows: torch.Tensor = self._net.talker.text_projection(self._net.text_embedding(ids))
        return rows

    def codec(self, codes: list[int]) -> torch.Tensor:
        """First codes or codec specials: [n, hidden]."""
        rows: torch.Tensor = self._net.talker.model.codec_embedding(torch.tensor(codes, device=self._place.device))
        return rows

    def prefill(self, prompt: Prompt, first: int, speaker: str) -> Opening:
        """Up to the first frame; ``first`` is the Thinker's first token."""
        ids, config = prompt.ids, self._config
        segments = self._segments(ids)
        user = np.zeros(len(ids), dtype=bool)
        for start, end in segments:
            if ids[start + 1] == config.user_token_id:
                user[start:end] = True
        start, end = segments[-1]
        if ids[start + 1] != config.assistant_token_id or end - start != ROLE:
            raise StageFailed("talker_ar", "the prompt does not end where the assistant's answer begins")
        rows = torch.cat([self._user(prompt, user), self._opening(ids[start:end].tolist(), first, speaker)])
        heard = np.concatenate([ids[user], np.full(OPENING, config.tts_pad_token_id)])
        layout = prompt.layout
        # The reference numbers the talker's prompt without interleaving sound and frames, even where the thinker's has.
        plain = Layout(layout.image_grids, layout.video_grids, layout.seconds_per_grid, layout.audio_frames)
        positions, delta = self._positions.number(heard, plain)
        names = heard.copy()
        if prompt.media is not None:
            media = self._media(ids)
            names[np.flatnonzero(media[user])] = _numbers(prompt.media[user[media]])
        return Opening(rows, np.ascontiguousarray(positions), delta, names, int(user.sum()))

    def _segments(self, ids: Ids) -> list[tuple[int, int]]:
        starts = np.flatnonzero(ids[:-1] == self._config.im_start_token_id).tolist()
        if not starts:
            raise StageFailed("talker_ar", "the prompt holds no turn")
        return list(zip(starts, [*starts[1:], len(ids)], strict=True))

    def _user(self, prompt: Prompt, user: Any) -> torch.Tensor:
        """All user turns, one after another."""
        ids = prompt.ids
        rows = self.text(ids[user].tolist())
        if prompt.media is None:
            return rows
        media = self._media(ids)
        states = as_tensor(prompt.media[user[media]], self._place)
        rows[torch.from_numpy(media[user]).to(self._place.device)] = self._net.talker.hidden_projection(states)
        return rows

    def _media(self, ids: Ids) -> Any:
        """Which places are a medium's."""
        config = self._config.thinker_config
        return np.isin(ids, (config.audio_token_id, config.image_token_id, config.video_token_id))

    def _opening(self, role: list[int], first: int, speaker: str) -> torch.Tensor:
        """The nine rows: role, pads and start of speech as text; thinking off, speaker and start as codec specials."""
        t = self._talker
        text = torch.cat([self.text(role), self.pad.expand(4, -1), self._bos[None], self.text([first])])
        specials = [
            t.codec_nothink_id,
            t.codec_think_bos_id,
            t.codec_think_eos_id,
            t.speaker_id[speaker],
            t.codec_pad_id,
            t.codec_bos_id,
        ]
        codec = self.codec(specials)
        return text + torch.cat([codec.new_zeros(len(role), codec.shape[1]), codec])


def _numbers(states: Floats) -> list[int]:
    """One for each of the states [n, H], below zero, where no id is. Python's hash of bytes is SipHash with a key that nobody
    knows, and fast; it means nothing outside this process, nor need it."""
    return [-1 - (hash(state.tobytes()) & (1 << 62) - 1) for state in states]
