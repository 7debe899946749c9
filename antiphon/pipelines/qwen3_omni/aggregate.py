"""mm_aggregate: the prompt, its positions and the encoders' features become one input of the Thinker."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from antiphon.pipelines.errors import StageFailed
from antiphon.pipelines.qwen3_omni import model
from antiphon.pipelines.qwen3_omni.payloads import Floats, Heard, Ids, Layout, Prepared, Seen, ThinkerInput
from antiphon.pipelines.qwen3_omni.positions import Positions
from antiphon.pipelines.stage import Emit, Merge, Request, Stage


def merge(request: Request, results: Merge) -> tuple[Prepared, Heard, Seen]:
    """The live upstreams' Results; an encoder that this request does not need was never opened."""
    return (
        results["preprocessing"],
        results.get("audio_encoder") or Heard(),
        results.get("image_encoder") or Seen(),
    )


class Aggregate(Stage[tuple[Prepared, Heard, Seen]]):
    """``folder``: the checkpoint, for its config."""

    def __init__(self, folder: str) -> None:
        self.config = model.read_config(folder)
        self.positions = Positions(self.config)

    def open(self, request: Request, inputs: Any) -> tuple[Prepared, Heard, Seen]:
        # With no encoder live there is one upstream and nothing was merged.
        return (inputs, Heard(), Seen()) if isinstance(inputs, Prepared) else inputs

    def step(self, batch: Sequence[tuple[Prepared, Heard, Seen]], emit: Emit) -> None:
        for task in batch:
            try:
                made = self.combine(*task)
            except StageFailed as error:  # this request's own fault: its neighbours go on
                emit.failure(task, error)
            else:
                emit.result(task, made)

    def combine(self, prepared: Prepared, heard: Heard, seen: Seen) -> ThinkerInput:
        """Raises StageFailed when the features do not fill the places of the prompt exactly."""
        thinker = self.config.thinker_config
        layout = Layout(
            image_grids=tuple(p.grid for p in prepared.images),
            video_grids=tuple(p.grid for p in prepared.videos),
            seconds_per_grid=prepared.seconds_per_grid,
            audio_frames=tuple(s.frames for s in prepared.speech),
            audio_in_video=prepared.audio_in_video,
        )
        ids = prepared.ids
        is_image, is_video = ids == thinker.image_token_id, ids == thinker.video_token_id
        audio = _joined(heard.features)
        _fits("audio", audio, int((ids == thinker.audio_token_id).sum()))
        levels = max((len(item) for item in (*seen.images, *seen.videos)), default=0)
        visual = []
        for level in range(levels):
            images = _joined([item[level] for item in seen.images])
            videos = _joined([item[level] for item in seen.videos])
            _fits("image", images, int(is_image.sum()))
            _fits("video", videos, int(is_video.sum()))
            visual.append(_interleaved(is_image, is_video, images, videos))
        if not levels:
            _fits("image", None, int(is_image.sum()))
            _fits("video", None, int(is_video.sum()))
        positions, delta = self.positions.number(ids, layout)
        names = ids.copy()
        _name(
            names,
            ids == thinker.audio_token_id,
            "audio",
            ((s.key, len(f)) for s, f in _paired(prepared.speech, heard.features)),
        )
        _name(names, is_image, "image", ((p.key, len(f[0])) for p, f in _paired(prepared.images, seen.images)))
        _name(names, is_video, "video", ((p.key, len(f[0])) for p, f in _paired(prepared.videos, seen.videos)))
        return ThinkerInput(
            ids,
            names,
            np.ascontiguousarray(positions),
            delta,
            layout,
            audio=audio,
            visual=visual[0] if visual else None,
            deepstack=tuple(visual[1:]),
        )


def _joined(parts: Sequence[Floats]) -> Floats | None:
    return np.concatenate(parts) if parts else None


def _fits(kind: str, features: Floats | None, places: int) -> None:
    have = 0 if features is None else len(features)
    if have != places:
        raise StageFailed("mm_aggregate", f"the prompt has {places} {kind} places and the encoder made {have} features")


def _paired(items: Sequence[Any], features: Sequence[Any]) -> Iterable[tuple[Any, Any]]:
    return zip(items, features, strict=True)


def _name(names: Ids, places: Any, kind: str, items: Iterable[tuple[str, int]]) -> None:
    """Number the places of each item after its content; below zero, where no id is."""
    for key, count in items:
        digest = hashlib.blake2b(f"{kind}/{key}".encode(), digest_size=7).digest()
        at = np.flatnonzero(places)[:count]
        names[at] = -1 - int.from_bytes(digest, "big")
        places = places.copy()
        places[at] = False


def _interleaved(is_image: Any, is_video: Any, images: Floats | None, videos: Floats | None) -> Floats:
    """Features of images and videos in the order of their places in the prompt."""
    if videos is None or images is None:
        only = images if videos is None else videos
        assert only is not None
        return only
    visual = is_image | is_video
    out = np.empty((int(visual.sum()), images.shape[1]), np.float32)
    out[is_image[visual]] = images
    out[is_video[visual]] = videos
    return out
