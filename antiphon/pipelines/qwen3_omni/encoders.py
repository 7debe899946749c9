"""The two encoders: one item a step for each request, each item by itself, so that its features can be shared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from antiphon.pipelines.engines.torch.place import Place
from antiphon.pipelines.engines.torch.stage import TorchStage
from antiphon.pipelines.qwen3_omni import model
from antiphon.pipelines.qwen3_omni.memo import Memo
from antiphon.pipelines.qwen3_omni.payloads import Floats, Heard, Patches, Seen, Speech
from antiphon.pipelines.stage import Emit, Fence, Ready, Reason, Request, Wait

CACHE_BYTES = 256 << 20


class Task:
    """One request's items in order; ``made`` grows by one a step."""

    def __init__(self, items: Sequence[Any], split: int = 0) -> None:
        self.items = list(items)
        self.split = split
        self.made: list[tuple[Floats, ...]] = []


class Encoder(TorchStage[Task]):
    """What both share. ``cache_bytes``: features kept for requests that bring the same content again."""

    def __init__(self, part: str, folder: str, device: str, dtype: str, cache_bytes: int) -> None:
        self.place = Place.of(device, dtype)
        self.config = model.read_config(folder)
        self.net = model.load(part, self.config, folder, self.place)
        self.memo: Memo[tuple[Floats, ...]] = Memo(cache_bytes)

    def poll(self, task: Task, now: float) -> Ready | Wait:
        return Ready(cost=self.cost(task.items[len(task.made)]) if len(task.made) < len(task.items) else 1)

    @torch.inference_mode()
    def step(self, batch: Sequence[Task], emit: Emit) -> None:
        for task in batch:
            if len(task.made) < len(task.items):
                item = task.items[len(task.made)]
                features = self.memo.get(item.key)
                if features is None:
                    features = self.encode(item)
                    self.memo.put(item.key, features, sum(f.nbytes for f in features))
                task.made.append(features)
            if len(task.made) == len(task.items):
                emit.result(task, self.result(task))

    def close(self, task: Task, reason: Reason) -> Fence | None:
        return self.place.fence()

    def cost(self, item: Any) -> int:
        raise NotImplementedError

    def encode(self, item: Any) -> tuple[Floats, ...]:
        raise NotImplementedError

    def result(self, task: Task) -> Any:
        raise NotImplementedError


class AudioEncoder(Encoder):
    """Log-mel frames to features."""

    def __init__(self, folder: str, *, device: str = "cpu", dtype: str = "", cache_bytes: int = CACHE_BYTES) -> None:
        super().__init__("audio_encoder", folder, device, dtype, cache_bytes)

    def warm_up(self) -> None:
        bins = self.config.thinker_config.audio_config.num_mel_bins
        with torch.inference_mode():
            self._run(torch.zeros(bins, 100))

    def open(self, request: Request, inputs: tuple[Speech, ...]) -> Task:
        return Task(inputs)

    def cost(self, item: Speech) -> int:
        return max(1, item.frames // 8)

    def encode(self, item: Speech) -> tuple[Floats, ...]:
        assert item.mel is not None
        return (self._run(torch.from_numpy(item.mel)),)

    def result(self, task: Task) -> Heard:
        return Heard(tuple(features[0] for features in task.made))

    def _run(self, mel: torch.Tensor) -> Floats:
        lengths = torch.tensor([mel.shape[1]], device=self.place.device)
        output = self.net(mel.to(self.place.device, self.place.dtype), feature_lens=lengths)
        features: Floats = output.last_hidden_state.float().cpu().numpy()
        return features


class ImageEncoder(Encoder):
    """Patches of images and videos to features and their deepstack levels."""

    def __init__(self, folder: str, *, device: str = "cpu", dtype: str = "", cache_bytes: int = CACHE_BYTES) -> None:
        super().__init__("image_encoder", folder, device, dtype, cache_bytes)

    def warm_up(self) -> None:
        vision = self.config.thinker_config.vision_config
        merge = vision.spatial_merge_size
        width = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
        with torch.inference_mode():
            self._run(torch.zeros(merge * merge, width), (1, merge, merge))

    def open(self, request: Request, inputs: tuple[tuple[Patches, ...], tuple[Patches, ...]]) -> Task:
        images, videos = inputs
        return Task([*images, *videos], len(images))

    def cost(self, item: Patches) -> int:
        return item.grid[0] * item.grid[1] * item.grid[2]

    def encode(self, item: Patches) -> tuple[Floats, ...]:
        assert item.pixels is not None
        return self._run(torch.from_numpy(item.pixels), item.grid)

    def result(self, task: Task) -> Seen:
        return Seen(tuple(task.made[: task.split]), tuple(task.made[task.split :]))

    def _run(self, pixels: torch.Tensor, grid: tuple[int, int, int]) -> tuple[Floats, ...]:
        output = self.net(
            pixels.to(self.place.device, self.place.dtype), grid_thw=torch.tensor([grid], device=self.place.device)
        )
        levels = (output.pooler_output, *output.deepstack_features)
        return tuple(level.float().cpu().numpy() for level in levels)
