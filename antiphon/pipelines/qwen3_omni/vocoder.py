"""Codes to waveform, streamed and exact: any cutting into chunks gives the samples of one whole decode.

The pre-transformer is causal with a window, so its keys and values are kept and no frame runs through it twice. The
convolutions see at most nine frames back; each transposed convolution trims both its ends, so the last 555 samples of a
frame are known only with the next one: n frames give 1920 n - 555 samples, cut at an absolute cursor, none lost at a seam.
(transformers' own chunked decode drops 555 samples at each of its seams.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from antiphon.pipelines.engines.torch.place import Place
from antiphon.pipelines.errors import WeightError
from antiphon.pipelines.qwen3_omni.payloads import Floats

CONTEXT = 9
"""Frames that the convolutions look back; measured: 8 err by 2e-4, 9 by 5e-6, more changes nothing."""


class Voice:
    """One answer's state: kept keys and values by layer, hidden states of the last frames, frames in, samples out."""

    __slots__ = ("frames", "hidden", "kept", "samples")

    def __init__(self) -> None:
        self.kept: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.hidden: torch.Tensor | None = None
        self.frames = 0
        self.samples = 0


class Vocoder:
    """``net``: a Qwen3OmniMoeCode2Wav. Voices with as many new frames and as much context share a forward."""

    def __init__(self, net: Any, place: Place) -> None:
        if set(net.config.layer_types) != {"sliding_attention"}:
            raise WeightError("code2wav: layers without a sliding window cannot be streamed")
        self._net = net
        self._place = place
        if place.device.type == "cuda":
            # TF32 rounds to ten bits: streamed would not equal whole any more.
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
        self.window = int(net.config.sliding_window)
        self.upsample = int(net.total_upsample)
        self.tail = self.upsample - _whole(net.config)
        """Samples of a frame that need the next one (555)."""

    def push(self, voices: Sequence[Voice], codes: Sequence[Any]) -> list[Floats]:
        """The next frames of each voice, [frames, groups] of ints; the samples that became certain, float32 each."""
        groups: dict[tuple[int, int], list[int]] = {}
        for i, (voice, new) in enumerate(zip(voices, codes, strict=True)):
            groups.setdefault((len(new), min(voice.frames, CONTEXT + 1)), []).append(i)
        out: list[Floats] = [np.zeros(0, np.float32)] * len(voices)
        for members in groups.values():
            made = self._together([voices[i] for i in members], [codes[i] for i in members])
            for i, samples in zip(members, made, strict=True):
                out[i] = samples
        return out

    @torch.inference_mode()
    def _together(self, voices: list[Voice], codes: list[Any]) -> list[Floats]:
        net = self._net
        frames = torch.tensor(codes, device=self._place.device).transpose(1, 2)
        embedded = net.code_embedding(frames + net.code_offset).mean(1)
        new = self._transform(voices, embedded)
        tails = [v.hidden for v in voices if v.hidden is not None]
        held = torch.cat([torch.cat(tails), new], 1) if tails else new
        x = held.transpose(1, 2)
        for blocks in net.upsample:
            for block in blocks:
                x = block(x)
        for block in net.decoder:
            x = block(x)
        wave = x.clamp(-1, 1)[:, 0].float().cpu().numpy()
        made = []
        for row, voice in enumerate(voices):
            voice.frames += frames.shape[2]
            begins = (voice.frames - held.shape[1]) * self.upsample
            made.append(wave[row, voice.samples - begins :])
            voice.samples = voice.frames * self.upsample - self.tail
            # The last frame is not whole yet: it is decoded again with the next, behind its own context.
            voice.hidden = held[row : row + 1, -(CONTEXT + 1) :].clone()
        return made

    def _transform(self, voices: list[Voice], embedded: torch.Tensor) -> torch.Tensor:
        """The pre-transformer over the new frames [rows, frames, H], against what each voice has kept."""
        device, width = self._place.device, embedded.shape[1]
        pasts = [min(v.frames, self.window - 1) for v in voices]
        before = max(pasts)
        kept = torch.tensor(pasts, device=device)[:, None, None]
        query = torch.arange(width, device=device)[:, None] + before
        key = torch.arange(before + width, device=device)[None]
        # Shorter pasts are padded in front: those places hold nothing.
        mask = (key <= query) & (key > query - self.window) & (key >= before - kept)
        starts = torch.tensor([[v.frames] for v in voices], device=device)
        output = self._net.pre_transformer(
            inputs_embeds=embedded,
            attention_mask={"sliding_attention": mask[:, None]},
            position_ids=starts + torch.arange(width, device=device),
            cache=_Kept(voices, self.window - 1, before),
            use_cache=True,
        )
        hidden: torch.Tensor = output.last_hidden_state
        return hidden


class _Kept:
    """transformers' cache protocol over the voices' own tensors, cut to the window and padded in front to ``before``."""

    def __init__(self, voices: list[Voice], keep: int, before: int) -> None:
        self._voices = voices
        self._keep = keep
        self._before = before

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        both = []
        for which, new in enumerate((keys, values)):
            pasts = [v.kept[layer_idx][which] if v.frames else new[:1, :, :0] for v in self._voices]
            padded = [torch.nn.functional.pad(p, (0, 0, self._before - p.shape[2], 0)) for p in pasts]
            both.append((torch.cat([torch.cat(padded), new], 2), pasts))
        (all_keys, past), (all_values, _) = both
        for row, voice in enumerate(self._voices):
            length = min(past[row].shape[2] + keys.shape[2], self._keep)
            kept = (all_keys[row : row + 1, :, -length:].clone(), all_values[row : row + 1, :, -length:].clone())
            if layer_idx < len(voice.kept):
                voice.kept[layer_idx] = kept
            else:
                voice.kept.append(kept)
        return all_keys, all_values


def _whole(config: Any) -> int:
    """Samples that one frame alone gives: each transposed convolution of kernel 2r and stride r trims r at both ends."""
    length = 1
    for factor in config.upsampling_ratios:
        length *= factor
    for rate in config.upsample_rates:
        length = (length - 1) * rate
    return length
