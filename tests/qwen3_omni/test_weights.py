"""Checkpoints: each stage its own tensors, by name and shape, in the published layout; and the sizes of the real model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import Qwen3OmniMoeConfig, Qwen3OmniMoeForConditionalGeneration

from antiphon.pipelines.engines.torch.checkpoint import INDEX, Checkpoint, weight_bytes
from antiphon.pipelines.engines.torch.paged import PAGE, PagedCache
from antiphon.pipelines.engines.torch.place import Place
from antiphon.pipelines.errors import ConfigError, WeightError
from antiphon.pipelines.qwen3_omni import model
from antiphon.pipelines.qwen3_omni.pipeline import build
from tests.qwen3_omni import published

CPU = Place.of("cpu")


@pytest.fixture
def copy(folder: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def edit(folder: Path, change: Callable[[dict[str, torch.Tensor]], None], holding: str) -> None:
    """Change the shard that holds the tensor ``holding``, and the index with it."""
    index = json.loads((folder / INDEX).read_text())
    shard = index["weight_map"][holding]
    tensors = load_file(folder / shard)
    before = set(tensors)
    change(tensors)
    save_file({name: t.contiguous() for name, t in tensors.items()}, folder / shard)
    for name in before - tensors.keys():
        del index["weight_map"][name]
    index["weight_map"].update(dict.fromkeys(tensors, shard))
    (folder / INDEX).write_text(json.dumps(index))


@pytest.mark.parametrize("part", list(model.PREFIXES))
def test_each_part_equals_the_model_it_was_saved_from(part: str, built: tuple[Path, Any]) -> None:
    folder, whole = built
    loaded = model.load(part, model.read_config(folder), folder, CPU)
    saved = {
        "audio_encoder": whole.thinker.model.audio_tower,
        "image_encoder": whole.thinker.model.visual,
        "thinker": whole.thinker.model.language_model,
        "talker": whole.talker,
        "code2wav": whole.code2wav,
    }[part]
    inner = {"thinker": "model", "talker": "talker"}.get(part)
    mine = dict((getattr(loaded, inner) if inner else loaded).state_dict(keep_vars=False))
    for name, tensor in saved.state_dict().items():
        assert torch.equal(mine.pop(name), tensor), name
    assert not mine
    # Tables that no checkpoint holds are real too.
    buffers = dict((getattr(loaded, inner) if inner else loaded).named_buffers())
    for name, buffer in saved.named_buffers():
        assert torch.equal(buffers[name], buffer), name


def test_the_fixture_is_sharded_with_a_tensor_an_expert(folder: str) -> None:
    checkpoint = Checkpoint(folder)
    assert len(set(checkpoint.files.values())) > 2
    assert "talker.model.layers.0.mlp.experts.3.up_proj.weight" in checkpoint.files


def test_nothing_is_said_of_keys_that_every_config_holds(folder: str, caplog: pytest.LogCaptureFixture) -> None:
    transformers.logging.set_verbosity_warning()
    transformers.logging.enable_propagation()
    try:
        model.build("talker", model.read_config(folder))
    finally:
        transformers.logging.disable_propagation()
        transformers.logging.set_verbosity_error()
    assert not caplog.records


def test_packed_experts_are_read_too(copy: Path, built: tuple[Path, Any]) -> None:
    stem = "talker.model.layers.1.mlp.experts"
    names = [f"{stem}.{e}.{p}.weight" for e in range(4) for p in ("gate_proj", "up_proj", "down_proj")]
    shards = Checkpoint(copy).files
    parts: dict[str, torch.Tensor] = {}
    for name in names:
        edit(copy, lambda t, name=name: parts.__setitem__(name, t.pop(name)), holding=name)  # type: ignore[misc]
    gate_up = torch.stack(
        [torch.cat([parts[f"{stem}.{e}.gate_proj.weight"], parts[f"{stem}.{e}.up_proj.weight"]]) for e in range(4)]
    )
    down = torch.stack([parts[f"{stem}.{e}.down_proj.weight"] for e in range(4)])
    packed = {f"{stem}.gate_up_proj": gate_up, f"{stem}.down_proj": down}
    edit(copy, lambda t: t.update(packed), holding="talker.codec_head.weight")
    loaded = model.load("talker", model.read_config(copy), copy, CPU).talker
    whole = built[1].talker
    assert torch.equal(loaded.model.layers[1].mlp.experts.gate_up_proj, whole.model.layers[1].mlp.experts.gate_up_proj)
    assert names[0] in shards


def test_missing_left_over_and_misshapen_are_named(copy: Path) -> None:
    config = model.read_config(copy)
    lost = "code2wav.pre_transformer.norm.weight"
    edit(copy, lambda t: t.pop(lost), holding=lost)
    with pytest.raises(WeightError, match=r"missing: code2wav\.pre_transformer\.norm\.weight"):
        model.load("code2wav", config, copy, CPU)
    edit(copy, lambda t: t.update({lost: torch.zeros(7), "code2wav.stray": torch.zeros(1)}), "talker.codec_head.weight")
    with pytest.raises(WeightError, match=r"left over: code2wav\.stray"):
        model.load("code2wav", config, copy, CPU)
    edit(copy, lambda t: t.pop("code2wav.stray"), "code2wav.stray")
    with pytest.raises(WeightError, match=r"misshapen: code2wav\.pre_transformer\.norm\.weight is \[7\].* wants \[32\]"):
        model.load("code2wav", config, copy, CPU)
    expert = "thinker.model.layers.0.mlp.experts.2.up_proj.weight"
    edit(copy, lambda t: t.update({expert: torch.zeros(3, 3)}), expert)
    with pytest.raises(WeightError, match=r"experts\.2\.up_proj\.weight is \[3, 3\]"):
        model.load("thinker", config, copy, CPU)


def test_a_missing_shard_is_named_with_what_it_holds(copy: Path) -> None:
    shard = Checkpoint(copy).files["code2wav.code_embedding.weight"]
    (copy / shard).unlink()
    with pytest.raises(WeightError, match=f"{shard}.* is missing; it holds .* more"):
        model.load("thinker", model.read_config(copy), copy, CPU)


def test_broken_folders_are_refused_by_name(tmp_path: Path, copy: Path) -> None:
    with pytest.raises(WeightError, match="config"):
        build(str(tmp_path))
    with pytest.raises(WeightError, match="no safetensors"):
        Checkpoint(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(WeightError, match="bert"):
        model.read_config(tmp_path)
    (copy / Checkpoint(copy).files["talker.codec_head.weight"]).write_bytes(b"nothing of the kind")
    with pytest.raises(WeightError, match="not a readable safetensors file"):
        model.load("talker", model.read_config(copy), copy, CPU)
    config = json.loads((copy / "config.json").read_text())
    config["code2wav_config"]["codebook_size"] = 128
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(WeightError, match="codebook is 64 on one side and 128 on the other"):
        model.check_codec(model.read_config(copy))


def test_memory_is_counted_before_loading(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Place, "free_bytes", lambda self: 1000)
    with pytest.raises(WeightError, match=r"thinker needs .* GiB for its weights in float32 and .* for its KV cache; cpu has"):
        model.load("thinker", model.read_config(folder), folder, CPU, cache_bytes=1 << 30)


def test_unknown_places_are_refused() -> None:
    with pytest.raises(ConfigError, match="warp"):
        Place.of("warp:0")
    with pytest.raises(ConfigError, match="float7"):
        Place.of("cpu", "float7")
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="sees no CUDA device"):
            Place.of("cuda:0")


def test_the_real_sizes_have_every_name_and_no_other() -> None:
    """On the meta device: what our parts ask for is what transformers says the published layout holds, shapes and all."""
    config = Qwen3OmniMoeConfig(**published.CONFIG)
    with torch.device("meta"):
        whole = Qwen3OmniMoeForConditionalGeneration(config)
    layout = published.unpacked(whole)
    asked: dict[str, torch.Size] = {}
    counted: dict[str, int] = {}
    for part, prefixes in model.PREFIXES.items():
        module = model.build(part, config)
        counted[part] = weight_bytes(module, torch.int8)
        for name, parameter in module.named_parameters():
            prefix = max((p for p in prefixes if name.startswith(p)), key=len)
            asked[prefixes[prefix] + name[len(prefix) :]] = parameter.shape
    assert published.unpacked_names(asked) == layout
    # What the published checkpoint holds, in billions: 31.72 thinker, 3.325 talker, 0.216 code2wav.
    table = config.thinker_config.text_config.vocab_size * config.thinker_config.text_config.hidden_size
    thinker = counted["thinker"] + counted["audio_encoder"] + counted["image_encoder"]
    assert round(thinker / 1e9, 1) == 31.7
    assert abs((counted["talker"] - table) / 1e9 - 3.325) < 0.001
    assert round(counted["code2wav"] / 1e9, 2) == 0.22


def test_memory_that_was_taken_meanwhile_is_named(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes may both have seen it free."""

    def full(*args: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(model.Checkpoint, "load", full)
    with pytest.raises(WeightError, match="code2wav: cpu ran out of memory"):
        model.load("code2wav", model.read_config(folder), folder, Place.of("cpu"))


def test_a_gpu_that_is_not_used_is_pointed_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(WeightError, match="GiB free; there is a CUDA device here that is not used"):
        CPU.require("thinker", 1 << 60)


def test_a_cache_that_does_not_fit_is_named() -> None:
    class Full:
        """A tensor on a device that has no memory left."""

        device, shape = torch.device("meta"), (0, 2, 1, 4)

        def new_zeros(self, shape: tuple[int, ...]) -> Full:
            if shape[0]:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return self

    cache = PagedCache(10 * PAGE, Place(torch.device("meta"), torch.float32))
    cache.begin([cache.open(PAGE)], 1)
    with pytest.raises(WeightError, match="a KV cache of 320 tokens does not fit beside the weights on meta"):
        cache.storage(0, Full())  # type: ignore[arg-type]
