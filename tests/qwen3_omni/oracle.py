"""The oracle: transformers' own ``generate()`` on the tiny model, with inputs that our preprocessing never touched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import Qwen2VLImageProcessorPil, Qwen3OmniMoeProcessor, WhisperFeatureExtractor

from tests.qwen3_omni import tiny

THINKER_TOKENS = 12
TALKER_TOKENS = 18


class NoVideoProcessor(Qwen3OmniMoeProcessor):
    """transformers' processor insists on a torchvision video processor; audio and images need none."""

    def check_argument_for_proper_class(self, argument_name: str, argument: Any) -> Any:
        if argument_name == "video_processor":
            return None
        return super().check_argument_for_proper_class(argument_name, argument)


def processor(tok: Any) -> Any:
    extractor = WhisperFeatureExtractor(
        feature_size=128, sampling_rate=16000, hop_length=160, n_fft=400, chunk_length=30,
        padding_side="right", return_attention_mask=True,
    )  # fmt: skip
    images = Qwen2VLImageProcessorPil(
        patch_size=16, temporal_patch_size=2, merge_size=2, size=tiny.PIXELS,
        image_mean=[0.5, 0.5, 0.5], image_std=[0.5, 0.5, 0.5],
    )  # fmt: skip
    return NoVideoProcessor(
        image_processor=images, video_processor=None, feature_extractor=extractor, tokenizer=tok,
        chat_template=tiny.CHAT_TEMPLATE,
    )  # fmt: skip


@dataclass
class Answer:
    """``tokens`` with the terminal one, ``codes`` [frames][16], ``wave`` float32, ``gap``: the least top-2 distance."""

    tokens: list[int]
    codes: list[list[int]]
    wave: np.ndarray
    gap: float


class Oracle:
    def __init__(self, model: Any, tok: Any) -> None:
        self.model = model
        self.tok = tok
        self.processor = processor(tok)

    def text(self, messages: Sequence[dict[str, Any]]) -> dict[str, Any]:
        written = self.tok.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        return dict(self.tok(written, return_tensors="pt"))

    def media(self, messages: Sequence[dict[str, Any]], **items: Any) -> dict[str, Any]:
        written = self.processor.apply_chat_template(list(messages), add_generation_prompt=True, tokenize=False)
        return dict(self.processor(text=written, return_tensors="pt", sampling_rate=16000, **items))

    def answer(
        self,
        inputs: dict[str, Any],
        *,
        eos: Sequence[int] = (),
        tokens: int = THINKER_TOKENS,
        frames: int = TALKER_TOKENS,
        seed: int | None = None,
        speaker: str = "Ethan",
        **extra: Any,
    ) -> Answer:
        """Greedy throughout, or the talker sampled with its defaults under ``seed``."""
        model = self.model
        heard: dict[str, list[torch.Tensor]] = {"thinker": [], "talker": [], "predictor": []}
        seen: dict[str, torch.Tensor] = {}
        decode = model.code2wav.chunked_decode

        def spy(codes: torch.Tensor, **kwargs: Any) -> torch.Tensor:
            seen["codes"] = codes[0].t().clone()
            return decode(codes, **kwargs)

        with ExitStack() as stack:
            for name, module in self._heads():
                handle = module.register_forward_hook(_recorder(heard[name]))
                stack.callback(handle.remove)
            model.code2wav.chunked_decode = spy
            stack.callback(setattr, model.code2wav, "chunked_decode", decode)
            if seed is not None:
                torch.manual_seed(seed)
            ids, wave = model.generate(
                **inputs,
                speaker=speaker,
                thinker_max_new_tokens=tokens,
                thinker_do_sample=False,
                thinker_eos_token_id=list(eos) or [model.config.im_end_token_id],
                talker_do_sample=seed is not None,
                talker_max_new_tokens=frames,
                **extra,
            )
        codes = seen["codes"].tolist()
        made = ids[0, inputs["input_ids"].shape[1] :].tolist()
        gaps = [_gap(scores) for scores in heard["thinker"]]
        if seed is None:
            gaps += [_gap(scores) for scores in heard["predictor"]]
            gaps += self._talker_gaps(heard["talker"], [frame[0] for frame in codes])
        return Answer(made, codes, wave[0, 0].numpy(), min(gaps))

    def _heads(self) -> list[tuple[str, torch.nn.Module]]:
        model = self.model
        predictors = [("predictor", head) for head in model.talker.code_predictor.lm_head]
        return [("thinker", model.thinker.lm_head), ("talker", model.talker.codec_head), *predictors]

    def _talker_gaps(self, heard: list[torch.Tensor], said: list[int]) -> list[float]:
        """Distances as the talker chooses: after the repetition penalty, without suppressed ids."""
        config = self.model.config.talker_config
        gaps = []
        for step, raw in enumerate(heard):
            scores = raw.clone()
            for code in set(said[:step]):
                scores[code] = scores[code] * 1.05 if scores[code] < 0 else scores[code] / 1.05
            end = scores[config.codec_eos_token_id].item()
            scores[-1024:] = -torch.inf
            scores[config.codec_eos_token_id] = end
            gaps.append(_gap(scores))
        return gaps


def _recorder(into: list[torch.Tensor]) -> Callable[..., None]:
    def record(module: Any, args: Any, output: torch.Tensor) -> None:
        into.append(output.reshape(-1, output.shape[-1])[-1].float().clone())

    return record


def _gap(scores: torch.Tensor) -> float:
    best = scores.topk(2).values
    return float(best[0] - best[1])
