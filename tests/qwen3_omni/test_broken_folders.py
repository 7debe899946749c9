"""A checkpoint folder whose small files are broken: what is wrong is named when the stage is built, not at a request."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from antiphon.pipelines.engines.torch.checkpoint import INDEX, Checkpoint
from antiphon.pipelines.errors import WeightError
from antiphon.pipelines.qwen3_omni import model
from antiphon.pipelines.qwen3_omni.detokenizer import read_tokenizer
from antiphon.pipelines.qwen3_omni.media.pictures import Patcher
from antiphon.pipelines.qwen3_omni.params import generation_defaults
from antiphon.pipelines.qwen3_omni.pipeline import build
from antiphon.pipelines.qwen3_omni.preprocessing import Preprocessing

SMALL = ("config.json", "generation_config.json", "preprocessor_config.json", "tokenizer.json", "tokenizer_config.json", INDEX)
SMALL += ("chat_template.jinja",)


@pytest.fixture
def broken(folder: str, tmp_path: Path) -> Path:
    """The checkpoint's small files, to be broken."""
    for name in SMALL:
        shutil.copy(Path(folder) / name, tmp_path / name)
    return tmp_path


def change(path: Path, where: str, value: Any) -> None:
    """Set ``where`` ("a.b.c") of a JSON file."""
    whole = held = json.loads(path.read_text())
    *way, last = where.split(".")
    for key in way:
        held = held[key]
    held[last] = value
    path.write_text(json.dumps(whole))


@pytest.mark.parametrize("text", ["{", "[]", '{"weight_map": ["a"]}', '{"weight_map": {"a": 1}}', "\xff"])
def test_an_index_that_is_none(text: str, broken: Path) -> None:
    (broken / INDEX).write_bytes(text.encode("latin-1"))
    with pytest.raises(WeightError, match="is not a safetensors index"):
        Checkpoint(broken)


@pytest.mark.parametrize("text", ["{", "[]", "null", "\xff"])
@pytest.mark.parametrize("read", [model.read_config, model.read_generation])
def test_a_config_that_is_none(read: Callable[[Path], Any], text: str, broken: Path) -> None:
    for name in ("config.json", "generation_config.json"):
        (broken / name).write_bytes(text.encode("latin-1"))
    with pytest.raises(WeightError, match=r"config\.json (is not JSON|holds no JSON object)"):
        read(broken)


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("thinker_config", "x"),
        ("thinker_config.text_config.hidden_size", "x"),
        ("thinker_config.text_config.max_position_embeddings", "x"),
        ("talker_config.speaker_id", [1]),
    ],
)
def test_a_config_of_wrong_types(where: str, value: Any, broken: Path) -> None:
    change(broken / "config.json", where, value)
    with pytest.raises(WeightError, match=rf"config\.json is not one of a qwen3_omni_moe model: .*{where.rpartition('.')[2]}"):
        model.read_config(broken)


@pytest.mark.parametrize(("name", "value"), [("num_attention_heads", 0), ("hidden_size", -4), ("hidden_act", "zz")])
def test_sizes_that_no_network_can_have(name: str, value: Any, broken: Path) -> None:
    change(broken / "config.json", f"thinker_config.text_config.{name}", value)
    with pytest.raises(WeightError, match=r"config\.json describes no thinker that can be built"):
        model.build("thinker", model.read_config(broken))


@pytest.mark.parametrize("layer", [-1, 5])
def test_a_layer_that_the_thinker_has_not(layer: int, broken: Path) -> None:
    change(broken / "config.json", "talker_config.accept_hidden_layer", layer)
    with pytest.raises(WeightError, match=f"accept_hidden_layer is {layer}; the thinker has 4 layers"):
        model.check_codec(model.read_config(broken))


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("im_end_token_id", 151645),
        ("tts_pad_token_id", 151671),
        ("talker_config.codec_bos_id", -1),
        ("talker_config.speaker_id", {"ethan": 2302}),
        ("talker_config.speaker_id", {"ethan": [3]}),
    ],
)
def test_an_id_that_its_vocabulary_has_not(where: str, value: Any, broken: Path) -> None:
    change(broken / "config.json", where, value)
    with pytest.raises(WeightError, match=rf"config\.json: {where.rpartition('.')[2]}.* is .*; its vocabulary has \d+ ids"):
        model.check_codec(model.read_config(broken))


def test_a_tokenizer_without_its_words(broken: Path) -> None:
    (broken / "tokenizer.json").unlink()
    with pytest.raises(WeightError, match="holds no tokenizer's vocabulary"):
        read_tokenizer(str(broken))


@pytest.mark.parametrize(
    ("where", "value"),
    [("patch_size", "x"), ("patch_size", 0), ("merge_size", -1), ("size", 5), ("image_mean", [0.5]), ("image_std", [1, 0, 1])],
)
def test_a_preprocessor_that_is_none(where: str, value: Any, broken: Path) -> None:
    change(broken / "preprocessor_config.json", where, value)
    with pytest.raises(WeightError, match=r"preprocessor_config\.json"):
        Patcher(broken)


def test_a_preprocessor_that_is_a_list(broken: Path) -> None:
    (broken / "preprocessor_config.json").write_text("[]")
    with pytest.raises(WeightError, match=r"preprocessor_config\.json is not one of an image processor"):
        Patcher(broken)


@pytest.mark.parametrize(
    ("held", "said"),
    [
        ({"do_sample": True, "temperature": "hot"}, r"generation_config\.json\.temperature must be between"),
        ({"do_sample": True, "top_k": -3}, r"generation_config\.json\.top_k must be between"),
        ({"eos_token_id": "end"}, "eos_token_id names no token ids"),
        ({"eos_token_id": [1, None]}, "eos_token_id names no token ids"),
    ],
)
def test_defaults_that_every_request_would_be_refused_for(held: dict[str, Any], said: str) -> None:
    with pytest.raises(WeightError, match=said):
        generation_defaults(held)


def test_defaults_that_do() -> None:
    assert generation_defaults({"do_sample": True, "top_k": 3, "eos_token_id": 7}) == (
        {"do_sample": True, "top_k": 3, "eos_token_id": 7},
        (7,),
    )
    assert generation_defaults({"temperature": 0.4, "eos_token_id": [5, 6]}) == ({}, (5, 6))


@pytest.mark.parametrize("template", ["{% if %}", "{{ raise_exception('no') }}"])
def test_a_chat_template_that_writes_nothing(template: str, broken: Path) -> None:
    (broken / "chat_template.jinja").write_text(template)
    with pytest.raises(WeightError, match="a chat template that writes no user's turn"):
        read_tokenizer(str(broken))


def test_ears_of_another_size(broken: Path) -> None:
    change(broken / "preprocessor_config.json", "feature_size", 80)
    with pytest.raises(WeightError, match=r"makes 80 mel bins, the audio encoder of config\.json reads 128"):
        Preprocessing(str(broken))


def test_a_folder_that_is_not_there() -> None:
    with pytest.raises(WeightError, match="there is no folder '/nowhere/at/all'"):
        build("/nowhere/at/all")
